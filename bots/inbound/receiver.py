"""Receives user actions: checks access, removes duplicates, stores the action, wakes workers and answers commands."""

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
"""Maximum number of polls. All polls together take less than the three seconds that platforms allow for a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionReceiver:
    """Stores user actions, then wakes the workers and the delivery of runs.

    `wake_delivery` is called with the ID of a run that has new content to show. `answering` holds the dedupe keys of
    commands that are being answered.
    """

    inbox: Inbox
    stops: StopRequests
    queue: RunQueue
    signals: StopSignals
    policy: AccessPolicy
    commands: CommandDeps
    wake_delivery: Callable[[str], None]
    pairings: Pairings | None = None
    answering: set[str] = field(default_factory=set[str])

    async def receive(self, action: UserAction) -> Outcome:
        """Checks access, then stores the action durably.

        Raises StorageUnavailable if the action is not stored. The caller must then not acknowledge the event to the
        platform, so that the platform sends it again.
        """
        access = AccessCheck(policy=self.policy, inbox=self.inbox, pairings=self.pairings)
        if (refusal := await access.find_refusal(action)) is not None:
            return refusal
        return await self.receive_trusted(action)

    async def receive_trusted(self, action: UserAction) -> Outcome:
        """Stores the action without an access check. Only for callers that present the API token or a signed link."""
        match action:
            case RunButtonPressed():
                return await self._handle_button(action)
            case CommandCalled(name="stop"):
                stop = StopRequested(
                    address=action.address,
                    dedupe_key=action.dedupe_key,
                    message_ref="",
                    person=action.person,
                    actor=action.actor,
                )
                return _stop_outcome(await self._accept(stop))
            case CommandCalled():
                return await self._answer(action)
            case (
                IncomingMessage()
                | MessageEdited()
                | MessageDeleted()
                | AskAnswered()
                | StopRequested()
            ):
                return await self._accept(action)
            case _:
                assert_never(action)

    async def _answer(self, called: CommandCalled) -> Outcome:
        """Answers a command and then claims its dedupe key.

        The key is claimed last, so that a redelivered command is answered again after a crash.
        """
        key = called.dedupe_key
        if key in self.answering:
            return Outcome(is_ignored=True)
        self.answering.add(key)
        try:
            if await self._is_answered(key):
                return Outcome(is_ignored=True)
            outcome = await answer_command(called, self.commands)
            if outcome.run_id is not None:
                await self.stop(outcome.run_id, by=called.person)
            is_first = await self.inbox.claim(key, act=audit_entry_for(called, outcome))
            return outcome if is_first else Outcome(is_ignored=True)
        finally:
            self.answering.discard(key)

    async def _is_answered(self, key: str) -> bool:
        """Whether another process has answered the command with this dedupe key.

        The first process to ask gets False and answers. Later processes wait for that answer for up to two seconds.
        If it does not come, they get False too, because the first process may have died.
        """
        if not await self.inbox.is_claimed(key) and await self.inbox.claim(f"{key}:begun"):
            return False
        for _ in range(POLLS_MAX):
            if await self.inbox.is_claimed(key):
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def _accept(self, action: "Storable") -> Outcome:
        is_named = isinstance(action, IncomingMessage) and action.agent_id is not None
        roster = self.commands.roster if is_named else None
        arrival, decide = arrival_of(action, await roster.agents() if roster else None)
        receipt = await self.inbox.accept(arrival, decide)
        await self._wake(receipt)
        if receipt.is_duplicate:
            return Outcome(run_id=receipt.run_id, is_ignored=True)
        if isinstance(receipt.decision, Ignore):
            is_shown = await self._is_notice_due(action, receipt.decision.notice)
            return Outcome(notice=receipt.decision.notice if is_shown else "", is_ignored=True)
        return Outcome(run_id=receipt.run_id)

    async def _is_notice_due(self, action: "Storable", notice: str) -> bool:
        """Whether to show the notice about an ignored action.

        A notice about a message is shown only once, even if the message is redelivered. Clicks always get a notice.
        """
        if not notice or not isinstance(action, IncomingMessage):
            return True
        return await self.inbox.claim(f"{action.dedupe_key}:told")

    async def _wake(self, receipt: Receipt) -> None:
        """Wakes the worker and the delivery after an action is stored.

        If the process dies before this call, periodic jobs find the run.
        """
        if receipt.is_duplicate or receipt.run_id is None:
            return
        if receipt.is_new_run:
            await self.queue.put(receipt.run_id)
        if receipt.answered_ask is not None:
            self.wake_delivery(receipt.answered_ask.run_id)
        if isinstance(receipt.decision, StopRun):
            await self.signals.send(receipt.run_id)
        self.wake_delivery(receipt.run_id)

    async def _handle_button(self, button: RunButtonPressed) -> Outcome:
        if await self._is_from_another_thread(button):
            return Outcome(notice="That is not a run of this conversation.", is_ignored=True)
        if button.action == "stop":
            return await self.stop(button.run_id, by=button.person)
        run_id = await self.stops.retry(
            button.run_id,
            button.dedupe_key,
            continues=button.action == "continue",
            by=button.person,
        )
        if run_id is None:
            return Outcome(
                notice="There is something newer in this thread already.", is_ignored=True
            )
        await self.queue.put(run_id)
        self.wake_delivery(run_id)
        return Outcome(run_id=run_id)

    async def _is_from_another_thread(self, button: RunButtonPressed) -> bool:
        """Whether the button's run belongs to another thread, to which the user may have no access."""
        run = await self.commands.conversations.run(button.run_id)
        snapshot = await self.commands.conversations.snapshot(run.thread_id) if run else None
        return snapshot is not None and snapshot.thread.address != button.address

    async def stop(self, run_id: str, *, by: Person | None = None) -> Outcome:
        """Requests that the run stop, even if another process executes it. `by` is recorded in the audit log."""
        if not await self.stops.request_stop(run_id, by=by):
            return Outcome(notice="It has ended already.", is_ignored=True)
        await self.signals.send(run_id)
        await self.queue.put(run_id)
        return Outcome(run_id=run_id)


async def stop_runs(receiver: ActionReceiver, run_ids: Sequence[str]) -> int:
    """Requests that the runs stop. Returns how many of them were still active."""
    outcomes = [await receiver.stop(run_id) for run_id in run_ids]
    return sum(not one.is_ignored for one in outcomes)


Storable = IncomingMessage | MessageEdited | MessageDeleted | AskAnswered | StopRequested
Receive = Callable[[UserAction], Awaitable[Outcome]]


def arrival_of(
    action: Storable, agents: Mapping[str, AgentDefinition] | None = None
) -> tuple[InboxItem, Decide]:
    """Returns the inbox item to store for an action, and the rule that decides how the action is handled.

    `agents` are the agents that a message can request by name.
    """
    match action:
        case IncomingMessage():
            arrival = _arrival(action, "message", action.author, text=action.text)
            message = replace(arrival, files=action.files, agent_id=action.agent_id)
            return message, partial(decide_message, action, agents=agents)
        case MessageEdited():
            edit = _arrival(action, "edit", action.author, text=action.text)
            return edit, partial(decide_edit, action)
        case MessageDeleted():
            return _arrival(action, "delete", action.author), partial(decide_delete, action)
        case AskAnswered():
            answer = _arrival(action, "answer", action.person, text=action.value)
            return answer, partial(decide_answer, action)
        case StopRequested():
            return _arrival(action, "message", action.person), partial(decide_stop, action)
        case _:
            assert_never(action)


def _arrival(action: Storable, kind: InputKind, author: Person, *, text: str = "") -> InboxItem:
    message_ref = "" if isinstance(action, AskAnswered) else action.message_ref
    sent_at = datetime.now(UTC) if isinstance(action, StopRequested) else action.sent_at
    return InboxItem(
        dedupe_key=action.dedupe_key,
        address=action.address,
        kind=kind,
        author=author,
        text=text,
        message_ref=message_ref,
        sent_at=sent_at,
    )


def _stop_outcome(outcome: Outcome) -> Outcome:
    if outcome.is_ignored:
        return Outcome(notice="Nothing is running here.", is_ignored=True)
    return Outcome(notice="Stopping.", run_id=outcome.run_id)
