"""Typed access to Slack's JSON payloads. Fields that are missing or have the wrong type count as empty."""

from pydantic import JsonValue

from core.domain.messages import JsonObject


def get_text(source: JsonObject, *path: str) -> str:
    """Returns the string at the path, or ""."""
    value = _at(source, path)
    return value if isinstance(value, str) else ""


def get_int(source: JsonObject, *path: str) -> int | None:
    """Returns the integer at the path, or None."""
    value = _at(source, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def get_object(source: JsonObject, *path: str) -> JsonObject:
    """Returns the object at the path, or {}."""
    value = _at(source, path)
    return value if isinstance(value, dict) else {}


def get_objects(source: JsonObject, *path: str) -> list[JsonObject]:
    """Returns the objects in the list at the path, and skips other items."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_strings(source: JsonObject, *path: str) -> list[str]:
    """Returns the strings in the list at the path, and skips other items."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _at(source: JsonObject, path: tuple[str, ...]) -> JsonValue:
    value: JsonValue = source
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
