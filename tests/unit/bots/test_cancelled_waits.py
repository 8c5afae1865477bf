"""A wait that is cancelled just as it ends is cancelled, so that a task that is told to stop does not go on."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from bots.slack.events.handler import MentionDedup, ThreadOrder
from bots.web.takeover.sessions import TakeoverSession, _close_sockets
from core.stores import TakeoverClaim

Wait = tuple[Coroutine[Any, Any, object], Callable[[], object]]
"""A wait, and what ends it."""


def wait_for_a_second_copy() -> Wait:
    dedup = MentionDedup()
    wait = dedup.wait_for("C1", "1.1", timeout_seconds=60)
    return wait, lambda: dedup.record("C1", "1.1", is_taken=True)


def wait_for_an_earlier_event() -> Wait:
    order, is_over = ThreadOrder(), asyncio.Event()

    async def place(act: Callable[[Callable[[], Awaitable[None]]], Awaitable[object]]) -> None:
        async with order.in_order({"channel": "C1", "ts": "1.1"}) as turn:
            await act(turn)

    earlier = asyncio.ensure_future(place(lambda _turn: is_over.wait()))

    async def later() -> None:
        await asyncio.sleep(0)
        await place(lambda turn: turn())
        await earlier

    return later(), is_over.set


def wait_for_a_page_to_release_the_browser() -> Wait:
    class Socket:
        async def close(self, **_said: object) -> None: ...

    now, is_released = datetime.now(UTC), asyncio.Event()
    claim = TakeoverClaim(link_key="k", thread_id="t", cookie_hash="", expires_at=now, used_at=now)
    sockets: Any = {Socket(): is_released}
    return _close_sockets(TakeoverSession(claim, 0.0, sockets=sockets)), is_released.set


@pytest.mark.parametrize("passes", range(5))
@pytest.mark.parametrize(
    "begin", [wait_for_a_second_copy, wait_for_an_earlier_event, wait_for_a_page_to_release_the_browser]
)
async def test_a_wait_that_is_cancelled_as_it_ends_is_cancelled(begin: Callable[[], Wait], passes: int) -> None:
    wait, end = begin()
    task = asyncio.ensure_future(wait)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    end()
    for _ in range(passes):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
