"""Fast replacements for the parts of `json`, `signal` and `collections` that the program inside needs.

Importing those modules builds regular expressions, enumerations and named tuples, which took two thirds of the start of
a sandbox. This module uses their C implementations, which every CPython since 3.9 has;
`sandbox.local.jail_requirements` checks that a Python has them."""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    import signal
    from collections import deque
    from typing import Any
else:
    import _signal as signal
    from _collections import deque

__all__ = ["deque", "dumps", "loads", "signal"]


class _Rules:
    """The defaults of `json.JSONDecoder()`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # "NaN", "Infinity", "-Infinity"
    memo = None


def loads(text: str | bytes) -> Any:
    """Parses JSON; bytes must be UTF-8. Raises ValueError."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    text = text.strip(" \t\r\n")
    rules: Any = _Rules
    try:
        value, end = make_scanner(rules)(text, 0)
    except StopIteration:
        raise ValueError("this is not JSON") from None
    if end != len(text):
        raise ValueError("something follows the JSON")
    return value


def dumps(value: object) -> str:
    """Returns JSON in ASCII without spaces.

    Raises TypeError for an unsupported type, ValueError for a circular reference."""
    write: Any = encode_basestring_ascii
    encode = make_encoder({}, _refuse, write, None, ":", ",", False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> None:
    raise TypeError(f"JSON has no {type(value).__name__}")
