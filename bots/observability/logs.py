"""Logs to stderr, one line per entry, as text or JSON. Secrets and messages of library exceptions are redacted."""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, TextIO

from bots.observability.log_redaction import format_traceback, redact_library_message
from core.observability import get_log_context

log = logging.getLogger(__name__)

_SECRET_SHAPES = re.compile(
    r"""(?x)
    (?:xox[a-z]|xapp|xoxe\.xox[a-z])-[\w-]{6,}          # Slack
    | \b[MNO][A-Za-z\d_-]{22,28}\.[\w-]{5,8}\.[\w-]{25,}  # Discord
    | \bsk-[\w-]{8,} | \b(?:tvly|gsk|AIza|ghp|glpat)[-_]?[\w-]{16,}     # model, search and code hosts
    | \bfc-[\w-]{16,}                                     # Firecrawl; without the dash, part of an id
    | (?<=://)[^\s/:@]*:[^\s/]+(?=@)                      # user:password in a URL
    """
)
_BEARER = re.compile(r"(?i)\b(bearer|bot|basic)\s+[\w.~+/=-]{12,}")
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_INPUT_VALUES = re.compile(r"input_value=.*?(, input_type=|\Z)", re.DOTALL)
_INPUTS = re.compile(r"""(['"]input['"]: ?).*""")
"""Match the rejected values in pydantic errors, because users or models may have written these values."""
_QUIET = ("discord", "slack_bolt", "slack_sdk", "aiohttp.access", "litellm", "httpx", "alembic")
REDACTED = "[redacted]"
LINES_A_MINUTE = 5
FLOOD_SECONDS = 60
KINDS_MAX = 1000
SECRET_CHARACTERS_MIN = 8
"""Shorter secrets are not redacted, because the same text also occurs in ordinary log lines."""


def redact_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Returns the text with the given secrets, and all text in the format of a known kind of secret, redacted."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    text = _INPUT_VALUES.sub(r"input_value=...\1", text)
    return _BEARER.sub(rf"\1 {REDACTED}", _SECRET_SHAPES.sub(REDACTED, text))


class TextFormatter(logging.Formatter):
    """Formats an entry as `time level logger message key=value`, where the keys are the log context.

    Line breaks become ⏎, and characters that control a terminal or an editor are escaped. `with_texts`: include the
    messages of library exceptions."""

    def __init__(self, secrets: Iterable[str] = (), *, with_texts: bool = False) -> None:
        super().__init__()
        self._with_texts = with_texts
        self._secrets: tuple[str, ...] = ()
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Adds secrets to redact. Longer secrets are redacted first, because a secret may contain another secret."""
        known = {secret for secret in secrets if len(secret) >= SECRET_CHARACTERS_MIN}
        self._secrets = tuple(sorted(known | set(self._secrets), key=lambda one: (-len(one), one)))

    def format(self, record: logging.LogRecord) -> str:
        """Returns the entry as one line. Redaction comes last, so that it covers the whole entry."""
        text = f"{_moment(record)} {record.levelname.lower()} {record.name} {self._message(record)}"
        text += "".join(f" {name}={value}" for name, value in get_log_context().items())
        if trace := self._trace(record):
            text += "\n" + trace
        line = self._clean(text).replace("\r", "").replace("\n", " ⏎ ")
        return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], line)

    def _clean(self, text: str) -> str:
        return redact_secrets(text, self._secrets)

    def _message(self, record: logging.LogRecord) -> str:
        message, left_out = record.getMessage(), getattr(record, "left_out", "")
        if self._with_texts:
            return f"{message}{left_out}"
        # libraries often quote the handled exception in the message without passing exc_info
        error = _raised(record) or sys.exc_info()[1]
        return _INPUTS.sub(r"\1...", redact_library_message(record.name, message, error)) + left_out

    def _trace(self, record: logging.LogRecord) -> str:
        error = _raised(record)
        if error is None or record.exc_info is None:
            trace = ""
        else:
            trace = self.formatException(record.exc_info) if self._with_texts else format_traceback(error)
        return "\n".join(part for part in (trace, record.stack_info) if part)


class JsonFormatter(TextFormatter):
    """Formats an entry as a JSON object: `time`, `level`, `logger`, `message`, log context, and `trace` for errors."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
            **get_log_context(),
        }
        if trace := self._trace(record):
            entry["trace"] = trace
        return json.dumps({name: self._clean(value) for name, value in entry.items()})


class _Output(logging.StreamHandler[TextIO]):
    """A log handler. If an entry cannot be formatted, logs its source location without its arguments."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        told = "an entry of the log was lost (%s), made at %s:%d"
        facts = (type(sys.exc_info()[1]).__name__, record.pathname, record.lineno)
        lost = logging.LogRecord(__name__, logging.ERROR, "", 0, told, facts, None)
        with suppress(OSError, ValueError):
            self.stream.write(f"{self.format(lost)}\n")


class FloodFilter(logging.Filter):
    """Passes at most LINES_A_MINUTE warnings and errors of one kind in a minute, so that neither a flood of requests
    nor an outage fills the disk.

    The last line that passes says that others are left out. The first line of a later minute says how many were left
    out."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        name = record.name, str(record.msg).partition("\n")[0]
        kind = self._kinds.get(name)
        if kind is None or record.created - kind.began_at >= FLOOD_SECONDS:
            record.left_out = f" ({kind.count - LINES_A_MINUTE} more were left out)" if kind and kind.is_flood else ""
            self._kinds[name] = _Kind(record.created)
            return True
        kind.count += 1
        record.left_out = " (others like it are left out for a minute)" if kind.count == LINES_A_MINUTE else ""
        return not kind.is_flood


@dataclass(slots=True)
class _Kind:
    """Entries with the same logger and message since `began_at`, a Unix time."""

    began_at: float
    count: int = 1

    @property
    def is_flood(self) -> bool:
        return self.count > LINES_A_MINUTE


def _raised(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def configure_logging(
    level: str, secrets: Iterable[str] = (), log_format: Literal["text", "json"] = "text", *, file: Path | None = None
) -> None:
    """Sends all log entries of this process to stderr, or adds them to `file`, and redacts `secrets`.

    Unless the level is DEBUG, libraries log only warnings and errors, and the messages of library exceptions are
    removed."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    output = _Output(sys.stderr if file is None else file.open("a", encoding="utf-8"))
    output.addFilter(FloodFilter())
    lines = JsonFormatter if log_format == "json" else TextFormatter
    output.setFormatter(lines(secrets, with_texts=level == "DEBUG"))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "DEBUG" else max(logging.WARNING, root.level))


def log_uncaught_errors(file: Path | None = None) -> None:
    """Logs uncaught exceptions of the program and its threads, instead of printing their tracebacks to stderr.

    If the log goes to `file`, a line on stderr names the file."""
    previous = sys.excepthook

    def of_program(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            log.critical("the program broke", exc_info=(kind, error, trace))
            if file is not None:
                sys.stderr.write(f"threadhand: the program broke. The details are in {file}.\n")
        else:
            previous(kind, error, trace)

    def of_thread(told: threading.ExceptHookArgs) -> None:
        if told.exc_value is not None:
            log.error("a thread broke", exc_info=told.exc_value)

    def of_nobody(told: "sys.UnraisableHookArgs") -> None:
        log.error("an error could not be raised", exc_info=told.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = of_program, of_thread, of_nobody


def add_log_secrets(secrets: Iterable[str]) -> None:
    """Adds secrets to redact that were not known when logging was configured."""
    for output in logging.getLogger().handlers:
        if isinstance(output.formatter, TextFormatter):
            output.formatter.add_secrets(secrets)
