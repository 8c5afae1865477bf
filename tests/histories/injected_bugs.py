"""Bugs that are put into the program, to test that the histories find them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from bots.delivery import next_step, outbox, run_delivery
from bots.delivery.poster import Poster
from bots.discord.gateway import parse as discord_parse
from bots.inbound import actions
from bots.slack.events import parse as slack_parse
from core.domain import approval
from core.domain.budget import Reservation, Spending
from core.domain.errors import LeaseLost, SurfaceUnclear
from core.domain.events import RunFinished
from core.domain.messages import Message
from core.domain.threads import Accept, Ask, ChatMessage, FinishReason, Lease, ThreadParticipants
from core.loop import loop
from core.run import execute
from core.stores import Delivery, RunResult
from storage.sql.statements import CompiledStatement
from storage.sql.stores import conversations, inbox, run_claims, run_journal, run_transitions
from storage.sql.stores.conversations import SqlConversations
from storage.sql.tables import thread_inputs

Injection = tuple[object, str, object]
"""The module or class that gets the bug, the name of the function, and what replaces it."""


def _lost_fence_check() -> Injection:
    """The journal accepts writes of any worker while the thread has a run."""

    def hold(connection: Connection, lease: Lease, *, locked: bool = True) -> object:
        del locked
        thread = {"thread": lease.thread_id}
        for row in run_journal._HELD_UNLOCKED.fetch_tuples(connection, thread):
            return run_journal._Held(*row)
        raise LeaseLost("no run")

    return run_journal, "_hold", hold


def _missed_outbox_row() -> Injection:
    """A run that was taken over ends without its deliveries."""
    whole = run_journal.end_run

    def end_run(connection: Connection, lease: Lease, ending: RunResult) -> None:
        kept = ending if lease.attempt == 1 else replace(ending, deliveries=())
        whole(connection, lease, kept)

    return run_journal, "end_run", end_run


class _AlwaysFree:
    """Says that no living worker holds the run, and that its lease was not given out."""

    def __init__(self, statement: CompiledStatement) -> None:
        self._statement = statement

    def fetch_first(self, connection: Connection, row: Mapping[str, object]) -> object:
        found = self._statement.fetch_first(connection, row)
        if found and found["is_held"]:
            return {**found, "is_held": False, "fence": found["fence"] - 1}
        return found


def _double_claim() -> Injection:
    """Two living workers have the same lease."""
    return run_claims, "_CLAIMED", _AlwaysFree(run_claims._CLAIMED)


def _blind_second_post() -> Injection:
    """A message is posted again without a look for the first one."""

    async def looked_for(_poster: Poster, record: Delivery) -> Delivery:
        return record

    return Poster, "_looked_for", looked_for


def _overtaking_answers() -> Injection:
    async def wait_for_earlier_runs(*_arguments: object) -> None:
        return

    return run_delivery, "wait_for_earlier_runs", wait_for_earlier_runs


def _dropped_answer() -> Injection:
    """An answer is dropped if a message comes before the end of its run."""

    def build_delivery_drafts(*_arguments: object) -> tuple[()]:
        return ()

    return execute, "build_delivery_drafts", build_delivery_drafts


def _ignored_denial() -> Injection:
    """A call runs although it was denied."""

    def is_allowed(ask: Ask) -> bool:
        return ask.state == "answered"

    return approval, "is_allowed", is_allowed


def _lost_results() -> Injection:
    """The results of tools are not stored if another worker had begun the run."""
    whole = run_journal._add_messages

    def add_messages(connection: Connection, lease: Lease, added: Sequence[Message], *others: Any) -> None:
        kept = [one for one in added if lease.attempt == 1 or one.type != "tool"]
        whole(connection, lease, kept, *others)

    return run_journal, "_add_messages", add_messages


def _old_edit_wins() -> Injection:
    """An edit that comes late replaces a newer one."""

    def store_newest_version(*_arguments: object) -> bool:
        return True

    return inbox, "store_newest_version", store_newest_version


def _words_before_card() -> Injection:
    """Words answer a question that was not shown when they were sent."""

    def was_shown_before(*_arguments: object) -> bool:
        return True

    return actions, "was_shown_before", was_shown_before


def _late_stop() -> Injection:
    """A stop that comes late ends a run that was requested after it."""

    def is_requested_after(*_arguments: object) -> bool:
        return False

    return actions, "is_requested_after", is_requested_after


def _approval_beside_question() -> Injection:
    """A run asks for an approval while an older question is open, which the database refuses."""
    whole = run_journal.suspend_run
    withdraw = run_transitions.withdraw_ask_of_thread

    def suspend_run(connection: Connection, lease: Lease, asked: approval.Approval) -> None:
        run_transitions.withdraw_ask_of_thread = lambda *_arguments: None
        try:
            whole(connection, lease, asked)
        finally:
            run_transitions.withdraw_ask_of_thread = withdraw

    return run_journal, "suspend_run", suspend_run


def _unsigned_follow_ups() -> Injection:
    """Only the request shows how a run ended."""

    async def message_refs_to_mark(self: SqlConversations, run_id: str) -> tuple[str, ...]:
        run = await self.run(run_id)
        return (run.request_ref,) if run else ()

    return SqlConversations, "message_refs_to_mark", message_refs_to_mark


def _sign_of_an_old_question() -> Injection:
    """A request shows a question for ever, although it is withdrawn."""
    whole = next_step.final_reactions

    def final_reactions(end: next_step.RunEnd) -> dict[str, Any]:
        return whole(replace(end, has_open_question=True))

    return next_step, "final_reactions", final_reactions


def _endless_tries() -> Injection:
    """A message that the platform never takes is tried for ever."""

    async def record_refusal(*_arguments: object) -> None:
        raise SurfaceUnclear("tried again")

    return Poster, "record_refusal", record_refusal


def _talk_is_taken() -> Injection:
    """Whatever several people say to each other is for the agent."""

    def is_alone(*_arguments: object) -> bool:
        return True

    return ThreadParticipants, "is_alone", is_alone


def _lone_user_unheard() -> Injection:
    """A user who is alone with the agent has to call it each time."""

    def is_alone(*_arguments: object) -> bool:
        return False

    return ThreadParticipants, "is_alone", is_alone


def _late_change() -> Injection:
    """An edit or a deletion that comes before its message changes nothing."""

    def read_newer_version(*_arguments: object) -> None:
        return

    return inbox, "read_newer_version", read_newer_version


def _old_talk() -> Injection:
    """What people said to each other is kept as it was first said."""

    def amend_heard(*_arguments: object) -> None:
        return

    return inbox, "amend_overheard", amend_heard


def _talk_is_lost() -> Injection:
    """What people said to each other is not read with the next request."""

    def read_unread_talk(*_arguments: object) -> tuple[()]:
        return ()

    return conversations, "read_unread_talk", read_unread_talk


def _late_talk_is_lost() -> Injection:
    """What was said before a request that was read counts as read, whenever it comes."""
    whole = conversations.read_unread_talk
    read_until = select(func.max(thread_inputs.c.sent_at)).where(thread_inputs.c.taken_by.is_not(None))

    def read_unread_talk(connection: Connection, thread_id: str, before: datetime) -> tuple[ChatMessage, ...]:
        after = connection.execute(read_until.where(thread_inputs.c.thread_id == thread_id)).scalar()
        unread = whole(connection, thread_id, before)
        return tuple(one for one in unread if after is None or one.sent_at > after)

    return conversations, "read_unread_talk", read_unread_talk


def _remembered_words() -> Injection:
    """`forget me` leaves what runs have read."""

    def erase_messages(*_arguments: object, **_named: object) -> tuple[int, str]:
        return 0, ""

    return conversations, "erase_messages", erase_messages


def _words_in_memory() -> Injection:
    """`forget me` leaves what a worker has read for a run of somebody else."""
    whole = run_journal._hold

    def hold(connection: Connection, lease: Lease, *, locked: bool = True) -> object:
        return whole(connection, lease, locked=locked)._replace(attempt=lease.attempt)

    return run_journal, "_hold", hold


def _mention_of_another_bot() -> Injection:
    """What begins with a mention of another bot in Slack is for the agent."""

    def begins_with_other_mention(*_arguments: object) -> bool:
        return False

    return slack_parse, "begins_with_other_mention", begins_with_other_mention


def _reply_to_another_bot() -> Injection:
    """A reply to another bot's message in Discord is for the agent."""

    def reply_author_id(*_arguments: object) -> None:
        return

    return discord_parse, "reply_author_id", reply_author_id


def _option_in_other_words() -> Injection:
    """An answer is stored as it was written, although it is an option."""

    def accept(*, answer: str | None = None, **others: Any) -> Accept:
        del answer
        return Accept(**others)

    return actions, "Accept", accept


def _unbounded_run() -> Injection:
    """A run does not look at what it has spent."""

    def reserve(*_arguments: object) -> Reservation:
        return Reservation(Spending(), is_granted=True)

    return run_journal, "reserve_call", reserve


def _doubled_answer() -> Injection:
    """The message in which the answer was written does not count as the answer, which is posted again."""
    whole = Poster.finish_stream

    async def finish_stream(self: Poster, *arguments: Any) -> bool:
        await whole(self, arguments[0], None, *arguments[2:])
        return False

    return Poster, "finish_stream", finish_stream


def _silent_limit() -> Injection:
    """A run that a limit has ended cannot go on."""

    def cut_off(reason: FinishReason, message: str, **_others: object) -> RunFinished:
        del reason
        return RunFinished(status="completed", finish_reason="stop", message=message)

    return loop, "_cut_off", cut_off


def _dropped_file() -> Injection:
    """A file that does not go with the answer is not posted."""

    async def deliver_file(*_arguments: object) -> None:
        return

    return outbox, "_deliver_file", deliver_file


def _no_delivery_sweep() -> Injection:
    """Only a wake-up starts a delivery."""

    async def sweep(*_arguments: object) -> None:
        return

    return run_delivery.RunDelivery, "_sweep", sweep


def _withdrawn_text() -> Injection:
    """An edit or a deletion does not reach a message that no run has read."""

    def change_unread(*_arguments: object) -> tuple[bool, frozenset[str]]:
        return True, frozenset()

    return inbox, "change_unread", change_unread


BUGS: Mapping[str, Callable[[], Injection]] = {
    "lost-fence-check": _lost_fence_check,
    "missed-outbox-row": _missed_outbox_row,
    "double-claim": _double_claim,
    "blind-second-post": _blind_second_post,
    "overtaking-answers": _overtaking_answers,
    "dropped-answer": _dropped_answer,
    "ignored-denial": _ignored_denial,
    "lost-results": _lost_results,
    "old-edit-wins": _old_edit_wins,
    "words-before-card": _words_before_card,
    "late-stop": _late_stop,
    "approval-beside-question": _approval_beside_question,
    "unsigned-follow-ups": _unsigned_follow_ups,
    "sign-of-an-old-question": _sign_of_an_old_question,
    "endless-tries": _endless_tries,
    "talk-is-taken": _talk_is_taken,
    "lone-user-unheard": _lone_user_unheard,
    "talk-is-lost": _talk_is_lost,
    "late-change": _late_change,
    "old-talk": _old_talk,
    "late-talk-is-lost": _late_talk_is_lost,
    "remembered-words": _remembered_words,
    "words-in-memory": _words_in_memory,
    "mention-of-another-bot": _mention_of_another_bot,
    "reply-to-another-bot": _reply_to_another_bot,
    "option-in-other-words": _option_in_other_words,
    "unbounded-run": _unbounded_run,
    "doubled-answer": _doubled_answer,
    "silent-limit": _silent_limit,
    "dropped-file": _dropped_file,
    "withdrawn-text": _withdrawn_text,
    "no-delivery-sweep": _no_delivery_sweep,
}
SEEDS: Mapping[str, int] = {
    "lost-fence-check": 115,
    "missed-outbox-row": 2,
    "double-claim": 95,
    "blind-second-post": 35,
    "overtaking-answers": 35,
    "dropped-answer": 8,
    "ignored-denial": 17,
    "lost-results": 2,
    "old-edit-wins": 93,
    "words-before-card": 32,
    "late-stop": 108,
    "approval-beside-question": 408,
    "unsigned-follow-ups": 0,
    "sign-of-an-old-question": 47,
    "endless-tries": 26,
    "talk-is-taken": 12,
    "lone-user-unheard": 8,
    "talk-is-lost": 20,
    "late-change": 93,
    "old-talk": 12,
    "late-talk-is-lost": 227,
    "remembered-words": 30,
    "words-in-memory": 436,
    "mention-of-another-bot": 96,
    "reply-to-another-bot": 37,
    "option-in-other-words": 10,
    "unbounded-run": 7,
    "doubled-answer": 20,
    "silent-limit": 7,
    "dropped-file": 4,
    "withdrawn-text": 7,
    "no-delivery-sweep": 8,
}
"""A seed that finds each bug. `scripts/histories --bugs` prints the lines to replace."""


@contextmanager
def inject(bug: str | None, bugs: Mapping[str, Callable[[], Injection]] = BUGS) -> Generator[None, None, None]:
    """Context manager: the program has the bug inside the block."""
    if bug is None:
        yield
        return
    owner, name, broken = bugs[bug]()
    whole = getattr(owner, name)
    setattr(owner, name, broken)
    try:
        yield
    finally:
        setattr(owner, name, whole)
