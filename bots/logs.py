"""The program's log: one line an entry on stderr, with everything that looks like a secret taken out."""

import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

_SECRET_SHAPES = re.compile(
    r"""(?x)
    (?:xox[a-z]|xapp|xoxe\.xox[a-z])-[\w-]{6,}          # Slack
    | \b[MNO][A-Za-z\d_-]{22,28}\.[\w-]{5,8}\.[\w-]{25,}  # Discord
    | \bsk-[\w-]{8,} | \b(?:fc|tvly|gsk|AIza|ghp|glpat)[-_]?[\w-]{16,}  # model, search and code hosts
    | (?<=://)[^\s/:@]*:[^\s/@]+(?=@)                     # user:password in a URL
    """
)
_BEARER = re.compile(r"(?i)\b(bearer|bot|basic)\s+[\w.~+/=-]{12,}")
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
    return _BEARER.sub(rf"\1 {REDACTED}", _SECRET_SHAPES.sub(REDACTED, text))


class OneLine(logging.Formatter):
    """`time level logger message key=value`; a traceback is joined to its entry by ⏎."""

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
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = f"{moment} {record.levelname.lower()} {record.name} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + record.stack_info
        return redact(text, self._secrets).replace("\r", "").replace("\n", " ⏎ ")


def configure(level: str, secrets: Iterable[str] = ()) -> None:
    """Sends the log of the whole process to stderr; libraries speak from WARNING on unless the level is DEBUG."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(OneLine(secrets))
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
