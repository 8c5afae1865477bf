"""What of a thread's messages the next model call is made from."""

from sqlalchemy import Connection, and_, bindparam, func, literal_column, select

from core.domain.messages import Message
from storage.sql.prepared import CompiledStatement
from storage.sql.rows import message_from_row
from storage.sql.tables import messages

_NEWEST_ONLY = ("summary", "browser_state", "image_context")
_NEWEST = CompiledStatement(
    select(messages.c.type, func.max(messages.c.sequence))
    .where(
        messages.c.thread_id == bindparam("thread"),
        messages.c.type.in_([literal_column(f"'{kind}'") for kind in _NEWEST_ONLY]),
    )
    .group_by(messages.c.type)
)
_SENT = CompiledStatement(
    select(messages)
    .where(
        messages.c.thread_id == bindparam("thread"),
        messages.c.sequence > bindparam("after"),
        messages.c.is_llm_message,
        messages.c.type != "summary",
    )
    .order_by(messages.c.sequence)
)


def recent_messages(connection: Connection, thread_id: str) -> tuple[Message, ...]:
    """As `core.stores.Conversations.recent` says; what a summary replaces is not read."""
    newest = {
        str(kind): int(last) for kind, last in _NEWEST.found(connection, {"thread": thread_id})
    }
    after = (
        _last_summarized_sequence(connection, thread_id, newest["summary"])
        if "summary" in newest
        else 0
    )
    sent = _SENT.rows(connection, {"thread": thread_id, "after": after})
    found = {message.sequence: message for message in map(message_from_row, sent)}
    if newest:
        here = messages.c.thread_id == thread_id
        these = select(messages).where(here, messages.c.sequence.in_(newest.values()))
        for row in connection.execute(these).mappings():
            found[row["sequence"]] = message_from_row(row)
    return tuple(found[sequence] for sequence in sorted(found))


def _last_summarized_sequence(connection: Connection, thread_id: str, sequence: int) -> int:
    """The sequence of the last message that the summary stands for; 0 where it does not say so."""
    of_summary = and_(messages.c.thread_id == thread_id, messages.c.sequence == sequence)
    details = connection.execute(select(messages.c.metadata).where(of_summary)).scalar_one()
    last = and_(
        messages.c.thread_id == thread_id,
        messages.c.message_id == str(details.get("replaces_up_to")),
    )
    return connection.execute(select(messages.c.sequence).where(last)).scalar() or 0
