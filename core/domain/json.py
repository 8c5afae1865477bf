"""The type of JSON objects, and readers of unchecked JSON."""

from typing import cast

from pydantic import JsonValue

JsonObject = dict[str, JsonValue]
"""A JSON object. It must not be mutated once it is part of a message."""


def json_fields(value: object) -> dict[str, object]:
    """Returns the fields of a JSON object, or none if the value is anything else."""
    # a quoted type costs nothing at run time; this runs several times for each piece of an answer
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def json_objects(value: object) -> list[dict[str, object]]:
    """Returns the objects in a JSON array, or none if the value is anything else. Skips other items."""
    items = cast("list[object]", value) if isinstance(value, list) else ()
    return [cast("dict[str, object]", one) for one in items if isinstance(one, dict)]
