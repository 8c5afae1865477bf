"""What the program inside needs of `json`, `signal` and `collections`, without importing them.

They build regular expressions, enumerations and named tuples first, two thirds of what a sandbox needed to start. Their
halves written in C, which every CPython since 3.9 has, do without. `sandbox.local.programs` asks for them first.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    import signal
    from collections import deque
    from typing import Any
else:
    import _signal as signal
    from _collections import deque

__all__ = ["deque", "dumps", "loads", "signal"]


class _Rules:
    """Those of `json.JSONDecoder()`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # "NaN", "Infinity", "-Infinity"
    memo = None


def loads(text: str | bytes) -> Any:
    """What the JSON says; bytes are UTF-8. Raises ValueError."""
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
    """In ASCII, without spaces. Raises TypeError for what JSON has not, ValueError for what contains itself."""
    write: Any = encode_basestring_ascii
    encode = make_encoder({}, _refuse, write, None, ":", ",", False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> None:
    raise TypeError(f"JSON has no {type(value).__name__}")
