"""What of a thread's messages the next model call is made from."""

from sqlalchemy import Connection, and_, func, or_, select

from core.messages import Message
from storage.rows import message_of
from storage.tables import messages

_NEWEST_ONLY = ("summary", "browser_state", "image_context")


def recent_messages(connection: Connection, thread_id: str) -> tuple[Message, ...]:
    """As `core.stores.Conversations.recent` says; what a summary replaces is not read."""
    here = messages.c.thread_id == thread_id
    newest = {
        row.type: row.sequence
        for row in connection.execute(
            select(messages.c.type, func.max(messages.c.sequence).label("sequence"))
            .where(here, messages.c.type.in_(_NEWEST_ONLY))
            .group_by(messages.c.type)
        )
    }
    after = _replaced(connection, thread_id, newest["summary"]) if "summary" in newest else 0
    sent = and_(
        messages.c.sequence > after, messages.c.is_llm_message, messages.c.type != "summary"
    )
    chosen = or_(sent, messages.c.sequence.in_(newest.values()))
    statement = select(messages).where(here, chosen).order_by(messages.c.sequence)
    return tuple(map(message_of, connection.execute(statement).mappings()))


def _replaced(connection: Connection, thread_id: str, sequence: int) -> int:
    """The sequence of the last message that the summary stands for; 0 where it does not say so."""
    of_summary = and_(messages.c.thread_id == thread_id, messages.c.sequence == sequence)
    details = connection.execute(select(messages.c.metadata).where(of_summary)).scalar_one()
    last = and_(
        messages.c.thread_id == thread_id,
        messages.c.message_id == str(details.get("replaces_up_to")),
    )
    return connection.execute(select(messages.c.sequence).where(last)).scalar() or 0
