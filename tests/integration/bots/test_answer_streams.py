"""Answers that people read while the model writes them: whole and once, whatever happens to the stream."""

import asyncio
from dataclasses import dataclass, field

import pytest

from bots.delivery import answer_stream
from bots.delivery.answer_stream import STREAM_AFTER_CHARACTERS
from bots.delivery.content import AnswerPart
from bots.delivery.poster import AnswerStreams
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Address
from core.ports import Precondition, TextDelta, ThinkingDelta
from core.stores import Delivery
from tests.fakes.streamed_model import Played, calls, text
from tests.fakes.surface import Failure, FakeSurface, Posted
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until

FIRST = "The first half of the answer. " * 8
SECOND = "The second half of it. " * 8
assert len(FIRST) > STREAM_AFTER_CHARACTERS


@dataclass
class GrowingSurface(FakeSurface):
    """A platform with messages that grow. `written` is the text of its streams, `appends` each piece."""

    written: dict[str, str] = field(default_factory=dict)
    appends: list[str] = field(default_factory=list)
    is_finished: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    async def find_streams(self, address: Address) -> AnswerStreams | None:
        return self

    async def start(self, address: Address, *, delivery_id: str, precondition: Precondition) -> str:
        def carry_out() -> str:
            ref = f"m{next(self._numbers)}"
            self.posted.append(Posted(ref, delivery_id, address))
            self.written[ref] = ""
            return ref

        return await self._do("start", carry_out, precondition)

    async def append(self, address: Address, stream: Delivery, markdown: str, *, precondition: Precondition) -> None:
        def carry_out() -> None:
            assert not self.is_finished
            self.appends.append(markdown)
            self.written[stream.message_ref or ""] += markdown

        await self._do("append", carry_out, precondition)

    async def finish(
        self, address: Address, stream: Delivery, content: AnswerPart | None, *, precondition: Precondition
    ) -> None:
        def carry_out() -> None:
            self.is_finished = True
            (found,) = [one for one in self.posted if one.message_ref == stream.message_ref]
            if content is not None:
                found.contents.append(content)

        await self._do("finish", carry_out, precondition)


@pytest.fixture
async def growing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> GrowingSurface:
    monkeypatch.setattr(answer_stream, "APPEND_SECONDS", 0.01)
    monkeypatch.setattr(answer_stream, "KEEP_ALIVE_SECONDS", 0.02)
    stage.surface = surface = GrowingSurface()
    await stage.use_status_after(60)
    return surface


async def played(stage: Stage, surface: GrowingSurface, *turns: Played, gate: asyncio.Event) -> None:
    """Plays the turns, and opens the gate once the first half is shown."""
    stage.world.model.turns = list(turns)
    _, running = await stage.start_followed()
    await until(lambda: FIRST in "".join(surface.written.values()))
    gate.set()
    await running
    await stage.shown()


def answers(surface: FakeSurface) -> list[str]:
    newest = [one.newest for one in surface.posted if one.contents]
    return [one.markdown.strip() for one in newest if isinstance(one, AnswerPart)]


async def test_an_answer_is_shown_in_whole_words_while_the_model_thinks_and_writes(
    stage: Stage, growing: GrowingSurface
) -> None:
    gate, thinking = asyncio.Event(), ThinkingDelta(text="Hm.")
    pieces = [TextDelta(text=FIRST[at : at + 7]) for at in range(0, len(FIRST), 7)]
    await played(stage, growing, [thinking, *pieces, gate, *text(SECOND)], gate=gate)
    assert answers(growing) == [f"{FIRST}{SECOND}".strip()]
    assert len(growing.posted) == 1
    assert all(one.endswith(" ") for one in growing.appends if one)


@pytest.mark.parametrize("operation", ["start", "append", "finish"])
@pytest.mark.parametrize(
    "error",
    [
        SurfaceRefused("no", code="feature_not_enabled"),
        SurfaceUnclear("silence"),
        SurfaceRateLimited("slowly", retry_after_seconds=0.01),
    ],
    ids=["refused", "unclear", "limited"],
)
async def test_the_answer_is_there_once_if_the_stream_fails(
    stage: Stage, growing: GrowingSurface, operation: str, error: SurfaceError
) -> None:
    growing.failures.append(Failure(operation, error))
    stage.world.model.turns = [[TextDelta(text=FIRST), gate := asyncio.Event(), *text(SECOND)]]
    _, running = await stage.start_followed()
    if operation == "finish":
        await until(lambda: FIRST in growing.written.values())
    else:
        await until(lambda: not growing.failures)
    gate.set()
    await running
    await stage.shown()
    assert not growing.failures
    assert answers(growing) == [f"{FIRST}{SECOND}".strip()]


async def test_text_before_a_tool_call_stays_whole_and_the_answer_follows(
    stage: Stage, growing: GrowingSurface
) -> None:
    gate = asyncio.Event()
    call = calls(("echo", '{"text": "a"}'))
    first = [TextDelta(text=FIRST), gate, TextDelta(text="To the end"), *call]
    await played(stage, growing, first, text(SECOND), gate=gate)
    assert list(growing.written.values()) == [f"{FIRST}To the end"]
    assert answers(growing) == [SECOND.strip()]


async def test_a_stream_that_waits_out_a_rate_limit_does_not_hold_up_a_close(
    stage: Stage, growing: GrowingSurface
) -> None:
    limited = Failure("finish", SurfaceRateLimited("slowly", retry_after_seconds=300))
    growing.failures.append(limited)
    stage.world.model.turns = [[TextDelta(text=FIRST), *calls(("echo", '{"text": "a"}'))], text(SECOND)]
    _, running = await stage.start_followed()
    await running
    await until(lambda: not growing.failures)
    async with asyncio.timeout(30):
        await stage.delivery.close()
