"""When the store is read for a run's events, in virtual time: at once, after a silence, and when that is requested."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from core.domain.events import Cursor, RunEvent, RunFinished, TurnStarted
from core.run.event_replay import Recheck, follow_events
from tests.histories.virtual_time import in_virtual_time

END = RunFinished(status="completed", finish_reason="stop")


class Source:
    """A store and a bus in one. Live events come at their times; `reads` has when the store was read."""

    def __init__(self, live: Sequence[tuple[float, RunEvent]], over_at: float) -> None:
        self.live, self.over_at, self.reads = live, over_at, list[float]()
        self.began = asyncio.get_running_loop().time()

    def now(self) -> float:
        return round(asyncio.get_running_loop().time() - self.began, 1)

    async def events_so_far(self, _run_id: str, *, after: Cursor) -> tuple[Sequence[RunEvent], bool]:
        self.reads.append(self.now())
        is_over = self.now() >= self.over_at
        return [event(9, END)] if is_over and after < Cursor(1, 9) else [], is_over

    @asynccontextmanager
    async def subscribe(self, _run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent]]:
        yield self.arriving()

    async def arriving(self) -> AsyncGenerator[RunEvent]:
        for at, live in self.live:
            await asyncio.sleep(at - self.now())
            yield live
        await asyncio.Event().wait()


def event(number: int, what: TurnStarted | RunFinished = TurnStarted(turn_id="t", number=1)) -> RunEvent:  # noqa: B008 - a frozen value
    return RunEvent(run_id="run", thread_id="thread", cursor=Cursor(1, number), event=what)


@pytest.mark.parametrize(
    ("live", "over_at", "requested_at", "reads"),
    [
        ([], 12, None, [0, 5, 10, 15]),
        ([(3, event(1)), (4, event(2))], 12, None, [0, 9, 14]),
        ([], 12, 2, [0, 2, 7, 12]),
        ([(3, event(1)), (4, event(2, END))], 12, None, [0]),
    ],
)
@in_virtual_time
async def test_the_store_is_read_after_a_silence_and_on_request(
    live: Sequence[tuple[float, RunEvent]], over_at: float, requested_at: float | None, reads: list[float]
) -> None:
    source, recheck = Source(live, over_at), Recheck()
    if requested_at:
        asyncio.get_running_loop().call_later(requested_at, recheck.request)
    ports = cast(Any, source)
    groups = [group async for group in follow_events("run", None, conversations=ports, bus=ports, recheck=recheck)]
    assert groups[-1][-1].event == END
    assert source.reads == reads
