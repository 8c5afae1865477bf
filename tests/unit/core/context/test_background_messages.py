"""Where the next reading of the chat thread begins."""

from datetime import UTC, datetime, timedelta

from core.context.background_messages import BACKGROUND_KEY, last_read_at
from core.context.message_text import build_unread_message, build_user_message
from core.domain.messages import Message
from tests.support.conversations import message, thread_input

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def taken(sent_at: datetime, *, is_read: bool = True) -> Message:
    """A message that was taken up long after it was sent."""
    one = thread_input(sent_at=sent_at)
    return build_user_message(one, "r", one.text) if is_read else build_unread_message(one, "r")


def test_what_is_said_while_a_message_waits_is_read_later() -> None:
    content = {"role": "user", "content": "said by others"}
    background = message("user", content, metadata={BACKGROUND_KEY: True})
    history = [taken(NOON), taken(NOON + timedelta(minutes=1)), background]
    assert last_read_at(history) == NOON + timedelta(minutes=1)
    assert last_read_at([background]) is None


def test_talk_before_a_message_that_no_run_has_read_is_still_to_be_read() -> None:
    history = [taken(NOON), taken(NOON + timedelta(minutes=1), is_read=False)]
    assert last_read_at(history) == NOON
