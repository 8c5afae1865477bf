"""Receives user actions: checks access, removes duplicates, stores the action, wakes workers and answers commands."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import assert_never

from bots.inbound.access import DISCORD_DIRECT_MESSAGES, AccessCheck, AccessPolicy
from bots.inbound.actions import (
    CALLED_LONG_AGO,
    NO_ANSWER,
    CommandCalled,
    FeedbackGiven,
    Outcome,
    RunButtonPressed,
    UserAction,
    conversation_link,
    decide_action,
    is_late_action,
    stop_request_from,
)
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.forget import answer_without_conversation
from bots.inbound.commands.suggestions import Suggestion
from bots.inbound.commands.table import COMMANDS, answer_command, audit_entry_for, suggest_values
from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested, StoredAction
from core.domain.pairing import Pairings
from core.domain.threads import Address, FollowMode, Hold, Ignore, Overhear, Person, Receipt, Run, StopRun, Thread
from core.ports import RunQueue, StopSignals
from core.stores import Feedback, FeedbackStore, Inbox, RunRequests

log = logging.getLogger(__name__)

NO_DETAILS = "The steps of this run are no longer kept: they are deleted a day after its end."
POLL_SECONDS = 0.2
POLLS_MAX = 10
"""Maximum number of polls. All polls together take less than the three seconds that platforms allow for a response."""
PREPARE_SECONDS_MAX = 30.0
HOLD_SECONDS = 0.2
HOLDS_MAX = 7
"""How often a message waits HOLD_SECONDS for a question that is being posted. The total is shorter than platforms wait
for an acknowledgement."""
IN_NEWEST = "\n\nYou wrote outside of a conversation, so this is about [your newest one]({})."
NOT_OF_THIS = "That is not a run of this conversation."


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionReceiver:
    """Stores user actions, then wakes the workers and the delivery of runs.

    `wake_delivery` is called with the ID of a run that has new content to show. `reopen_delivery` makes a run's
    messages that the platform refused pending again, and returns whether there were any. `answering` holds the dedupe
    keys of commands that are being answered. `follow_modes` holds the configured follow mode of each channel by its ID,
    and the default under ""."""

    inbox: Inbox
    stops: RunRequests
    queue: RunQueue
    signals: StopSignals
    policy: AccessPolicy
    commands: CommandDeps
    wake_delivery: Callable[[str], None]
    reopen_delivery: Callable[[str], Awaitable[bool]]
    pairings: Pairings
    feedback: FeedbackStore
    follow_modes: Mapping[str, FollowMode]
    answering: set[str] = field(default_factory=set[str])

    @property
    def _access(self) -> AccessCheck:
        return AccessCheck(policy=self.policy, inbox=self.inbox, pairings=self.pairings)

    async def admits(self, action: UserAction) -> bool:
        """Returns whether the user has access. Lets callers check access before they parse an action's content."""
        return await self._access.admits(action)

    async def suggest_values(self, called: CommandCalled) -> Sequence[Suggestion]:
        """Returns suggested values for the option that the user is filling in, or nothing if the user has no access."""
        return await suggest_values(called, self.commands) if await self.admits(called) else ()

    async def receive(self, action: UserAction) -> Outcome:
        """Checks access, then stores the action durably.

        Raises StorageUnavailable if the action is not stored. The caller must then not acknowledge the event to the
        platform, so that the platform sends it again."""
        if (refusal := await self._find_refusal(action)) is not None:
            if isinstance(action, IncomingMessage):
                await self.commands.conversations.note_author(action.address, action.person)
            return refusal
        outcome = await self.receive_trusted(action)
        # a notice could trigger the other app again and start a loop
        return replace(outcome, notice="") if action.actor.app_ids else outcome

    async def _find_refusal(self, action: UserAction) -> Outcome | None:
        """Returns the outcome for a user without access, or None if the user has access.

        A button may be in the requester's direct messages, because the bot could not post in the run's thread. It
        requires access to that thread only."""
        if not isinstance(action, RunButtonPressed):
            return await self._access.find_refusal(action)
        found = await self.commands.conversations.run_with_thread(action.run_id)
        if found is None or found[1].address == action.address or not _is_for(action, *found):
            return await self._access.find_refusal(action)
        actor, access = replace(action.actor, is_direct=False), self._access
        is_discord = action.address.platform == "discord"
        if self.policy.roles and action.actor.is_direct and is_discord:
            # in direct messages, Discord reports no roles; the person had a listed role when they requested the run
            access = replace(access, policy=replace(self.policy, users=("*",)))
        moved = replace(action, address=found[1].address, actor=actor)
        return await access.find_refusal(moved)

    async def receive_trusted(self, action: UserAction) -> Outcome:
        """Stores the action without an access check. Only for callers that have authenticated the sender in another
        way."""
        if isinstance(action, CommandCalled) and (there := await self._newest_below(action)) is not None:
            message = action.message and replace(action.message, address=there)
            outcome = await self.receive_trusted(replace(action, address=there, message=message))
            is_meant = outcome.notice != "" and COMMANDS[action.name].is_about_conversation
            where = IN_NEWEST.format(conversation_link(there)) if is_meant else ""
            return replace(outcome, notice=outcome.notice + where)
        match action:
            case RunButtonPressed():
                return await self._handle_button(action)
            case FeedbackGiven():
                found = await self.commands.conversations.run_with_thread(action.run_id)
                if found is None or found[1].address != action.address:
                    return Outcome(notice=NOT_OF_THIS, is_ignored=True)
                await self.feedback.record(
                    Feedback(
                        run_id=action.run_id,
                        thread_id=found[1].thread_id,
                        person=action.person,
                        is_good=action.is_good,
                        reason=action.text,
                        given_at=datetime.now(UTC),
                    )
                )
                return Outcome(run_id=action.run_id)
            case CommandCalled(name="stop"):
                outcome = await self._accept(stop_request_from(action))
                if not outcome.is_ignored:
                    return Outcome(notice="Stopping.", run_id=outcome.run_id)
                conversations = self.commands.conversations
                if outcome.run_id is None and not await conversations.has_thread(action.address):
                    return replace(await answer_without_conversation(action, conversations), is_ignored=True)
                # if there is a run, the same stop request was received before
                return Outcome(notice="" if outcome.run_id else "Nothing is running here.", is_ignored=True)
            case CommandCalled():
                if (message := await self._answer_meant(action)) is not None:
                    return await self._accept(message)
                return await self._answer(action)
            case IncomingMessage():
                below = None if action.agent_id else await self._newest_below(action)
                # first try the message as an answer to the open question of that conversation
                return await (self._accept(replace(action, address=below), action) if below else self._accept(action))
            case MessageEdited() | MessageDeleted() | AskAnswered() | StopRequested():
                return await self._accept(action)
            case _:
                assert_never(action)

    async def _newest_below(self, action: CommandCalled | IncomingMessage) -> Address | None:
        """Returns the address of the person's newest conversation in a direct message on Slack, or None.

        Returns None unless they wrote at the top level of the direct message, where each message would begin a new
        conversation."""
        message = action.message if isinstance(action, CommandCalled) else action
        place, conversations = action.address, self.commands.conversations
        is_top = place.thread_key in ("", message.message_ref if message else "")
        if not (place.platform == "slack" and place.is_direct and is_top) or await conversations.has_thread(place):
            return None
        newest = await conversations.runs_of_person(
            place.platform, place.workspace_id, action.person.person_id, limit=1, channel_id=place.channel_id
        )
        return newest[0][1].address if newest else None

    async def _answer(self, called: CommandCalled) -> Outcome:
        """Answers a command and then claims its dedupe key.

        The key is claimed last, so that a redelivered command is answered again after a crash."""
        key = called.dedupe_key
        if key in self.answering:
            return Outcome(is_ignored=True)
        self.answering.add(key)
        try:
            if await self._is_answered(key):
                return Outcome(is_ignored=True)
            is_late = is_late_action(called, datetime.now(UTC))
            outcome = Outcome(notice=CALLED_LONG_AGO) if is_late else await answer_command(called, self.commands)
            if outcome.run_id is not None:
                await self.stop_run(outcome.run_id, by=called.person)
            is_first = await self.inbox.claim_key(key, act=audit_entry_for(called, outcome))
            return outcome if is_first else Outcome(is_ignored=True)
        finally:
            self.answering.discard(key)

    async def _answer_meant(self, called: CommandCalled) -> IncomingMessage | None:
        """Returns the message of a command if its words are not a command but the answer to the open question, such as
        "use Python", "new" or "budget 2027". Otherwise returns None."""
        if called.message is None:
            return None
        snapshot = await self.commands.conversations.find(called.address)
        if snapshot is None or snapshot.open_ask is None:
            return None
        options = map(str.casefold, snapshot.open_ask.options)
        is_option = called.message.text.strip().casefold() in options
        is_agent = called.name != "use" or called.argument.strip("`").lower() in (
            await self.commands.roster.current_definitions()
        )
        is_written_right = COMMANDS[called.name].match_words(called.argument.split()) is not None
        if is_written_right and is_agent and not is_option:
            return None
        return replace(called.message, actor=called.actor, files=called.files, is_missed=called.is_missed)

    async def _is_answered(self, key: str) -> bool:
        """Whether another process has answered the command with this dedupe key.

        The first process that calls this gets False and answers the command. Later processes wait up to two seconds for
        that answer. If it does not come, they get False too, because the first process may have died."""
        if not await self.inbox.is_key_claimed(key) and await self.inbox.claim_key(f"{key}:begun"):
            return False
        for _ in range(POLLS_MAX):
            if await self.inbox.is_key_claimed(key):
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def _accept(self, action: StoredAction, otherwise: IncomingMessage | None = None) -> Outcome:
        """Stores the action. If `otherwise` is given and the action answers no open question, stores `otherwise`
        instead."""
        is_named = isinstance(action, IncomingMessage) and action.agent_id is not None
        agents = await self.commands.roster.current_definitions() if is_named else None
        modes = self.follow_modes
        mode = modes.get(action.address.settings_channel_id) or modes[""]
        # over the HTTP API everyone is an admin, because they present the API token
        is_admin = action.address.platform == "api" or self.policy.is_admin(
            action.address.workspace_id, action.person.person_id, action.actor
        )
        rule = partial(
            decide_action,
            action,
            agents=agents,
            follow_mode=mode,
            is_admin=is_admin,
            is_late=is_late_action(action, datetime.now(UTC)),
            must_answer=otherwise is not None,
        )
        receipt = await self.inbox.accept_action(action, partial(rule, may_hold=True))
        for holds_left in reversed(range(HOLDS_MAX)):
            if not isinstance(receipt.decision, Hold):
                break
            await asyncio.sleep(HOLD_SECONDS)
            receipt = await self.inbox.accept_action(action, partial(rule, may_hold=holds_left > 0))
        if receipt.newer_version is not None and isinstance(action, IncomingMessage):
            text, edited_at = receipt.newer_version
            return await self._accept(replace(action, text=text, edited_at=edited_at), otherwise)
        if otherwise is not None and receipt.decision is NO_ANSWER:
            return await self._accept(otherwise)
        await self._wake(receipt, action)
        if receipt.is_duplicate:
            return Outcome(run_id=receipt.run_id, is_ignored=True)
        if isinstance(receipt.decision, Overhear):
            return Outcome(is_ignored=True)
        if isinstance(receipt.decision, Ignore):
            notice = receipt.decision.notice
            is_in_chat = isinstance(action, IncomingMessage) and action.address.platform != "api"
            if notice and is_in_chat and not await self.inbox.claim_key(f"{action.dedupe_key}:told"):
                notice = ""  # the notice was shown before the message was redelivered
            return Outcome(notice=notice, is_ignored=True)
        return Outcome(run_id=receipt.run_id)

    async def _wake(self, receipt: Receipt, action: StoredAction) -> None:
        """Wakes the worker and the delivery. If the process dies before this call, periodic jobs find the run."""
        if receipt.is_duplicate or receipt.run_id is None:
            return
        if receipt.answered_ask is not None:
            self.wake_delivery(receipt.answered_ask.run_id)
        if isinstance(receipt.decision, StopRun):
            await self.signals.send(receipt.run_id)
        self.wake_delivery(receipt.run_id)
        if receipt.is_new_run:
            if isinstance(action, IncomingMessage) and action.prepare is not None:
                try:
                    async with asyncio.timeout(PREPARE_SECONDS_MAX):
                        await action.prepare()
                except Exception:  # delivery prepares the thread again when it posts the run's first message
                    log.exception("run %s begins unprepared", receipt.run_id)
            await self.queue.put(receipt.run_id)

    async def _handle_button(self, button: RunButtonPressed) -> Outcome:
        found = await self.commands.conversations.run_with_thread(button.run_id)
        # the user may press it elsewhere if they requested the run; others may have no access to its thread
        if found is not None and found[1].address != button.address and not _is_for(button, *found):
            return Outcome(notice=NOT_OF_THIS, is_ignored=True)
        if button.action == "details":
            return Outcome(notice=await self.commands.describe_run(button.run_id) or NO_DETAILS)
        is_stop = button.action == "stop"
        stopped = None
        if is_stop:
            stopped = await self.stop_run(button.run_id, by=button.person, at=button.sent_at)
        # a status that could not be edited keeps its Stop button after the end of the run
        may_reopen = button.action == "retry" or (stopped is not None and stopped.is_ignored)
        if may_reopen and await self.reopen_delivery(button.run_id):
            self.wake_delivery(button.run_id)
            return Outcome(run_id=button.run_id)
        if stopped is not None:
            return stopped
        run_id = await self.stops.retry_run(
            button.run_id, button.dedupe_key, continues=button.action == "continue", by=button.person, at=button.sent_at
        )
        if run_id is None:
            return Outcome(notice="There is something newer in this thread already.", is_ignored=True)
        await self.queue.put(run_id)
        self.wake_delivery(run_id)
        return Outcome(run_id=run_id)

    async def stop_run(self, run_id: str, *, by: Person | None = None, at: datetime | None = None) -> Outcome:
        """Requests that the run stop, even if another process executes it.

        The stop covers what was sent until `at`, or until now if `at` is None. `by` is recorded in the audit log."""
        if not await self.stops.request_stop(run_id, by=by, at=at):
            return Outcome(notice="It has ended already.", is_ignored=True)
        await self.signals.send(run_id)
        await self.queue.put(run_id)
        self.wake_delivery(run_id)
        return Outcome(run_id=run_id)


def _is_for(button: RunButtonPressed, run: Run, thread: Thread) -> bool:
    """Whether the user requested the run, on the same platform and in the same workspace."""
    there, here = thread.address, button.address
    return (
        run.requester is not None
        and run.requester.person_id == button.person.person_id
        and there.platform == here.platform
        and here.workspace_id in (there.workspace_id, DISCORD_DIRECT_MESSAGES)
    )


async def stop_runs(receiver: ActionReceiver, run_ids: Sequence[str]) -> int:
    """Requests that the runs stop. Returns how many of them were still active."""
    outcomes = [await receiver.stop_run(run_id) for run_id in run_ids]
    return sum(not one.is_ignored for one in outcomes)


SuggestValues = Callable[[CommandCalled], Awaitable[Sequence[Suggestion]]]
"""Returns suggested values for the option that the user is filling in."""
