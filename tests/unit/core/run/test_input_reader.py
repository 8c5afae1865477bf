"""What a run reads of its inputs between two turns."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from core.domain.threads import Lease
from core.run.input_reader import InputReader


async def nothing(*_arguments: object) -> tuple[()]:
    return ()


async def no_turn(_call: object) -> tuple[tuple[()], None]:
    return (), None


def reader(*, is_draining: bool) -> InputReader:
    draining = asyncio.Event()
    if is_draining:
        draining.set()
    deps: Any = SimpleNamespace(
        draining=draining,
        chat=SimpleNamespace(histories={}),
        stores=SimpleNamespace(conversations=SimpleNamespace(unread_talk=nothing)),
    )
    lease = Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=1)
    thread: Any = SimpleNamespace(address=SimpleNamespace(platform="api"), earlier_authors=None)
    recorder: Any = SimpleNamespace(read_inputs=nothing, begin_turn=no_turn)
    return InputReader(lease, thread, deps, recorder, SimpleNamespace())


async def test_a_worker_that_hands_its_runs_over_begins_no_turn() -> None:
    assert await reader(is_draining=False).take_steering() == []
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).take_steering()
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).begin_turn(SimpleNamespace())
