"""Reading and making JSON that came from outside: nothing is trusted to have the type it should have."""

import itertools
import time
from datetime import UTC, datetime
from typing import cast

Json = dict[str, object]

_EPOCH_MS = 1_420_070_400_000
_counter = itertools.count()


def snowflake() -> str:
    """An id that grows with time, as Discord's do: 42 bits of milliseconds, then a counter."""
    return str(int(time.time() * 1000) - _EPOCH_MS << 22 | next(_counter) & 0x3FFFFF)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def is_snowflake(value: object) -> bool:
    return isinstance(value, str | int) and str(value).isascii() and str(value).isdigit()


def text_of(source: Json, key: str) -> str:
    value = source.get(key)
    return value if isinstance(value, str) else ""


def int_of(source: Json, key: str) -> int:
    """Zero where there is no integer. Discord takes integers as strings too."""
    value = source.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def as_object(value: object) -> Json | None:
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    return cast(list[object], value) if isinstance(value, list) else None


def object_of(source: Json, key: str) -> Json:
    return as_object(source.get(key)) or {}


def list_of(source: Json, key: str) -> list[object]:
    return as_list(source.get(key)) or []


def objects_of(source: Json, key: str) -> list[Json]:
    return [cast(Json, item) for item in list_of(source, key) if isinstance(item, dict)]
