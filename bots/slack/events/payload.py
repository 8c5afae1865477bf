"""Careful reading of JSON that came from outside: a missing or ill-typed field reads as empty."""

from pydantic import JsonValue

from core.domain.messages import JsonObject


def text(source: JsonObject, *path: str) -> str:
    """The string at the path, or ""."""
    value = _at(source, path)
    return value if isinstance(value, str) else ""


def number(source: JsonObject, *path: str) -> int | None:
    """The whole number at the path, or None."""
    value = _at(source, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def child(source: JsonObject, *path: str) -> JsonObject:
    """The object at the path, or {}."""
    value = _at(source, path)
    return value if isinstance(value, dict) else {}


def children(source: JsonObject, *path: str) -> list[JsonObject]:
    """The objects of the list at the path; whatever else is in it is left out."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(source: JsonObject, *path: str) -> list[str]:
    """The strings of the list at the path; whatever else is in it is left out."""
    value = _at(source, path)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _at(source: JsonObject, path: tuple[str, ...]) -> JsonValue:
    value: JsonValue = source
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
