"""Creates identifiers. They are UUIDv7 strings, so they sort by creation time."""

import re

import uuid_utils

USABLE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""The ids of tool calls that every provider accepts, except Mistral (`core.llm.call_ids`)."""


def new_id() -> str:
    """Returns a new UUIDv7 in its canonical text form."""
    return str(uuid_utils.uuid7())


def new_call_id() -> str:
    """Returns a new id for a tool call, of 37 characters."""
    return f"call_{uuid_utils.uuid7().hex}"
