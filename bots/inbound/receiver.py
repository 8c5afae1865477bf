"""Where everything that people do arrives: claimed and stored first, answered at once where it can be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import assert_never

from bots.inbound.access import AccessCheck, AccessPolicy
from bots.inbound.actions import (
    AskAnswered,
    CommandCalled,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    Outcome,
    RunButtonPressed,
    StopRequested,
    UserAction,
    decide_answer,
    decide_delete,
    decide_edit,
    decide_message,
    decide_stop,
)
from bots.inbound.commands.admin import audit_entry_for
from bots.inbound.commands.dispatch import CommandDeps, answer_command
from core.agents.definition import AgentDefinition
from core.domain.pairing import Pairings
from core.domain.threads import Ignore, InboxItem, InputKind, Person, Receipt, StopRun
from core.ports import RunQueue, StopSignals
from core.stores import Decide, Inbox, StopRequests

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
POLLS_MAX = 10
"""A platform waits three seconds for its acknowledgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionReceiver:
    """Turns parsed inbound facts into stored ones, and wakes whoever works on them.

    `wake_delivery` tells the delivery that a run has something new to show; `answering` are the keys of the words that
    are being answered just now.
    """

    inbox: Inbox
    stops: StopRequests
    queue: RunQueue
    signals: StopSignals
    policy: AccessPolicy
    desk: CommandDeps
    wake_delivery: Callable[[str], None]
    pairings: Pairings | None = None
    answering: set[str] = field(default_factory=set[str])

    async def receive(self, inbound: UserAction) -> Outcome:
        """Durable when it returns. Raises StorageUnavailable: then the platform must not be acknowledged."""
        door = AccessCheck(policy=self.policy, inbox=self.inbox, pairings=self.pairings)
        if (refused := await door.refused(inbound)) is not None:
            return refused
        return await self.receive_trusted(inbound)

    async def receive_trusted(self, inbound: UserAction) -> Outcome:
        """As `receive`, from whoever has shown another right: the API's token, or the link to a browser."""
        match inbound:
            case RunButtonPressed():
                return await self._press(inbound)
            case CommandCalled(name="stop"):
                wish = StopRequested(
                    address=inbound.address,
                    dedupe_key=inbound.dedupe_key,
                    message_ref="",
                    person=inbound.person,
                    standing=inbound.standing,
                )
                return _told_of_stop(await self._accept(wish))
            case CommandCalled():
                return await self._answer(inbound)
            case (
                IncomingMessage()
                | MessageEdited()
                | MessageDeleted()
                | AskAnswered()
                | StopRequested()
            ):
                return await self._accept(inbound)
            case _:
                assert_never(inbound)

    async def _answer(self, called: CommandCalled) -> Outcome:
        """Claimed only when done: a word that a crash cuts off is done again when the platform repeats it."""
        key = called.dedupe_key
        if key in self.answering:
            return Outcome(is_ignored=True)
        self.answering.add(key)
        try:
            if await self._is_answered(key):
                return Outcome(is_ignored=True)
            outcome = await answer_command(called, self.desk)
            if outcome.run_id is not None:
                await self.stop(outcome.run_id, by=called.person)
            is_first = await self.inbox.claim(key, act=audit_entry_for(called, outcome))
            return outcome if is_first else Outcome(is_ignored=True)
        finally:
            self.answering.discard(key)

    async def _is_answered(self, key: str) -> bool:
        """Whoever begins first does it; another process that hears it gives that one a while, which may have died."""
        if not await self.inbox.is_claimed(key) and await self.inbox.claim(f"{key}:begun"):
            return False
        for _ in range(POLLS_MAX):
            if await self.inbox.is_claimed(key):
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def _accept(self, inbound: "Storable") -> Outcome:
        is_named = isinstance(inbound, IncomingMessage) and inbound.agent_id is not None
        roster = self.desk.roster if is_named else None
        arrival, decide = arrival_of(inbound, await roster.agents() if roster else None)
        receipt = await self.inbox.accept(arrival, decide)
        await self._wake(receipt)
        if receipt.is_duplicate:
            return Outcome(run_id=receipt.run_id, is_ignored=True)
        if isinstance(receipt.decision, Ignore):
            is_due = await self._is_due(inbound, receipt.decision.notice)
            return Outcome(notice=receipt.decision.notice if is_due else "", is_ignored=True)
        return Outcome(run_id=receipt.run_id)

    async def _is_due(self, inbound: "Storable", notice: str) -> bool:
        """A message that changes nothing is not claimed, and may come again; a click waits for an answer each time."""
        if not notice or not isinstance(inbound, IncomingMessage):
            return True
        return await self.inbox.claim(f"{inbound.dedupe_key}:told")

    async def _wake(self, receipt: Receipt) -> None:
        """The sweepers find what is lost between the transaction and here."""
        if receipt.is_duplicate or receipt.run_id is None:
            return
        if receipt.is_new_run:
            await self.queue.put(receipt.run_id)
        if receipt.answered_ask is not None:
            self.wake_delivery(receipt.answered_ask.run_id)
        if isinstance(receipt.decision, StopRun):
            await self.signals.send(receipt.run_id)
        self.wake_delivery(receipt.run_id)

    async def _press(self, pressed: RunButtonPressed) -> Outcome:
        if await self._is_of_another_place(pressed):
            return Outcome(notice="That is not a run of this conversation.", is_ignored=True)
        if pressed.action == "stop":
            return await self.stop(pressed.run_id, by=pressed.person)
        run_id = await self.stops.retry(
            pressed.run_id,
            pressed.dedupe_key,
            continues=pressed.action == "continue",
            by=pressed.person,
        )
        if run_id is None:
            return Outcome(
                notice="There is something newer in this thread already.", is_ignored=True
            )
        await self.queue.put(run_id)
        self.wake_delivery(run_id)
        return Outcome(run_id=run_id)

    async def _is_of_another_place(self, pressed: RunButtonPressed) -> bool:
        """Whoever may click here need not be admitted where the run is."""
        run = await self.desk.conversations.run(pressed.run_id)
        snapshot = await self.desk.conversations.snapshot(run.thread_id) if run else None
        return snapshot is not None and snapshot.thread.address != pressed.address

    async def stop(self, run_id: str, *, by: Person | None = None) -> Outcome:
        """Asks the run to stop, whoever runs it. `by`: recorded in the audit log."""
        if not await self.stops.request_stop(run_id, by=by):
            return Outcome(notice="It has ended already.", is_ignored=True)
        await self.signals.send(run_id)
        await self.queue.put(run_id)
        return Outcome(run_id=run_id)


async def stop_runs(reception: ActionReceiver, run_ids: Sequence[str]) -> int:
    """How many of them were asked to stop; those that are over are left alone."""
    stopped = [await reception.stop(run_id) for run_id in run_ids]
    return sum(not one.is_ignored for one in stopped)


Storable = IncomingMessage | MessageEdited | MessageDeleted | AskAnswered | StopRequested
Receive = Callable[[UserAction], Awaitable[Outcome]]


def arrival_of(
    inbound: Storable, agents: Mapping[str, AgentDefinition] | None = None
) -> tuple[InboxItem, Decide]:
    """The row to store, and the rule that decides about it. `agents` are those that can be asked for by name."""
    match inbound:
        case IncomingMessage():
            spoken = _arrival(inbound, "message", inbound.author, text=inbound.text)
            asking = replace(spoken, files=inbound.files, agent_id=inbound.agent_id)
            return asking, partial(decide_message, inbound, agents=agents)
        case MessageEdited():
            edit = _arrival(inbound, "edit", inbound.author, text=inbound.text)
            return edit, partial(decide_edit, inbound)
        case MessageDeleted():
            return _arrival(inbound, "delete", inbound.author), partial(decide_delete, inbound)
        case AskAnswered():
            answer = _arrival(inbound, "answer", inbound.person, text=inbound.value)
            return answer, partial(decide_answer, inbound)
        case StopRequested():
            return _arrival(inbound, "message", inbound.person), partial(decide_stop, inbound)
        case _:
            assert_never(inbound)


def _arrival(inbound: Storable, kind: InputKind, author: Person, *, text: str = "") -> InboxItem:
    message_ref = "" if isinstance(inbound, AskAnswered) else inbound.message_ref
    sent_at = datetime.now(UTC) if isinstance(inbound, StopRequested) else inbound.sent_at
    return InboxItem(
        dedupe_key=inbound.dedupe_key,
        address=inbound.address,
        kind=kind,
        author=author,
        text=text,
        message_ref=message_ref,
        sent_at=sent_at,
    )


def _told_of_stop(outcome: Outcome) -> Outcome:
    if outcome.is_ignored:
        return Outcome(notice="Nothing is running here.", is_ignored=True)
    return Outcome(notice="Stopping.", run_id=outcome.run_id)
