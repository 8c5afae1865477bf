"""What is written to the message of an answer that grows, and when, as the events of its run come in."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bots.delivery.answer_stream import STREAM_AFTER_CHARACTERS, AnswerStream
from core.domain.errors import LeaseLost, SurfaceRateLimited, SurfaceUnclear
from core.domain.events import (
    ReplyLeft,
    ResponseStarted,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolStarted,
    TurnStarted,
)
from tests.histories.virtual_time import in_virtual_time

LIMITED = SurfaceRateLimited("slow", retry_after_seconds=3)
UNCLEAR = SurfaceUnclear("no answer")


class Chat:
    """A poster and its surface. `events` has the calls with the lengths of texts; `@` is the time."""

    answer_limit = 1000

    def __init__(self, **more: Any) -> None:
        self.given: Mapping[str, Any] = more
        self.errors = [*more.get("errors", ())]
        self.rendering = SimpleNamespace(has_earlier=more.get("has_earlier", False))
        self.surface, self.address = self, None
        self.events = list[str]()
        self.began = self.last = asyncio.get_running_loop().time()

    def note(self, event: str) -> None:
        now = asyncio.get_running_loop().time()
        self.events.append(f"{event} @{now - self.began:.0f}" if now - self.last > 0.1 else event)
        self.last = now

    async def find_streams(self, _address: object) -> object:
        return self.given.get("streams", self)

    async def plan_delivery(self, _draft: object) -> Any:
        return SimpleNamespace(state=self.given.get("state", "pending"))

    async def start_stream(self, _stream: object, _streams: object) -> bool:
        self.note("starts")
        return self.given.get("may_start", True)

    async def append_to_stream(self, _stream: object, _streams: object, text: str) -> None:
        error = self.errors.pop(0) if self.errors else None
        self.note(f"{'fails' if error else 'appends'} {len(text)}")
        if error:
            raise error

    async def finish_stream(self, _stream: object) -> None:
        self.note("finishes")


def text(length: int, at: int = 0) -> TextStreamed:
    return TextStreamed(text=("ab " * length)[:length], sequence=at)


def tool(name: str) -> ToolStarted:
    return ToolStarted(index=0, call_id="a", name=name, title="")


TURN = TurnStarted(turn_id="t", number=1)
ANEW = ResponseStarted()
THINKS = ThinkingStreamed(text="", sequence=1)
DONE = RunFinished(status="completed", finish_reason="stop")
FIRST = STREAM_AFTER_CHARACTERS + 1  # 67 words


@pytest.mark.parametrize(
    ("script", "given", "events"),
    [
        ([TURN, ANEW, text(FIRST), 5, DONE], {}, "starts; appends 201; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST - 1), 5, RunFailed(public_message="")], {}, "starts; appends 198; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST - 2), 5, ReplyLeft()], {}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), 2.5, THINKS, text(30, 2), 2.5, DONE], {},
         "starts; appends 201; grows @3; appends 30 @3; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST), 2.5, text(30, 2), 2.5, DONE], {}, "starts; appends 201; grows @3; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST), 2.5, text(10, 1), tool("execute_command"), text(9, 2), 1], {},
         "starts; appends 201; grows @3; appends 10; finishes; leaves @4"),
        ([TURN, ANEW, text(FIRST), 2.5, TURN, 1], {}, "starts; appends 201; grows @3; appends 0; finishes; leaves @4"),
        ([TURN, ANEW, text(FIRST), 2.5, tool("complete"), 1, DONE], {},
         "starts; appends 201; grows @3; grows @4; leaves"),
        ([TURN, ANEW, text(FIRST), 2.5, ANEW, text(30, 1), 5, DONE], {},
         "starts; appends 201; grows @3; grows @8; leaves"),
        ([text(FIRST), 5, DONE], {}, "starts; appends 201; grows @5; leaves"),
        ([text(FIRST, 4), 5, DONE], {}, "leaves @5"),
        ([TURN, text(150), TURN, text(150), 5, DONE], {}, "leaves @5"),
        ([TURN, ANEW, text(150), ANEW, text(150, 1), 5, DONE], {}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), ANEW, 5, DONE], {}, "leaves @5"),
        ([tool("execute_command"), TURN, ANEW, text(9), TURN, ANEW, text(FIRST), 5, DONE], {},
         "starts; appends 201; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST), 43, DONE], {},
         "starts; appends 201; appends 0 @20; appends 0 @40; grows @43; leaves"),
        ([TURN, ANEW, text(FIRST), 9, DONE], {"errors": [LIMITED]},
         "starts; fails 201; appends 201 @3; grows @9; leaves"),
        ([TURN, ANEW, text(FIRST), 9, DONE], {"errors": [UNCLEAR]}, "starts; fails 201; leaves @9"),
        ([TURN, ANEW, text(FIRST), 9, DONE], {"errors": [LeaseLost("")]}, "starts; fails 201; leaves @9"),
        ([TURN, ANEW, text(FIRST), 2.5, TURN, 1], {"errors": [None, UNCLEAR]},
         "starts; appends 201; grows @3; fails 0; finishes; leaves @4"),
        ([TURN, ANEW, text(1200), 5, TURN, 1], {}, "starts; appends 999; grows @5; appends 1; finishes; leaves @6"),
        ([TURN, ANEW, text(50_000), text(9, 1), 5, DONE], {"limit": 60_000}, "starts; appends 49998; grows @5; leaves"),
        ([TURN, ANEW, text(FIRST), 5, DONE], {"streams": None}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), 5, DONE], {"state": "attempting"}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), 5, DONE], {"may_start": False}, "starts; leaves @5"),
        ([TURN, ANEW, text(FIRST), 5, DONE], {"has_earlier": True}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), 5, DONE], {"attention": "clear"}, "leaves @5"),
        ([TURN, ANEW, text(FIRST), DONE, 5], {}, "leaves @5"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_is_written(script: Sequence[Any], given: Mapping[str, Any], events: str) -> None:
    chat: Any = Chat(**given)
    chat.answer_limit = given.get("limit", 1000)
    stream, run = AnswerStream(), SimpleNamespace(attention=given.get("attention", "addressed"), run_id="r")
    writing = asyncio.ensure_future(stream.stream_until_end(run, chat))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    for step in script:
        if isinstance(step, int | float):
            await asyncio.sleep(step)
            if stream.is_growing:
                chat.note("grows")
        else:
            stream.apply(step)
    await writing
    chat.note("leaves")
    assert "; ".join(chat.events) == events
    assert stream.has_ended
    assert not stream.is_growing
    assert stream.written.is_set()
