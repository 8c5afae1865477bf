"""Creates identifiers. They are UUIDv7 strings, so they sort by creation time."""

import hashlib
import re
import secrets

import uuid_utils

KIMI_ID = re.compile(r"functions\.[a-zA-Z0-9_-]{1,64}:\d{1,6}")
"""Kimi's chat template shows the model the id of a tool call instead of its name."""
USABLE_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,40}}|{KIMI_ID.pattern}")
"""Ids of tool calls that match this are stored as they are. Some providers accept fewer ids (`core.llm.call_ids`)."""

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def new_id() -> str:
    """Returns a new UUIDv7 in its canonical text form."""
    return str(uuid_utils.uuid7())


def new_short_id() -> str:
    """Returns a new random id of eight characters, which users can type."""
    return "".join(secrets.choice(_LETTERS) for _ in range(8))


def derive_short_id(*parts: str) -> str:
    """Returns an id in the form of `new_short_id`, which is always the same for the same parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])


def new_call_id() -> str:
    """Returns a new id for a tool call, of 37 characters."""
    return f"call_{uuid_utils.uuid7().hex}"
