"""Delivery markers, which identify the message of a delivery when the message is fetched later.

Discord enforces a nonce for only some minutes and does not return it with a fetched message. It does return component
ids, attachment descriptions and text, so the marker is a number on the container, a tag in the file's description, or
invisible characters at the end of the text."""

import base64
import hashlib
import re
import uuid

from discord.utils import DISCORD_EPOCH

from core.domain.json import JsonObject, json_objects

_MARK = "\u2060"
_DIGITS = "\u200b\u200c"
_BITS = 31
INVISIBLE_MARKER_LENGTH = _BITS + 2
"""The number of characters that an invisible marker adds to a text."""
_CLOCKS_DIFFER_MS = 10 * 60_000
_HIDDEN = re.compile(f"{_MARK}[{_DIGITS}]{{{_BITS}}}{_MARK}$")


def delivery_nonce(delivery_id: str) -> str:
    """Returns a nonce of 24 characters that is unique to the delivery."""
    return base64.b32encode(hashlib.sha256(delivery_id.encode()).digest()[:15]).decode().lower()


def marker_number(delivery_id: str) -> int:
    """Returns the delivery's marker as a positive 31-bit number, for use as a component id."""
    digest = hashlib.sha256(b"component:" + delivery_id.encode()).digest()
    return (int.from_bytes(digest[:4], "big") >> 1) | (1 << 20)


def invisible_marker(delivery_id: str) -> str:
    """Returns the delivery's marker number in invisible characters."""
    bits = f"{marker_number(delivery_id):0{_BITS}b}"
    return _MARK + "".join(_DIGITS[int(bit)] for bit in bits) + _MARK


def readable_marker(delivery_id: str) -> str:
    """Returns the delivery's marker number as text for a file's description."""
    return f"ref {marker_number(delivery_id):x}"


def is_older_than_delivery(message_id: int, delivery_id: str) -> bool:
    """Whether a message predates the delivery, by the time in the delivery's UUIDv7. Tolerates clock skew."""
    try:
        made = uuid.UUID(delivery_id)
    except ValueError:
        return False
    sent_ms = (message_id >> 22) + DISCORD_EPOCH
    return made.version == 7 and sent_ms < (made.int >> 80) - _CLOCKS_DIFFER_MS


def has_marker(message: JsonObject, delivery_id: str) -> bool:
    """Returns whether a fetched message has the marker of the delivery."""
    content = message.get("content")
    if isinstance(content, str):
        found = _HIDDEN.search(content)
        if found and found.group() == invisible_marker(delivery_id):
            return True
    for component in json_objects(message.get("components")):
        if component.get("id") == marker_number(delivery_id):
            return True
    return any(
        str(attachment.get("description") or "").endswith(readable_marker(delivery_id))
        for attachment in json_objects(message.get("attachments"))
    )
