"""When messages were posted, read from their ids, which both platforms make of the time."""

from datetime import UTC, datetime, timedelta

from core.domain.threads import Address, Ask

DISCORD_EPOCH_SECONDS = 1_420_070_400.0
READING_SECONDS = 1.5
"""Consent that is sent sooner after a card was meant for something else: nobody has read the card."""


def time_of_message(address: Address, message_ref: str) -> datetime | None:
    """Returns when the message was posted by the platform's clock, or None if the id does not tell."""
    try:
        match address.platform:
            case "slack":
                return datetime.fromtimestamp(float(message_ref), UTC)
            case "discord":
                seconds = DISCORD_EPOCH_SECONDS + (int(message_ref) >> 22) / 1000
                return datetime.fromtimestamp(seconds, UTC)
            case "api":
                return None
    except (ValueError, OverflowError, OSError):
        return None


def was_shown_before(ask: Ask, address: Address, sent_at: datetime) -> bool:
    """Whether people could have read the open question when they wrote words that were sent then.

    What comes over HTTP answers what the client has read there.
    """
    if address.platform == "api":
        return True
    shown_at = time_of_message(address, ask.message_ref)
    if shown_at is None:
        return False
    reading = timedelta(seconds=READING_SECONDS if ask.kind == "approval" else 0)
    return sent_at >= shown_at + reading
