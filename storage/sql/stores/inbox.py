"""The inbox: an action is claimed, decided on and stored as an input in one transaction."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, or_, select, true, update

from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited, StoredAction
from core.domain.approval import parse_choice
from core.domain.audit import AuditEntry
from core.domain.ids import new_id
from core.domain.threads import (
    APP_PREFIX,
    APP_REQUESTS_MAX,
    APP_REQUESTS_SECONDS,
    Accept,
    Ask,
    Attention,
    Hold,
    Ignore,
    JoinedThread,
    Overhear,
    Receipt,
    StopRun,
    Thread,
    ThreadSnapshot,
)
from core.failpoints import Failpoint
from core.stores import Decide
from storage.sql.columns import SanitizedText
from storage.sql.database import Store, reads, writes
from storage.sql.rows import address_parameters, input_from_row, input_to_row, run_from_row
from storage.sql.statements import CompiledStatement, insert_ignoring_conflicts, upsert_if_greater
from storage.sql.stores.audit import insert_entry, record_action
from storage.sql.stores.conversations import insert_thread, lock_thread, lock_thread_at, read_next_input, read_snapshot
from storage.sql.stores.run_transitions import (
    ask_if_still_wanted,
    close_ask,
    end_unstarted_run,
    insert_queued_run,
    is_unstarted,
    request_stop,
    resume_run,
    touch_thread,
)
from storage.sql.stores.talk import (
    amend_overheard,
    insert_overheard,
    read_follow_mode,
    read_newer_version,
    read_participants,
    read_question_ref,
    set_follow_mode,
    store_newest_version,
    sweep_versions,
)
from storage.sql.tables import claimed_keys, inbound_cursors, runs, thread_inputs, threads

log = logging.getLogger(__name__)
_ADD_INPUT = CompiledStatement(thread_inputs.insert())
_NEXT_POSITION = CompiledStatement(
    select(func.coalesce(func.max(thread_inputs.c.position), 0) + 1).where(
        thread_inputs.c.thread_id == bindparam("thread")
    )
)
_LATER_INPUTS = CompiledStatement(
    select(thread_inputs.c.input_id, thread_inputs.c.position)
    .where(
        thread_inputs.c.thread_id == bindparam("thread"),
        thread_inputs.c.taken_by.is_(None),
        thread_inputs.c.message_ref != "",
        thread_inputs.c.sent_at > bindparam("sent_at"),
    )
    .order_by(thread_inputs.c.position.desc())
)
_RUN = CompiledStatement(select(runs).where(runs.c.run_id == bindparam("run")))
_MOVE_INPUT = CompiledStatement(
    update(thread_inputs).where(thread_inputs.c.input_id == bindparam("id")).values(position=bindparam("to"))
)


Change = MessageEdited | MessageDeleted


def store_input(
    connection: Connection, action: StoredAction, decision: Accept, snapshot: ThreadSnapshot | None
) -> Receipt:
    """Stores the action as an input, creates the thread and the run if there are none, and answers the open ask."""
    message = action if isinstance(action, IncomingMessage) else None
    begins_with = "" if message and message.is_about_message else action.message_ref
    thread = snapshot.thread if snapshot else insert_thread(connection, action.address, begins_with=begins_with)
    active = snapshot.active_run if snapshot else None
    if active is not None and active.status == "waiting" and snapshot is not None:
        return answer_approval(connection, action, decision, snapshot)
    ask, asking = _asked(action, decision, snapshot), None
    if ask is not None:
        # the next run keeps the agent of the one that asked, and its request, so that the reaction there is updated
        row = _RUN.fetch_first(connection, {"run": ask.run_id})
        asking = run_from_row(row) if row else None
    if asking is not None and asking.attempt == 0:  # adds the files of the request that the question was about
        taken = select(thread_inputs).where(thread_inputs.c.taken_by == asking.run_id)
        rows = connection.execute(taken.order_by(thread_inputs.c.position)).mappings()
        files = [file for row in rows for file in input_from_row(row).files]
        action = replace(action, files=(*files, *action.files))
    action = replace(action, text=decision.answer or action.text)
    request_ref = (asking and asking.request_ref) or action.message_ref
    agent_id = (message and message.agent_id) or (asking and asking.agent_id)
    run = active or insert_queued_run(
        connection,
        thread,
        action.person,
        request_ref,
        agent_id=agent_id,
        attention=decision.attention,
        requested_at=action.acted_at,
    )
    insert_input(connection, thread.thread_id, action, decision.attention)
    is_new = active is None and not decision.is_late
    if active:
        touch_thread(connection, thread.thread_id)
    elif decision.is_late:
        ask_if_still_wanted(connection, run)
    return Receipt(
        decision=decision,
        thread_id=thread.thread_id,
        run_id=run.run_id,
        is_new_run=is_new,
        answered_ask=ask and close_ask(connection, ask, answer=action.text, person=action.person),
    )


def answer_approval(
    connection: Connection, action: StoredAction, decision: Accept, snapshot: ThreadSnapshot
) -> Receipt:
    """Resumes the waiting run with the reply. Unless the reply is a button label, it is also stored as an input."""
    thread_id, ask = snapshot.thread.thread_id, _asked(action, decision, snapshot)
    answer = decision.answer or action.text
    if ask is None or parse_choice(answer) is None:
        insert_input(connection, thread_id, action, decision.attention)
    answered = ask and resume_run(connection, ask, thread_id, answer=answer, person=action.person)
    return Receipt(
        decision=decision,
        thread_id=thread_id,
        run_id=snapshot.active_run.run_id if snapshot.active_run else None,
        is_new_run=answered is not None,
        answered_ask=answered,
    )


def insert_input(connection: Connection, thread_id: str, action: StoredAction, attention: Attention) -> None:
    """Adds an input behind those that were written earlier. The caller must lock the thread, so that positions are
    unique.

    On a chat platform, the unread messages of a thread are in the order of its clock, however long it took to receive
    each. Over HTTP there is no such clock."""
    ((position,),) = _NEXT_POSITION.fetch_tuples(connection, {"thread": thread_id})
    if action.address.platform != "api" and action.message_ref:
        for later in _LATER_INPUTS.fetch_rows(connection, {"thread": thread_id, "sent_at": action.acted_at}):
            _MOVE_INPUT.execute(connection, {"id": later["input_id"], "to": position})
            position = later["position"]
    place = {"input_id": new_id(), "thread_id": thread_id, "position": position}
    _ADD_INPUT.execute(connection, {**place, "attention": attention, **input_to_row(action)})


def _asked(action: StoredAction, decision: Accept, snapshot: ThreadSnapshot | None) -> Ask | None:
    """Returns the open ask, or None if the action is no reply, names another ask, or only steers the run."""
    if snapshot is None or snapshot.open_ask is None or isinstance(action, Change):
        return None
    if decision.is_steering:
        return None
    return snapshot.open_ask if decision.ask_id in (None, snapshot.open_ask.ask_id) else None


def apply_change(connection: Connection, change: Change, decision: Accept, snapshot: ThreadSnapshot | None) -> Receipt:
    """An edit changes an input that no run has read, or is passed as an input to the active run that has read the
    message. A deletion removes an input that no run has read.

    Messages that never became an input, and those that an ended run has read, are left alone."""
    if snapshot is None:
        return Receipt(decision=decision)
    thread_id, active = snapshot.thread.thread_id, snapshot.active_run
    receipt = Receipt(decision=decision, thread_id=thread_id, run_id=active and active.run_id)
    is_changed, readers = change_unread(connection, change, thread_id)
    if is_changed:
        is_unasked = active and is_unstarted(active) and not read_next_input(connection, thread_id)
        if active and is_unasked:
            end_unstarted_run(connection, active)
        return receipt
    if isinstance(change, MessageEdited) and active and active.run_id in readers:
        return store_input(connection, change, decision, snapshot)
    return replace(receipt, decision=Ignore(reason="an ended run has read it"))


def change_unread(connection: Connection, change: Change, thread_id: str) -> tuple[bool, frozenset[str]]:
    """Applies an edit or a deletion to the message's input that no run has read. Returns whether there was one, and the
    runs that have read inputs with the message."""
    if not change.message_ref:
        return False, frozenset()
    # a request that another user made about the message is left out, because its author may not change that
    author_id, writer = change.person.person_id, thread_inputs.c.author_id
    is_theirs = or_(writer == author_id, writer.startswith(APP_PREFIX)) if author_id else true()
    with_message = (
        select(thread_inputs.c.input_id, thread_inputs.c.taken_by)
        .where(thread_inputs.c.thread_id == thread_id, is_theirs)
        .where(thread_inputs.c.message_ref == change.message_ref)
        .order_by(thread_inputs.c.position)
    )
    rows = connection.execute(with_message).all()
    untaken = next((row.input_id for row in rows if row.taken_by is None), None)
    readers = frozenset(row.taken_by for row in rows if row.taken_by)
    if untaken is None:
        return False, readers
    this = thread_inputs.c.input_id == untaken
    if isinstance(change, MessageDeleted):
        connection.execute(delete(thread_inputs).where(this))
        return True, readers
    # a new id, so that a run that has read the old text does not mark the new text as read
    # the time of the edit, so that the run reads the talk before it, too
    changed: dict[str, object] = {"input_id": new_id(), "text": change.text, "sent_at": change.sent_at}
    connection.execute(update(thread_inputs).where(this).values(changed))
    return True, readers


SWEPT_AT_ONCE_MAX = 1000
_ADVANCE = CompiledStatement(upsert_if_greater(inbound_cursors, ("platform", "scope"), "cursor"))
_CLAIM_KEY = CompiledStatement(partial(insert_ignoring_conflicts, claimed_keys))
_CLAIMED = CompiledStatement(select(claimed_keys).where(claimed_keys.c.dedupe_key == bindparam("key")))


_THREAD_OF_MESSAGE = CompiledStatement(
    select(threads.c.thread_id)
    .join(thread_inputs, thread_inputs.c.thread_id == threads.c.thread_id)
    .where(
        threads.c.platform == bindparam("platform"),
        threads.c.workspace_id == bindparam("workspace"),
        threads.c.channel_id == bindparam("channel"),
        threads.c.unbound_at.is_(None),
        thread_inputs.c.message_ref == bindparam("ref"),
    )
    .limit(1)
)


def _stored(dialect: str) -> Select[*tuple[Any, ...]]:
    """Selects the stored input of a key, because inputs outlive their keys, which are deleted after some weeks. In
    PostgreSQL, also locks a message that has no thread yet, so that the message and its edits and deletions wait for
    each other."""
    stored = select(thread_inputs.c.thread_id, thread_inputs.c.taken_by.label("run_id"))
    has_key = thread_inputs.c.dedupe_key == bindparam("key")
    if dialect != "postgresql":
        return stored.where(has_key)
    key = func.hashtext(bindparam("message", type_=SanitizedText()))  # nothing is locked for null
    lock = select(func.pg_advisory_xact_lock(key)).subquery()
    return stored.select_from(lock.outerjoin(thread_inputs, has_key))


_STORED = CompiledStatement(_stored)
_KEY_LED_TO = CompiledStatement(
    update(claimed_keys)
    .where(claimed_keys.c.dedupe_key == bindparam("key"))
    .values(thread_id=bindparam("to_thread"), run_id=bindparam("to_run"))
)


class SqlInbox(Store):
    """`core.stores.Inbox`."""

    @writes(Failpoint("storage.accept"))
    def accept_action(self, connection: Connection, action: StoredAction, decide: Decide) -> Receipt:
        thread = lock_thread_at(connection, action.address)
        message = None if thread else action.message_ref or None
        if (duplicate := _duplicate(connection, action.dedupe_key, message)) is not None:
            return duplicate
        if message and isinstance(action, Change):
            # the message may have created the thread meanwhile; in a direct message, it may have been put elsewhere
            thread = lock_thread_at(connection, action.address)
            if thread is None and action.address.is_direct:
                thread = _lock_thread_of_message(connection, action)
        # two apps in a chat could answer each other forever; clients of the HTTP API have a token
        if action.actor.app_ids and action.person.is_app and _has_asked_enough(connection, action):
            log.warning("%s asks too often in %s", action.person.person_id, action.address.channel_id)
            return Receipt(decision=Ignore(reason="an app that asks too often"))
        if (overtaken := _newer_version(connection, thread, action)) is not None:
            return overtaken
        snapshot = _read_whole_snapshot(connection, thread) if thread else None
        decision = decide(snapshot)
        if thread is not None and isinstance(decision, Overhear):
            insert_overheard(connection, thread.thread_id, action)
        elif thread is not None:
            amend_overheard(connection, thread.thread_id, action)
        if isinstance(decision, Ignore | Overhear | Hold):
            return Receipt(decision=decision, thread_id=thread.thread_id if thread else None)
        if not claim_key(connection, action.dedupe_key):
            return _duplicate(connection, action.dedupe_key) or Receipt(
                decision=Ignore(reason="duplicate"), is_duplicate=True
            )
        receipt = _carry_out(connection, action, decision, snapshot)
        led_to = {"key": action.dedupe_key, "to_thread": receipt.thread_id, "to_run": receipt.run_id}
        _KEY_LED_TO.execute(connection, led_to)
        record_action(connection, action, receipt)
        return receipt

    @writes(Failpoint("storage.claim_key"))
    def claim_key(self, connection: Connection, dedupe_key: str, *, act: AuditEntry | None = None) -> bool:
        is_first = claim_key(connection, dedupe_key)
        if is_first and act is not None:
            insert_entry(connection, act)
        return is_first

    async def is_key_claimed(self, dedupe_key: str) -> bool:
        return bool(await self.database.read_statement(_CLAIMED, {"key": dedupe_key}))

    @writes(Failpoint("storage.sweep_keys"))
    def delete_old_keys(self, connection: Connection, *, older_than_days: float) -> int:
        """Deletes a batch of the keys that are older than that, and stored versions of messages that can no longer
        arrive. Returns how many keys were deleted, 0 if none are left."""
        before = datetime.now(UTC) - timedelta(days=older_than_days)
        sweep_versions(connection)
        # except keys that another process is deleting
        oldest = (
            select(claimed_keys.c.dedupe_key)
            .where(claimed_keys.c.claimed_at < before)
            .order_by(claimed_keys.c.claimed_at)
            .limit(SWEPT_AT_ONCE_MAX)
            .with_for_update(skip_locked=True)
        )
        gone = connection.execute(oldest).scalars().all()
        if gone:
            connection.execute(delete(claimed_keys).where(claimed_keys.c.dedupe_key.in_(gone)))
        return len(gone)

    @writes(Failpoint("storage.forward"))
    def advance_cursors(self, connection: Connection, platform: str, cursors: Mapping[str, str]) -> None:
        # in the same order everywhere, so that two processes cannot wait for each other
        for scope, cursor in sorted(cursors.items()):
            _ADVANCE.execute(connection, {"platform": platform, "scope": scope, "cursor": cursor})

    @reads
    def cursors(self, connection: Connection, platform: str) -> dict[str, str]:
        of_platform = select(inbound_cursors).where(inbound_cursors.c.platform == platform)
        return {row.scope: row.cursor for row in connection.execute(of_platform)}

    @reads
    def joined_threads(
        self, connection: Connection, platform: str, workspace_id: str, *, limit: int
    ) -> tuple[JoinedThread, ...]:
        newest = (
            select(threads)
            .where(
                threads.c.platform == platform, threads.c.workspace_id == workspace_id, threads.c.unbound_at.is_(None)
            )
            .order_by(threads.c.last_activity_at.desc(), threads.c.thread_id.desc())
            .limit(limit)
            .subquery()
        )
        reference = thread_inputs.c.message_ref
        statement = (
            select(
                newest.c.channel_id,
                newest.c.thread_key,
                func.min(reference).label("first_ref"),
                func.max(reference).label("last_ref"),
            )
            .join(thread_inputs, thread_inputs.c.thread_id == newest.c.thread_id)
            .where(reference != "")
            .group_by(newest.c.thread_id, newest.c.channel_id, newest.c.thread_key, newest.c.last_activity_at)
            .order_by(newest.c.last_activity_at.desc(), newest.c.thread_id.desc())
        )
        return tuple(JoinedThread(**row) for row in connection.execute(statement).mappings())


def claim_key(connection: Connection, dedupe_key: str) -> bool:
    """Claims the key. Waits for a concurrent transaction that is claiming it. Returns False if it was claimed
    before."""
    return _CLAIM_KEY.execute(connection, {"dedupe_key": dedupe_key, "claimed_at": datetime.now(UTC)}) == 1


def _lock_thread_of_message(connection: Connection, change: Change) -> Thread | None:
    found = _THREAD_OF_MESSAGE.fetch_first(
        connection, {**address_parameters(change.address), "ref": change.message_ref}
    )
    return lock_thread(connection, found["thread_id"]) if found else None


def _newer_version(connection: Connection, thread: Thread | None, action: StoredAction) -> Receipt | None:
    """Returns the receipt of a message, an edit or a deletion that a later change of the message has overtaken."""
    if isinstance(action, Change):
        is_newest = store_newest_version(connection, thread.thread_id if thread else None, action)
        return None if is_newest else Receipt(decision=Ignore(reason="changed again since"))
    if not isinstance(action, IncomingMessage) or not action.message_ref or action.is_about_message:
        return None
    if (newer := read_newer_version(connection, action)) is None:
        return None
    text = None if newer.text is None else (newer.text, newer.sent_at)
    return Receipt(decision=Ignore(reason="changed before it came"), newer_version=text)


def _has_asked_enough(connection: Connection, action: StoredAction) -> bool:
    """Returns whether the app has used up its requests of the last minutes in this channel."""
    place, since = action.address, action.acted_at - timedelta(seconds=APP_REQUESTS_SECONDS)
    taken = (
        select(func.count())
        .select_from(thread_inputs.join(threads, threads.c.thread_id == thread_inputs.c.thread_id))
        .where(
            threads.c.platform == place.platform,
            threads.c.workspace_id == place.workspace_id,
            threads.c.channel_id == place.channel_id,
            threads.c.last_activity_at > since,
            thread_inputs.c.author_id == action.person.person_id,
            thread_inputs.c.sent_at > since,
        )
    )
    return connection.execute(taken).scalar_one() >= APP_REQUESTS_MAX


def _read_whole_snapshot(connection: Connection, thread: Thread) -> ThreadSnapshot:
    """Returns the snapshot with the fields that only decisions about actions need."""
    snapshot = read_snapshot(connection, thread)
    ask = snapshot.open_ask
    if ask is not None:
        row = _RUN.fetch_first(connection, {"run": ask.run_id})
        requester = run_from_row(row).requester if row else None
        ask = replace(ask, message_ref=read_question_ref(connection, ask), requester=requester)
    if thread.address.platform == "api":
        return snapshot
    return replace(
        snapshot,
        open_ask=ask,
        talk=read_participants(connection, snapshot),
        follow_mode=read_follow_mode(connection, thread.address),
    )


def _duplicate(connection: Connection, key: str, message: str | None = None) -> Receipt | None:
    stored = _STORED.fetch_first(connection, {"key": key, "message": message})
    # the claim is read last: a concurrent transaction may have stored both since the first statement
    row = _CLAIMED.fetch_first(connection, {"key": key}) or stored
    if row is None or (row is stored and row["thread_id"] is None):
        return None
    return Receipt(
        decision=Ignore(reason="duplicate"), is_duplicate=True, thread_id=row["thread_id"], run_id=row["run_id"]
    )


def _carry_out(
    connection: Connection, action: StoredAction, decision: Accept | StopRun, snapshot: ThreadSnapshot | None
) -> Receipt:
    match decision:
        case StopRun():
            if isinstance(action, Change) and snapshot is not None:
                change_unread(connection, action, snapshot.thread.thread_id)
            if snapshot is None:
                return Receipt(decision=decision)
            request_stop(connection, snapshot, until=decision.until)
            thread_id, active = snapshot.thread.thread_id, snapshot.active_run
            return Receipt(decision=decision, thread_id=thread_id, run_id=active and active.run_id)
        case Accept():
            if isinstance(action, Change):
                return apply_change(connection, action, decision, snapshot)
            if decision.follows_again:
                set_follow_mode(connection, action.address, "default", is_whole_channel=False)
            return store_input(connection, action, decision, snapshot)
