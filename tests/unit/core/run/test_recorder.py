"""What the recorder stores and publishes, and when: a run's first event at once, because people see nothing before."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.domain.errors import LeaseLost, StorageUnavailable
from core.domain.events import (
    MessageAdded,
    RunEvent,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolStarted,
    TurnStarted,
)
from core.domain.messages import Message
from core.domain.threads import Lease, Usage
from core.run.recorder import FLUSH_SECONDS, RunRecorder
from core.stores import JournalEntry, RunEnd, RunJournal, RunResult, UsageEntry
from tests.histories.virtual_time import in_virtual_time


@dataclass
class Journal:
    """Keeps what it stores, unless an error is next. `ends` are the answers to the attempts to finish."""

    entries: list[JournalEntry] = field(default_factory=list[JournalEntry])
    errors: list[Exception] = field(default_factory=list[Exception])
    ends: list[RunEnd | None] = field(default_factory=list[RunEnd | None])

    async def write(self, _lease: Lease, entry: JournalEntry) -> None:
        if self.errors:
            raise self.errors.pop()
        self.entries.append(entry)

    async def read_inputs(self, lease: Lease, entry: JournalEntry) -> tuple[str]:
        await self.write(lease, entry)
        return ("input",)

    async def finish(self, lease: Lease, entry: JournalEntry, _ending: object) -> RunEnd | None:
        if (end := self.ends.pop(0)) is not None:
            await self.write(lease, entry)
        return end


@dataclass
class Bus:
    published: list[RunEvent] = field(default_factory=list[RunEvent])

    async def publish(self, events: Sequence[RunEvent]) -> None:
        self.published.extend(events)


def recording(*ends: RunEnd | None) -> tuple[RunRecorder, Journal, Bus]:
    lease = Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=1)
    journal, bus = Journal(ends=[*ends]), Bus()
    return RunRecorder(lease, cast(RunJournal, journal), bus), journal, bus


async def turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@in_virtual_time
async def test_the_first_event_is_published_at_once_and_later_ones_together() -> None:
    recorder, _, bus = recording()
    recorder.emit(TurnStarted(turn_id="one", number=1))
    await turns_of_the_loop()
    assert len(bus.published) == 1
    recorder.emit(TurnStarted(turn_id="two", number=2))
    recorder.emit(TurnStarted(turn_id="three", number=3))
    await turns_of_the_loop()
    assert len(bus.published) == 1
    await recorder.commit()
    assert len(bus.published) == 3
    assert recorder.turns == 3
    recorder.emit(TurnStarted(turn_id="four", number=4))
    await asyncio.sleep(2 * FLUSH_SECONDS)
    assert len(bus.published) == 4


def signed(agent_id: str | None) -> tuple[Any, ...]:
    return agent_id, "v" if agent_id else None


@pytest.mark.parametrize("agent_id", [None, "research"])
async def test_all_that_was_noted_is_stored_once_even_after_an_error(agent_id: str | None) -> None:
    recorder, journal, bus = recording()
    call: Any = SimpleNamespace(call_id="c")
    agent: Any = SimpleNamespace(definition=SimpleNamespace(agent_id=agent_id), agent_version_id="v")
    assert recorder.model == ""
    if agent_id:
        recorder.set_agent(agent, is_new=True)
    recorder.start_call(call, ToolStarted(index=0, call_id="c", name="x", title="x"))
    recorder.finish_call(call)
    recorder.record_usage(UsageEntry(turn_id="t", model="m", usage=Usage(input_tokens=3)))
    recorder.mark_inputs_taken(["i"])
    recorder.mark_talk_read(["m"])
    recorder.leave_reply(["draft"])
    recorder.bind_sandbox("box")
    message = Message(type="user", content={"content": "hi"}, is_llm_message=True, thread_id="t", message_id="own")
    recorder.emit(MessageAdded(message=message))
    journal.errors.append(LeaseLost("taken"))
    with pytest.raises(LeaseLost):
        await recorder.commit()
    assert bus.published == []
    assert await recorder.read_inputs() == ("input",)
    await recorder.commit()
    (entry,) = journal.entries
    assert (entry.started, entry.finished, entry.sandbox_id) == ((call,), (call,), "box")
    assert (entry.taken_input_ids, entry.heard_refs, entry.deliveries) == (("i",), ("m",), ("draft",))
    assert [(one.model, one.usage.input_tokens) for one in entry.usage] == [("m", 3)]
    assert (recorder.model, recorder.spent.input_tokens, entry.agent) == ("m", 3, agent if agent_id else None)
    assert [event.cursor.n for event in bus.published] == [1, 2, 3]
    assert {(event.agent_id, event.agent_version_id) for event in bus.published} == {signed(agent_id)}
    (added,) = (one for one in entry.messages if one.type == "user")
    assert (added.agent_id, added.agent_version_id, bus.published[2].message_id) == (*signed(agent_id), "own")
    recorder.emit(TurnStarted(turn_id="one", number=1))
    await recorder.commit()
    assert (bus.published[3].cursor.n, journal.entries[1].agent) == (4, None)


async def test_chunks_are_joined_and_numbered_within_their_turn() -> None:
    recorder, _, bus = recording(None, RunEnd())
    for turn_id in ("one", "two"):
        recorder.emit(TurnStarted(turn_id=turn_id, number=1))
        for text in "ab":
            recorder.emit(TextStreamed(text=text, sequence=0))
        for seconds in (2, 3):
            recorder.emit(ThinkingStreamed(text="c", seconds=seconds, sequence=0))
        await recorder.commit()
        recorder.emit(TextStreamed(text="d", sequence=0))
    assert (
        await recorder.finish(RunFinished(status="completed", finish_reason="finished"), cast(RunResult, None)) is None
    )
    assert (
        await recorder.finish(RunFinished(status="completed", finish_reason="finished"), cast(RunResult, None))
        == RunEnd()
    )
    chunks = [each.event for each in bus.published if isinstance(each.event, TextStreamed | ThinkingStreamed)]
    assert [(chunk.text, chunk.sequence) for chunk in chunks] == [
        *(("ab", 0), ("cc", 1), ("d", 2)),
        *(("ab", 0), ("cc", 1), ("d", 2)),
    ]
    assert [chunk.seconds for chunk in chunks if isinstance(chunk, ThinkingStreamed)] == [3, 3]
    assert [event.cursor.n for event in bus.published] == [*range(1, len(bus.published) + 1)]
    assert [type(each.event).__name__ for each in bus.published][-2:] == ["TurnFinished", "RunFinished"]


async def test_after_a_failed_write_in_the_background_nothing_more_is_stored() -> None:
    recorder, journal, bus = recording()
    journal.errors.append(StorageUnavailable("away"))
    recorder.emit(TurnStarted(turn_id="one", number=1))
    await turns_of_the_loop()
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            await recorder.commit()
    assert (journal.entries, bus.published) == ([], [])
