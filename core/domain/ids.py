"""Creates identifiers. They are UUIDv7 strings, so they sort by creation time."""

import uuid_utils


def new_id() -> str:
    """Returns a new UUIDv7 in its canonical text form."""
    return str(uuid_utils.uuid7())
