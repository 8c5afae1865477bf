"""Events that had to wait: in the order of their channel, each to its end, and none that holds up the others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bots.inbound import retry_buffer
from bots.inbound.retry_buffer import RetryBuffer
from core.domain.errors import StorageUnavailable, SurfaceUnclear
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_buffer, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(retry_buffer, "RETRY_SECONDS_MAX", 0.001)


class Handled:
    """Notes the events that were handled; `errors` are raised first."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def event(self, name: str, *errors: Exception) -> Callable[[], Awaitable[None]]:
        left = list(errors)

        async def process() -> None:
            if left:
                raise left.pop(0)
            self.names.append(name)

        return process

    async def until(self, *names: str) -> None:
        await until(lambda: len(self.names) >= len(names))
        assert self.names == list(names)


async def test_events_behind_one_that_waits_for_the_database_keep_their_order() -> None:
    handled, buffer = Handled(), RetryBuffer("slack")
    away = StorageUnavailable("away")
    await buffer.handle_or_keep("C1", "1", handled.event("one", away, away, away))
    await buffer.handle_or_keep("C1", "2", handled.event("two"))
    await buffer.handle_or_keep("C1", "2", handled.event("two again"))
    assert handled.names == []
    await handled.until("one", "two")
    await buffer.handle_or_keep("C1", "3", handled.event("three"))
    assert handled.names == ["one", "two", "three"]


async def test_a_stop_does_not_wait_for_a_retry_elsewhere_that_takes_long() -> None:
    handled, buffer, is_over = Handled(), RetryBuffer("discord"), asyncio.Event()
    read_all_channels = handled.event("backfill", StorageUnavailable("away"))

    async def backfill() -> None:
        await read_all_channels()
        await is_over.wait()

    await buffer.handle_or_keep("all channels", "1", backfill)
    await handled.until("backfill")
    await buffer.handle_or_keep("C1", "2", handled.event("stop"))
    await buffer.handle_or_keep("C2", "3", handled.event("approval", StorageUnavailable("away")))
    await handled.until("backfill", "stop", "approval")
    await buffer.close()


async def test_an_event_for_which_the_platform_fails_holds_nothing_up_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled, buffer = Handled(), RetryBuffer("discord")
    await buffer.handle_or_keep("C1", "1", handled.event("one", *[SurfaceUnclear("500")] * 5))
    await buffer.handle_or_keep("C1", "2", handled.event("two"))
    await handled.until("two", "one")
    monkeypatch.setattr(retry_buffer, "PLATFORM_SECONDS_MAX", 0.01)
    await buffer.handle_or_keep("C1", "3", handled.event("three", *[SurfaceUnclear("500")] * 100_000))
    await until(lambda: "discord: event 3 is dropped" in caplog.text)


async def test_an_event_that_breaks_the_bot_is_dropped_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    handled, buffer = Handled(), RetryBuffer("slack")
    await buffer.handle_or_keep("C1", "1", handled.event("one", StorageUnavailable("away"), ValueError("a bug")))
    await buffer.handle_or_keep("C1", "2", handled.event("two"))
    await handled.until("two")
    assert "slack: event 1 is dropped" in caplog.text
    assert "ValueError: a bug" in caplog.text


async def test_more_than_can_be_kept_are_dropped_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry_buffer, "RETRY_EVENTS_MAX", 1)
    handled, buffer = Handled(), RetryBuffer("slack")
    await buffer.handle_or_keep("C1", "1", handled.event("one", StorageUnavailable("away")))
    await buffer.handle_or_keep("C1", "2", handled.event("two"))
    assert "event 2 is dropped: too many wait" in caplog.text
    await handled.until("one")


async def test_closing_ends_the_retries() -> None:
    handled, buffer = Handled(), RetryBuffer("slack")
    await buffer.handle_or_keep("C1", "1", handled.event("one", *[StorageUnavailable("away")] * 100_000))
    await buffer.close()
    assert handled.names == []
