"""The chat command `forget`, which deletes conversations or what is stored about a person."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, Outcome, conversation_link
from bots.inbound.commands.admin import is_answer_public
from core.domain.errors import SurfaceError
from core.domain.outside_text import escape_markdown, single_line
from core.domain.threads import Address, Person, Selection
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import Scope
from core.ports import ChatHistory, OutgoingFile, SandboxProvider, StopSignals
from core.stores import Conversations, Deliveries, RunRequests, Schedules

log = logging.getLogger(__name__)

NOT_HERE = "There is no conversation with me here yet. Mention me or write to me to start one."
NEWEST = "\nYour newest conversations, in each of which you can write `{}` after a mention of me:\n{}"
NEWEST_RUNS = 20
NEWEST_SHOWN = 5


async def answer_without_conversation(called: CommandCalled, conversations: Conversations) -> Outcome:
    """Returns a notice that the command needs a conversation. If only this user sees the notice, it contains links to
    the user's newest conversations."""
    place = called.address
    if is_answer_public(called):
        return Outcome(notice=NOT_HERE)
    runs = await conversations.runs_of_person(
        place.platform, place.workspace_id, called.person.person_id, limit=NEWEST_RUNS
    )
    newest: dict[str, str] = {}
    for run, thread, request in runs:
        words = escape_markdown(single_line(request, 60)) or "…"
        line = f"- [{run.created_at:%Y-%m-%d %H:%M} UTC]({conversation_link(thread.address)}): {words}"
        newest.setdefault(thread.thread_id, line)
    lines = "\n".join(list(newest.values())[:NEWEST_SHOWN])
    return Outcome(notice=NOT_HERE + (NEWEST.format(called.name, lines) if lines else ""))


NOT_YOURS = "Only people who have worked with me here, whoever started this thread, and admins of this bot can do that."
FORGET_ME = (
    "This removes your messages, your name, your schedules, your pairing and your share of the usage figures from all"
    " conversations with me{}. Files that you attached, summaries of long conversations and what others quoted stay"
    " until `forget` deletes their conversation. Write `forget me yes` to me to do it; it cannot be undone."
)
CLOSE_POLLS_MAX = 50
CLOSE_POLL_SECONDS = 0.1
Upload = Callable[[Address, OutgoingFile], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetDeps:
    """Dependencies of the commands `forget` and `export`.

    `histories` holds the thread history of each platform by name. `upload` posts a file into a thread and raises
    SurfaceError."""

    conversations: Conversations
    sandboxes: SandboxProvider | None
    stops: RunRequests
    signals: StopSignals
    deliveries: Deliveries
    knowledge_base: KnowledgeBase
    histories: Mapping[str, ChatHistory]
    schedules: Schedules
    upload: Upload
    wake_delivery: Callable[[str], None]


async def answer_forget(called: CommandCalled, deps: ForgetDeps, policy: AccessPolicy) -> Outcome:
    """Answers `forget`: lists what would be deleted or, with `yes`, deletes it. `policy` decides who is an admin."""
    words = called.argument.split()
    is_confirmed = "yes" in words
    if "me" in words:
        if is_confirmed:
            place, person_id = called.address, called.person.person_id
            for run_id in await deps.conversations.unended_runs_of_person(place, person_id):
                await deps.stops.request_stop(run_id, by=called.person)
                await deps.signals.send(run_id)
                deps.wake_delivery(run_id)
            counts = await deps.conversations.erase_person(place, person_id)
            return Outcome(
                notice=f"Forgotten{_place(called)}: {counts.messages:,} of your messages, your name in"
                f" {counts.names:,} other places, and your share in {counts.usage:,} usage entries."
            )
        return Outcome(notice=FORGET_ME.format(_place(called)))
    thread_ids = await deps.conversations.thread_ids(called.address, begun_by=called.sent_at)
    if not thread_ids:
        return await answer_without_conversation(called, deps.conversations)
    is_admin = policy.is_admin(called.address.workspace_id, called.person.person_id, called.actor)
    if not is_admin and not await _may_forget(called, thread_ids, deps):
        return Outcome(notice=NOT_YOURS)
    if not is_confirmed:
        messages = sum([len(await deps.conversations.llm_messages(one)) for one in thread_ids])
        scopes = [Scope(kind="thread", owner_id=one) for one in thread_ids]
        documents = len(await deps.knowledge_base.store.entries(scopes))
        armed = [
            one
            for one in await deps.schedules.list_schedules(Selection.of_channel(called.address))
            if one.thread_id in thread_ids
        ]
        listed = (
            f"{messages:,} messages, {documents:,} documents of knowledge, {len(armed):,} schedules, and its sandbox"
            " with all files"
        )
        ask = "Write `forget yes` to me to delete all of it; it cannot be undone."
        return Outcome(notice=f"This conversation holds {listed}. {ask}", is_private=False)
    for thread_id in thread_ids:
        await delete_conversation(thread_id, deps, called.person)
    return Outcome(
        notice="Forgotten: this conversation, its files, its knowledge and its sandbox are deleted.", is_private=False
    )


async def _may_forget(called: CommandCalled, thread_ids: tuple[str, ...], deps: ForgetDeps) -> bool:
    """Whether the person requested a run in the conversations or started the chat thread."""
    runs = [run for one in thread_ids for run in await deps.conversations.runs(one)]
    requesters = {run.requester.person_id for run in runs if run.requester}
    if called.person.person_id in requesters:
        return True
    history = deps.histories.get(called.address.platform)
    if history is None:
        return False
    try:
        # the platform's clock may be ahead
        page = await history.read(called.address, before=datetime.now(UTC) + timedelta(days=1), limit=1)
    except SurfaceError as error:
        log.warning("who started the thread %s is not known: %s", called.address.thread_key, error)
        return False
    return any(
        one.message_ref == called.address.thread_key and one.author.person_id == called.person.person_id
        for one in (page.root, *page.messages)
        if one is not None
    )


async def delete_conversation(thread_id: str, deps: ForgetDeps, by: Person | None = None) -> None:
    """Deletes a conversation and its sandbox.

    First stops the thread's run or withdraws its question, and waits until their messages are closed, because those
    cannot be found once the run is deleted. Deletes the sandbox before the conversation, because after a crash in
    between, the sandbox could no longer be found. Deletes the sandbox again at the end, because a worker may have
    created a new one in the meantime."""
    snapshot = await deps.conversations.snapshot(thread_id)
    run = snapshot.active_run if snapshot else None
    if run is not None:
        await deps.stops.request_stop(run.run_id)
        await deps.signals.send(run.run_id)
    elif snapshot is not None and snapshot.open_ask is not None:
        await deps.conversations.unbind(thread_id)
        deps.wake_delivery(snapshot.open_ask.run_id)
    # wait until users see that the runs ended and the question is closed, but not for long
    for _ in range(CLOSE_POLLS_MAX):
        runs, shown = await deps.conversations.runs(thread_id), await deps.deliveries.open_runs()
        if all(one.finished_at and one.run_id not in shown for one in runs):
            break
        await asyncio.sleep(CLOSE_POLL_SECONDS)
    if deps.sandboxes is not None:
        await deps.sandboxes.destroy(thread_id)
    await deps.conversations.delete_thread(thread_id, by=by)
    if run is not None:
        await deps.signals.send(run.run_id)
    if deps.sandboxes is not None:
        await deps.sandboxes.destroy(thread_id)


def _place(called: CommandCalled) -> str:
    return " in all servers" if called.address.platform == "discord" else " in this workspace"
