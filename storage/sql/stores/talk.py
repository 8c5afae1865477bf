"""Stores what users write to each other in the agent's threads, their feedback on answers, the follow modes that they
chose, and the newest versions of messages that were edited or deleted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, func, literal, or_, select, union_all, update

from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited, StoredAction
from core.domain.threads import (
    Address,
    Ask,
    ChatMessage,
    FollowMode,
    IncomingFile,
    Person,
    ThreadParticipants,
    ThreadSnapshot,
)
from core.failpoints import Failpoint
from core.stores import Feedback
from storage.sql.database import Store, reads, writes
from storage.sql.rows import address_parameters, from_row, message_to_columns, to_row
from storage.sql.statements import CompiledStatement, insert_or_replace, insert_or_skip
from storage.sql.tables import deliveries, follow_modes, heard_messages, message_versions, thread_inputs, threads
from storage.sql.tables import feedback as feedback_rows

VERSION_AGE_MAX = timedelta(hours=1)
"""How much later than its edit or its deletion a message may arrive. Slack redelivers messages for less time."""
_WRITTEN = union_all(
    *(
        select(
            table.c.author_id,
            func.max(table.c.author_name).label("author_name"),
            func.max(table.c.sent_at).label("last_at"),
            literal(table is heard_messages).label("is_heard"),
        )
        .where(table.c.thread_id == bindparam("thread"))
        .group_by(table.c.author_id)
        for table in (thread_inputs, heard_messages)
    )
).subquery()
_PARTICIPANTS = CompiledStatement(select(_WRITTEN))
"""Who has written, when they did last, and whether that was to the agent."""
_MODES = CompiledStatement(
    select(follow_modes.c.thread_key, follow_modes.c.mode).where(
        follow_modes.c.platform == bindparam("platform"),
        follow_modes.c.workspace_id == bindparam("workspace"),
        follow_modes.c.channel_id == bindparam("channel"),
        or_(follow_modes.c.thread_key == bindparam("key"), follow_modes.c.thread_key == ""),
    )
)
_CARD = CompiledStatement(
    select(deliveries.c.message_ref).where(
        deliveries.c.run_id == bindparam("run"),
        deliveries.c.slot == "ask",
        deliveries.c.body["ask_id"].as_string() == bindparam("ask"),
    )
)
_VERSION = CompiledStatement(
    select(message_versions).where(
        message_versions.c.platform == bindparam("platform"),
        message_versions.c.workspace_id == bindparam("workspace"),
        message_versions.c.channel_id == bindparam("channel"),
        message_versions.c.message_ref == bindparam("ref"),
    )
)
_UNREAD = CompiledStatement(
    select(heard_messages)
    .where(
        heard_messages.c.thread_id == bindparam("thread"),
        heard_messages.c.read_by.is_(None),
        heard_messages.c.sent_at < bindparam("before"),
    )
    .order_by(heard_messages.c.sent_at)
)
_MARK_READ = CompiledStatement(
    update(heard_messages)
    .where(heard_messages.c.thread_id == bindparam("thread"), heard_messages.c.message_ref == bindparam("ref"))
    .values(read_by=bindparam("reader"))
)


@dataclass(frozen=True, slots=True)
class MessageVersion:
    """The text of a message since `sent_at`, or None if it was deleted or is not for the agent."""

    text: str | None
    sent_at: datetime


def read_participants(connection: Connection, snapshot: ThreadSnapshot) -> ThreadParticipants:
    rows = _PARTICIPANTS.fetch_rows(connection, {"thread": snapshot.thread.thread_id})
    earlier = snapshot.thread.earlier_authors
    people = {**(earlier or {}), **{row["author_id"]: row["author_name"] for row in rows}}
    last = {
        is_heard: max((row["last_at"] for row in rows if row["is_heard"] == is_heard), default=None)
        for is_heard in (True, False)
    }
    return ThreadParticipants(
        participants=tuple(Person(person_id=key, name=name) for key, name in people.items() if key),
        is_known=earlier is not None,
        heard_at=last[True],
        requested_at=last[False],
    )


def read_question_ref(connection: Connection, ask: Ask) -> str:
    """Returns the platform's id of the message with the question, or an empty string if it is not posted yet."""
    row = _CARD.fetch_first(connection, {"run": ask.run_id, "ask": ask.ask_id})
    return str(row["message_ref"] or "") if row else ""


def insert_overheard(connection: Connection, thread_id: str, action: StoredAction) -> None:
    insert_or_skip(connection, heard_messages, [{"thread_id": thread_id, **message_to_columns(action)}])


def read_unread_talk(connection: Connection, thread_id: str, before: datetime) -> tuple[ChatMessage, ...]:
    """See `core.stores.Conversations.unread_talk`."""
    return tuple(
        ChatMessage(
            author=Person(person_id=one["author_id"], name=one["author_name"]),
            text=one["text"],
            sent_at=one["sent_at"],
            message_ref=one["message_ref"],
            files=tuple(IncomingFile(**file) for file in one["files"]),
        )
        for one in _UNREAD.fetch_rows(connection, {"thread": thread_id, "before": before})
    )


def mark_talk_read(connection: Connection, thread_id: str, run_id: str, message_refs: Sequence[str]) -> None:
    _MARK_READ.execute(connection, *({"thread": thread_id, "ref": ref, "reader": run_id} for ref in message_refs))


def amend_overheard(connection: Connection, thread_id: str, action: StoredAction) -> None:
    """Applies an edit or a deletion to a message that users wrote to each other."""
    this = (heard_messages.c.thread_id == thread_id) & (heard_messages.c.message_ref == action.message_ref)
    if isinstance(action, MessageDeleted):
        connection.execute(delete(heard_messages).where(this))
    elif isinstance(action, MessageEdited):
        connection.execute(update(heard_messages).where(this).values(text=action.text))


def store_newest_version(connection: Connection, thread_id: str | None, change: MessageEdited | MessageDeleted) -> bool:
    """Stores the new version of a message that was edited or deleted. Returns False if a later change of the message is
    known.

    The message may still come: its look-ups take longer, another process receives it, or the platform sends it again.
    In a place where the agent has no thread, the text of an edit that does not address the agent is not kept."""
    is_deleted = isinstance(change, MessageDeleted)
    is_kept = not is_deleted and (thread_id is not None or change.is_addressed)
    values: dict[str, object] = {
        **to_row(change.address),
        "message_ref": change.message_ref,
        "author_id": change.person.person_id,
        "text": change.text if is_kept else None,
        "is_deleted": is_deleted,
        "sent_at": change.sent_at,
    }
    # a deletion always counts: Discord does not say when it was, and a deleted message does not come back
    is_older = message_versions.c.is_deleted.is_(False) & or_(
        literal(is_deleted), message_versions.c.sent_at <= change.sent_at
    )
    return insert_or_replace(connection, message_versions, values, is_older) == 1


def read_newer_version(connection: Connection, message: IncomingMessage) -> MessageVersion | None:
    """Returns the newer version of a message whose edit or deletion arrived before it, or None if the text of the
    message is as new."""
    row = _VERSION.fetch_first(connection, {**address_parameters(message.address), "ref": message.message_ref})
    written_at = message.edited_at or message.sent_at
    if row is None or not (row["is_deleted"] or row["sent_at"] > written_at):
        return None
    return MessageVersion(row["text"], row["sent_at"])


def sweep_versions(connection: Connection) -> None:
    """Deletes stored versions of messages that can no longer arrive."""
    before = datetime.now(UTC) - VERSION_AGE_MAX
    connection.execute(delete(message_versions).where(message_versions.c.sent_at < before))


def read_follow_mode(connection: Connection, address: Address) -> FollowMode | None:
    """Returns the mode of the thread, else that of its channel, else None."""
    rows = _MODES.fetch_rows(connection, address_parameters(address))
    modes = {row["thread_key"]: row["mode"] for row in rows}
    return modes.get(address.thread_key) or modes.get("")


def set_follow_mode(connection: Connection, address: Address, mode: FollowMode, *, is_whole_channel: bool) -> None:
    place: dict[str, object] = {**asdict(address)}
    if is_whole_channel:
        place["thread_key"] = ""
    insert_or_replace(connection, follow_modes, {**place, "mode": mode, "set_at": datetime.now(UTC)})


class SqlFollowModes(Store):
    """`core.stores.FollowModes`."""

    @writes(Failpoint("storage.set_follow_mode"))
    def set_mode(self, connection: Connection, address: Address, mode: FollowMode, *, is_whole_channel: bool) -> None:
        set_follow_mode(connection, address, mode, is_whole_channel=is_whole_channel)

    @reads
    def find_channel_mode(self, connection: Connection, address: Address) -> FollowMode | None:
        return read_follow_mode(connection, replace(address, thread_key=""))


class SqlFeedback(Store):
    """`core.stores.FeedbackStore`."""

    @writes(Failpoint("storage.record_feedback"))
    def record(self, connection: Connection, feedback: Feedback) -> None:
        known = select(threads.c.thread_id).where(threads.c.thread_id == feedback.thread_id)
        if connection.execute(known.with_for_update(read=True, key_share=True)).first() is None:
            return
        values: dict[str, object] = {
            **to_row(feedback, "person", "request"),
            "person_id": feedback.person.person_id,
            "person_name": feedback.person.name,
        }
        insert_or_replace(connection, feedback_rows, values)

    @reads
    def newest_feedback(self, connection: Connection, *, limit: int, only_bad: bool = False) -> tuple[Feedback, ...]:
        statement = select(feedback_rows).order_by(feedback_rows.c.given_at.desc()).limit(limit)
        if only_bad:
            statement = statement.where(feedback_rows.c.is_good.is_(False))
        return tuple(
            from_row(
                Feedback,
                row,
                person=Person(person_id=row["person_id"], name=row["person_name"]),
                request=read_request(connection, row["thread_id"], row["run_id"]),
            )
            for row in reversed(connection.execute(statement).mappings().all())
        )


def read_request(connection: Connection, thread_id: str, run_id: str) -> str:
    """Returns the text of the run's request, or an empty string if it is gone."""
    inputs = select(thread_inputs.c.text).where(thread_inputs.c.thread_id == thread_id)
    of_run = inputs.where(or_(thread_inputs.c.taken_by == run_id, thread_inputs.c.taken_by.is_(None)))
    return connection.execute(of_run.order_by(thread_inputs.c.position).limit(1)).scalar() or ""
