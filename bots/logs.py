"""The program's log: one line an entry on stderr, as text or JSON, without anything that looks like a secret."""

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from core.log_marks import marks

_SECRET_SHAPES = re.compile(
    r"""(?x)
    (?:xox[a-z]|xapp|xoxe\.xox[a-z])-[\w-]{6,}          # Slack
    | \b[MNO][A-Za-z\d_-]{22,28}\.[\w-]{5,8}\.[\w-]{25,}  # Discord
    | \bsk-[\w-]{8,} | \b(?:fc|tvly|gsk|AIza|ghp|glpat)[-_]?[\w-]{16,}  # model, search and code hosts
    | (?<=://)[^\s/:@]*:[^\s/@]+(?=@)                     # user:password in a URL
    """
)
_BEARER = re.compile(r"(?i)\b(bearer|bot|basic)\s+[\w.~+/=-]{12,}")
_INPUT_VALUES = re.compile(r"input_value=.*?, input_type=", re.DOTALL)
"""What did not fit, as pydantic's errors quote it: mostly what people or models wrote."""
_QUIET = (
    "discord",
    "saq",
    "slack_bolt",
    "slack_sdk",
    "aiohttp.access",
    "litellm",
    "httpx",
    "alembic",
)
REDACTED = "[redacted]"
SECRET_CHARACTERS_MIN = 8
"""Shorter values stand in ordinary lines too."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given secrets and without anything shaped like one."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    text = _INPUT_VALUES.sub("input_value=..., input_type=", text)
    return _BEARER.sub(rf"\1 {REDACTED}", _SECRET_SHAPES.sub(REDACTED, text))


class OneLine(logging.Formatter):
    """`time level logger message key=value`, the keys being marks; a traceback is joined to its entry by ⏎."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets: tuple[str, ...] = ()
        self.keep_out(secrets)

    def keep_out(self, secrets: Iterable[str]) -> None:
        """Takes these out, too; longer ones first, since one may be part of another."""
        known = {secret for secret in secrets if len(secret) >= SECRET_CHARACTERS_MIN}
        self._secrets = tuple(sorted(known | set(self._secrets), key=lambda one: (-len(one), one)))

    def format(self, record: logging.LogRecord) -> str:
        """The whole entry on one line, redacted last so that no part of it is missed."""
        text = f"{_moment(record)} {record.levelname.lower()} {record.name} {record.getMessage()}"
        text += "".join(f" {name}={value}" for name, value in marks().items())
        if trace := self._trace(record):
            text += "\n" + trace
        return self._clean(text).replace("\r", "").replace("\n", " ⏎ ")

    def _clean(self, text: str) -> str:
        return redact(text, self._secrets)

    def _trace(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else ""
        return "\n".join(part for part in (error, record.stack_info) if part)


class JsonLines(OneLine):
    """An object a line: `time`, `level`, `logger`, `message`, the marks, and `trace` where something was raised."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **marks(),
        }
        if trace := self._trace(record):
            entry["trace"] = trace
        return json.dumps({name: self._clean(value) for name, value in entry.items()})


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def configure(
    level: str, secrets: Iterable[str] = (), log_format: Literal["text", "json"] = "text"
) -> None:
    """Sends the log of the whole process to stderr; libraries speak from WARNING on unless the level is DEBUG."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonLines(secrets) if log_format == "json" else OneLine(secrets))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(
            logging.NOTSET if level == "DEBUG" else max(logging.WARNING, root.level)
        )


def keep_out(secrets: Iterable[str]) -> None:
    """Takes secrets out of the log that were not known when it was configured."""
    for output in logging.getLogger().handlers:
        if isinstance(output.formatter, OneLine):
            output.formatter.keep_out(secrets)
