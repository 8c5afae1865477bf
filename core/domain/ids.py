"""Identifiers: UUIDv7 strings, so that they sort by the time they were made."""

import uuid_utils


def new_id() -> str:
    """Returns a new UUIDv7 in its canonical text form."""
    return str(uuid_utils.uuid7())
