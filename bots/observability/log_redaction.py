"""Formats errors for the log without the messages of library exceptions.

Such a message may quote text from users or the model, which must not reach the log."""

import os
import re
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import cast

from core.domain.errors import ThreadhandError, ToolError

_OWN = ("bots", "core", "sandbox", "storage")
_GROUP_SHOWN_MAX = 10
_SHOWN_MAX = 50
"""Maximum number of chained errors in a log entry."""
_CAUSED = "The above exception was the direct cause of the following exception:"
_MEANWHILE = "During handling of the above exception, another exception occurred:"
_WARNING = re.compile(r"(?s)^(.*?:\d+: \w+): .*")
_TEXT_CHARACTERS_MIN = 3
"""Shorter exception messages are not removed, because they also occur inside ordinary words."""


def format_traceback(error: BaseException) -> str:
    """Returns the traceback in Python's format, without the messages of library exceptions."""
    return "\n".join(_lines(error, set()))


def redact_library_message(logger: str, message: str, error: BaseException | None) -> str:
    """Replaces exception messages in a library's log message with the names of the exception classes.

    Returns messages of Threadhand's own loggers unchanged."""
    if logger.partition(".")[0] in _OWN:
        return message
    if logger == "asyncio":
        # asyncio appends the repr of tasks, futures and arguments, which may contain text from users
        return re.sub(r"\(.*", "(...)", message.partition("\n")[0])
    if logger == "py.warnings":
        return _WARNING.sub(r"\1", message)
    for one in _chain(error, set()):
        if not _is_ours(one):
            for text in (_said(repr, one), _said(str, one)):
                if len(text) >= _TEXT_CHARACTERS_MIN:
                    message = message.replace(text, type(one).__name__)
    return message


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    earlier, link = _earlier(error)
    if earlier is not None and id(earlier) not in seen and len(seen) < _SHOWN_MAX:
        yield from _lines(earlier, seen)
        yield f"\n{link}\n"
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield from (frame.rstrip("\n") for frame in traceback.format_tb(error.__traceback__))
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    text = _text(error)
    yield f"{name}: {text}" if text else name
    for one in _inside(error)[:_GROUP_SHOWN_MAX]:
        if id(one) not in seen and len(seen) < _SHOWN_MAX:
            yield from (f"  | {part}" for line in _lines(one, seen) for part in line.split("\n"))


def _earlier(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSED
    return (None if error.__suppress_context__ else error.__context__), _MEANWHILE


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen or len(seen) >= _SHOWN_MAX:
        return
    seen.add(id(error))
    yield error
    yield from _chain(_earlier(error)[0], seen)
    for one in _inside(error):
        yield from _chain(one, seen)


def _inside(error: BaseException) -> tuple[BaseException, ...]:
    """Returns the exceptions of an exception group, or an empty tuple for other exceptions."""
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast(BaseExceptionGroup[BaseException], error).exceptions


def _text(error: BaseException) -> str:
    if _is_ours(error):
        return _said(str, error)
    if inside := _inside(error):
        return f"{len(inside)} inside"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return f"[Errno {error.errno}] {os.strerror(error.errno or 0)}"
    length = len(_said(str, error))
    return f"({length} characters left out)" if length else ""


def _is_ours(error: BaseException) -> bool:
    """Whether the error message is safe to log. False for ToolError, because its message may quote the model."""
    return isinstance(error, ThreadhandError) and not isinstance(error, ToolError)


def _said(way: Callable[[BaseException], str], error: BaseException) -> str:
    try:
        return way(error)
    except Exception:
        # an exception that cannot be formatted must not break logging
        return ""
