"""Bugs that are put into the program, to test that the histories find them."""

import inspect
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


def always(owner: object, name: str, result: object = None) -> Callable[[], Injection]:
    """Returns a bug: the function does nothing, and has the same result each time."""

    def answer(*_arguments: object, **_named: object) -> object:
        return result

    async def answer_later(*_arguments: object, **_named: object) -> object:
        return result

    is_async = inspect.iscoroutinefunction(getattr(owner, name))
    return lambda: (owner, name, answer_later if is_async else answer)


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


def _late_talk_is_lost() -> Injection:
    """What was said before a request that was read counts as read, whenever it comes."""
    whole = conversations.read_unread_talk
    read_until = select(func.max(thread_inputs.c.sent_at)).where(thread_inputs.c.taken_by.is_not(None))

    def read_unread_talk(connection: Connection, thread_id: str, before: datetime) -> tuple[ChatMessage, ...]:
        after = connection.execute(read_until.where(thread_inputs.c.thread_id == thread_id)).scalar()
        unread = whole(connection, thread_id, before)
        return tuple(one for one in unread if after is None or one.sent_at > after)

    return conversations, "read_unread_talk", read_unread_talk


def _words_in_memory() -> Injection:
    """`forget me` leaves what a worker has read for a run of somebody else."""
    whole = run_journal._hold

    def hold(connection: Connection, lease: Lease, *, locked: bool = True) -> object:
        return whole(connection, lease, locked=locked)._replace(attempt=lease.attempt)

    return run_journal, "_hold", hold


def _option_in_other_words() -> Injection:
    """An answer is stored as it was written, although it is an option."""

    def accept(*, answer: str | None = None, **others: Any) -> Accept:
        del answer
        return Accept(**others)

    return actions, "Accept", accept


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


_BUGS_AND_SEEDS: Mapping[str, tuple[Callable[[], Injection], int]] = {
    "lost-fence-check": (_lost_fence_check, 115),
    "missed-outbox-row": (_missed_outbox_row, 2),
    "double-claim": (_double_claim, 95),
    "blind-second-post": (_blind_second_post, 35),
    # an answer is posted although an earlier one is not
    "overtaking-answers": (always(run_delivery, "wait_for_earlier_runs"), 35),
    # an answer is dropped if a message comes before the end of its run
    "dropped-answer": (always(execute, "build_delivery_drafts", ()), 8),
    "ignored-denial": (_ignored_denial, 17),
    "lost-results": (_lost_results, 2),
    "old-edit-wins": (always(inbox, "store_newest_version", True), 93),  # an edit that comes late replaces a newer one
    # words answer a question that was not shown when they were sent
    "words-before-card": (always(actions, "was_shown_before", True), 32),
    # a stop that comes late ends a run that was requested after it
    "late-stop": (always(actions, "is_requested_after", False), 108),
    "approval-beside-question": (_approval_beside_question, 408),
    "unsigned-follow-ups": (_unsigned_follow_ups, 0),
    "sign-of-an-old-question": (_sign_of_an_old_question, 47),
    "endless-tries": (_endless_tries, 26),
    # whatever several people say to each other is for the agent
    "talk-is-taken": (always(ThreadParticipants, "is_alone", True), 12),
    # a user who is alone with the agent has to call it each time
    "lone-user-unheard": (always(ThreadParticipants, "is_alone", False), 8),
    # what people said to each other is not read with the next request
    "talk-is-lost": (always(conversations, "read_unread_talk", ()), 20),
    # an edit or a deletion that comes before its message changes nothing
    "late-change": (always(inbox, "read_newer_version"), 93),
    "old-talk": (always(inbox, "amend_overheard"), 12),  # what people said to each other is kept as it was first said
    "late-talk-is-lost": (_late_talk_is_lost, 227),
    # `forget me` leaves what runs have read
    "remembered-words": (always(conversations, "erase_messages", (0, "")), 30),
    "words-in-memory": (_words_in_memory, 436),
    # what begins with a mention of another bot in Slack is for the agent
    "mention-of-another-bot": (always(slack_parse, "begins_with_other_mention", False), 96),
    # a reply to another bot's message in Discord is for the agent
    "reply-to-another-bot": (always(discord_parse, "reply_author_id"), 37),
    "option-in-other-words": (_option_in_other_words, 10),
    # a run does not look at what it has spent
    "unbounded-run": (always(run_journal, "reserve_call", Reservation(Spending(), is_granted=True)), 7),
    "doubled-answer": (_doubled_answer, 20),
    "silent-limit": (_silent_limit, 7),
    "dropped-file": (always(outbox, "_deliver_file"), 4),  # a file that does not go with the answer is not posted
    # an edit or a deletion does not reach a message that no run has read
    "withdrawn-text": (always(inbox, "change_unread", (True, frozenset())), 7),
    "no-delivery-sweep": (always(run_delivery.RunDelivery, "_sweep"), 8),  # only a wake-up starts a delivery
}
"""Each bug with a seed that finds it. `scripts/histories --bugs` prints the seeds to replace."""
BUGS = {name: bug for name, (bug, _) in _BUGS_AND_SEEDS.items()}
SEEDS = {name: seed for name, (_, seed) in _BUGS_AND_SEEDS.items()}


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
