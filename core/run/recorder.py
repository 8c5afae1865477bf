"""Records a run: stores its events in batches, one transaction each, then publishes them in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TypeVar

from core.agents.definition import AgentVersion
from core.domain.approval import Approval
from core.domain.budget import PlannedCall, Reservation
from core.domain.errors import LeaseLost, StorageUnavailable
from core.domain.events import (
    AgentEvent,
    ApprovalAsked,
    Chunk,
    Cursor,
    MessageAdded,
    ReplyLeft,
    RunEvent,
    Terminal,
    TextStreamed,
    ThinkingStreamed,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    closing_events,
    is_chunk,
)
from core.domain.ids import new_id
from core.domain.threads import Lease, ThreadInput, ToolCallRecord, Usage
from core.domain.wire_format import status_message
from core.ports import EventBus
from core.stores import NOTHING_NEW, DeliveryDraft, JournalEntry, RunEnd, RunJournal, RunResult, UsageEntry
from core.tasks import shield, spawn

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
_TEXTS = TextStreamed | ThinkingStreamed
Charge = Callable[[UsageEntry], UsageEntry]
"""Returns the usage entry with a price, if it has none yet."""

FLUSH_SECONDS = 0.1
"""The longest time that events wait before they are stored and published: at most ten batches a second."""


@dataclass(slots=True)
class _Emitted:
    event: AgentEvent
    turn_id: str | None
    created_at: datetime


@dataclass(slots=True)
class _Pending:
    emitted: list[_Emitted] = field(default_factory=list[_Emitted])
    started: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    finished: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    usage: list[UsageEntry] = field(default_factory=list[UsageEntry])
    taken_input_ids: list[str] = field(default_factory=list[str])
    heard_refs: list[str] = field(default_factory=list[str])
    deliveries: list[DeliveryDraft] = field(default_factory=list[DeliveryDraft])
    sandbox_id: str | None = None
    agent: AgentVersion | None = None

    def before(self, later: "_Pending") -> "_Pending":
        """Returns this batch of pending entries joined with a later batch."""
        return _Pending(
            self.emitted + later.emitted,
            self.started + later.started,
            self.finished + later.finished,
            self.usage + later.usage,
            self.taken_input_ids + later.taken_input_ids,
            self.heard_refs + later.heard_refs,
            self.deliveries + later.deliveries,
            later.sandbox_id or self.sandbox_id,
            self.agent or later.agent,
        )


class RunRecorder:
    """Implements `core.loop.run_context.RunLog`: writes to the journal, then publishes on the event bus.

    If a write fails, its entries are kept and stored with the next write. If a write in the background fails, each
    later write raises StorageUnavailable, so that the run is handed back and continues from what is stored."""

    def __init__(
        self, lease: Lease, journal: RunJournal, bus: EventBus, *, charge: Charge = lambda entry: entry
    ) -> None:
        self._lease = lease
        self._journal = journal
        self._bus = bus
        self._charge = charge
        self._pending = _Pending()
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._unclear: StorageUnavailable | None = None
        self._turn_id: str | None = None
        self._agent: AgentVersion | None = None
        self._n = 0
        self.turns = 0
        self.spent = Usage()
        self.model = ""
        self._chunk_sequence = 0

    def emit(self, event: AgentEvent) -> None:
        if isinstance(event, TurnStarted):
            self._turn_id = event.turn_id
            self.turns += 1
        self._pending.emitted.append(_Emitted(event, self._turn_id, datetime.now(UTC)))
        if isinstance(event, TurnFinished):
            self._turn_id = None
        if self._timer is None:
            # the first event is stored at once, because users see nothing before it
            delay_seconds = FLUSH_SECONDS if self._n else 0.0
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._flush_soon)

    def set_agent(self, agent: AgentVersion, *, is_new: bool) -> None:
        """Adds the agent's id and version to later events and messages. If `is_new`, also stores them on the run."""
        self._agent = agent
        if is_new:
            self._pending.agent = agent

    def start_call(self, record: ToolCallRecord, event: ToolStarted) -> None:
        self._pending.started.append(record)
        self.emit(event)

    def finish_call(self, record: ToolCallRecord) -> None:
        self._pending.finished.append(record)

    def record_usage(self, entry: UsageEntry) -> None:
        charged = self._charge(entry)
        self._pending.usage.append(charged)
        self.spent, self.model = self.spent + charged.usage, charged.model

    def mark_inputs_taken(self, input_ids: list[str]) -> None:
        """Marks the inputs as read. Emit their messages before the next commit, so that both are stored together."""
        self._pending.taken_input_ids.extend(input_ids)

    def mark_talk_read(self, message_refs: Sequence[str]) -> None:
        """Marks what users wrote to each other as read. Emit the message that contains it before the next commit."""
        self._pending.heard_refs.extend(message_refs)

    def leave_reply(self, drafts: Sequence[DeliveryDraft]) -> None:
        """Adds the deliveries of a reply to the next commit. The run continues."""
        self._pending.deliveries.extend(drafts)
        self.emit(ReplyLeft())

    def bind_sandbox(self, sandbox_id: str) -> None:
        self._pending.sandbox_id = sandbox_id

    async def commit(self) -> None:
        """Stores and publishes all pending entries. The transaction finishes even if the caller is cancelled."""
        await shield(self._flush(self._write), name="flush the run log")

    async def read_inputs(self) -> tuple[ThreadInput, ...]:
        """Returns the run's unread inputs, and writes the pending journal entries in the same transaction."""
        read = self._flush(partial(self._journal.read_inputs, self._lease))
        return await shield(read, name="read the inputs of the run")

    async def begin_turn(self, call: PlannedCall) -> tuple[tuple[ThreadInput, ...], Reservation]:
        """Does the same as `read_inputs`, and reserves what the turn's model call may cost."""
        begun = self._flush(partial(self._journal.begin_turn, self._lease, call=call))
        return await shield(begun, name="begin a turn of the run")

    async def suspend_run(self, approval: Approval) -> None:
        """Stores the approval request with all pending entries, and releases the run until users answer."""
        await shield(self._suspend(approval), name="suspend the run")

    async def _suspend(self, approval: Approval) -> None:
        asked = ApprovalAsked(text=approval.text, summary=approval.summary)
        await self._flush(partial(self._journal.suspend_run, self._lease, approval=approval), asked)
        self._pending = _Pending()  # nothing more can be stored for a run that was released

    async def finish(self, terminal: Terminal, ending: RunResult) -> RunEnd | None:
        """Ends the run and stores all pending entries. Returns None if an unread input keeps the run going."""
        return await shield(self._finish(terminal, ending), name="finish the run")

    async def _finish(self, terminal: Terminal, ending: RunResult) -> RunEnd | None:
        async with self._lock:
            self._begin_write()
            batch, chunk_sequence = self._pending, self._chunk_sequence
            now, turn_id = datetime.now(UTC), self._turn_id
            said = [_Emitted(one, turn_id, now) for one in closing_events(terminal, turn_id)]
            events = self._events([*batch.emitted, *said, _Emitted(terminal, None, now)])
            end = await self._journal.finish(self._lease, self._entry(batch, events), ending)
            if end is None:
                self._chunk_sequence = chunk_sequence  # the next write stores the pending entries
                return None
            self._pending = _Pending()
            self._n += len(events)
        await self._bus.publish(events)
        return end

    async def _flush(self, store: Callable[[JournalEntry], Awaitable[ResultT]], *last: AgentEvent) -> ResultT:
        """Stores all pending entries, then `last`, by calling `store`, and returns the result. Publishes the events
        after that, so that every event that a subscriber receives is already stored."""
        async with self._lock:
            self._begin_write()
            batch, self._pending = self._pending, _Pending()
            now = datetime.now(UTC)
            events = self._events([*batch.emitted, *(_Emitted(event, self._turn_id, now) for event in last)])
            try:
                result = await store(self._entry(batch, events))
            except BaseException:
                self._pending = batch.before(self._pending)
                raise
            self._n += len(events)
            if events:
                await self._bus.publish(events)
            return result

    async def _write(self, entry: JournalEntry) -> None:
        if entry != NOTHING_NEW:
            await self._journal.write(self._lease, entry)

    def _flush_soon(self) -> None:
        spawn(self._flush_in_background(), name="flush the run log")

    async def _flush_in_background(self) -> None:
        if self._unclear is not None:
            return
        try:
            await self._flush(self._write)
        except LeaseLost as error:
            log.info("run %s goes on elsewhere: %s", self._lease.run_id, error)  # the next write raises the error again
        except StorageUnavailable as error:
            # the entries may have been stored, and writing them again could duplicate them, so the next write hands the
            # run back
            log.warning("the log of run %s was not stored: %s", self._lease.run_id, error)
            self._unclear = error

    def _begin_write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unclear is not None:
            raise self._unclear

    def _events(self, emitted: list[_Emitted]) -> list[RunEvent]:
        events: list[RunEvent] = []
        agent_id = self._agent.definition.agent_id if self._agent else None
        version_id = self._agent.agent_version_id if self._agent else None
        for one in merge_text_chunks(emitted):
            event, message_id = one.event, None if is_chunk(one.event) else new_id()
            if isinstance(event, MessageAdded):
                message_id = event.message.message_id
                if agent_id is not None:
                    signed = replace(event.message, agent_id=agent_id, agent_version_id=version_id)
                    event = MessageAdded(message=signed)
            elif isinstance(event, TurnStarted):
                self._chunk_sequence = 0
            elif isinstance(event, Chunk):
                event = with_sequence(event, self._chunk_sequence)
                self._chunk_sequence += 1
            events.append(
                RunEvent(
                    run_id=self._lease.run_id,
                    thread_id=self._lease.thread_id,
                    cursor=Cursor(self._lease.attempt, self._n + len(events) + 1),
                    event=event,
                    turn_id=one.turn_id,
                    message_id=message_id,
                    agent_id=agent_id,
                    agent_version_id=version_id,
                    created_at=one.created_at,
                )
            )
        return events

    def _entry(self, batch: _Pending, events: list[RunEvent]) -> JournalEntry:
        stored = tuple(event for event in events if not is_chunk(event.event))
        messages = [one.event.message if isinstance(one.event, MessageAdded) else status_message(one) for one in stored]
        return JournalEntry(
            messages=tuple(filter(None, messages)),
            started=tuple(batch.started),
            finished=tuple(batch.finished),
            events=stored,
            usage=tuple(batch.usage),
            taken_input_ids=tuple(batch.taken_input_ids),
            heard_refs=tuple(batch.heard_refs),
            sandbox_id=batch.sandbox_id,
            agent=batch.agent,
            deliveries=tuple(batch.deliveries),
        )


def merge_text_chunks(emitted: list[_Emitted]) -> list[_Emitted]:
    """Returns the events with adjacent text chunks of the same kind joined into one."""
    whole: list[_Emitted] = []
    for _, group in groupby(emitted, lambda one: type(one.event) if isinstance(one.event, _TEXTS) else id(one)):
        first, *others = group
        chunks = [one.event for one in (first, *others) if isinstance(one.event, _TEXTS)]
        if len(chunks) > 1:
            joined = _chunk(chunks[-1], "".join(chunk.text for chunk in chunks), chunks[0].sequence)
            first = _Emitted(joined, first.turn_id, first.created_at)
        whole.append(first)
    return whole


def _chunk(like: TextStreamed | ThinkingStreamed, text: str, sequence: int) -> TextStreamed | ThinkingStreamed:
    # calls the constructors because `dataclasses.replace` is slower than all other work on a chunk
    if isinstance(like, TextStreamed):
        return TextStreamed(text=text, sequence=sequence)
    return ThinkingStreamed(text=text, sequence=sequence, seconds=like.seconds)


def with_sequence(chunk: Chunk, sequence: int) -> Chunk:
    """Returns the text chunk with this sequence number. The chunks of a turn are numbered from 0."""
    if chunk.sequence == sequence:
        return chunk
    if isinstance(chunk, TextStreamed | ThinkingStreamed):
        return _chunk(chunk, chunk.text, sequence)
    return replace(chunk, sequence=sequence)
