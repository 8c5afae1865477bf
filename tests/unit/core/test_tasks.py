"""Timers and tasks of `core.tasks`."""

import asyncio

import pytest

from core.tasks import backoff_seconds, call_every, cancel, repeat, shield, spawn, spawn_awaited


async def test_a_repeated_call_begins_late_goes_on_and_ends_with_its_block() -> None:
    loop, times = asyncio.get_running_loop(), list[float]()
    third = asyncio.Event()

    def call() -> None:
        times.append(loop.time())
        if len(times) == 3:
            third.set()

    began = loop.time()
    async with asyncio.timeout(30):
        with call_every(0.01, call, after_seconds=0.03):
            await third.wait()
    assert times[0] - began >= 0.029
    await asyncio.sleep(0.05)
    assert len(times) == 3


async def test_nothing_is_called_if_the_block_is_shorter() -> None:
    called: list[None] = []
    with call_every(0, lambda: called.append(None), after_seconds=0.01):
        pass
    await asyncio.sleep(0.03)
    assert called == []


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_error_of_shielded_work_is_raised_or_else_logged(
    caplog: pytest.LogCaptureFixture, *, is_cancelled: bool
) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await gate.wait()
        raise KeyError("unexpected")

    caller = spawn_awaited(shield(work(), name="the work"), name="caller")
    await began.wait()
    if is_cancelled:
        await cancel(caller)
    gate.set()
    with pytest.raises(asyncio.CancelledError if is_cancelled else KeyError):
        await caller
    async with asyncio.timeout(30):
        while bool(caplog.records) != is_cancelled:
            await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["the task the work failed"] * is_cancelled


async def test_an_error_does_not_end_a_repetition(caplog: pytest.LogCaptureFixture) -> None:
    rounds, third = list[None](), asyncio.Event()

    async def work() -> None:
        rounds.append(None)
        if len(rounds) == 3:
            third.set()
        raise KeyError("unexpected")

    job = spawn(repeat(work, 0.001, "the round failed"), name="rounds")
    async with asyncio.timeout(30):
        await third.wait()
    await cancel(job)
    assert "the round failed: KeyError('unexpected')" in caplog.text


def test_the_pause_after_a_failure_doubles_until_it_is_long_however_many_failures_there_are() -> None:
    pauses = [backoff_seconds(failures, first=2, most=300) for failures in range(1, 10)]
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert backoff_seconds(10_000, first=0.001, most=300) == 300
