"""What can be shown in a thread, whatever the platform: the closed union that every surface renders."""

from dataclasses import dataclass
from typing import Literal

from bots.delivery.run_view import RunView
from core.domain.threads import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The one status message of a run. `run_id` goes into the Stop, Retry and Continue buttons."""

    run_id: str
    view: RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPart:
    """One message of the answer: Markdown that fits the platform's limit. `part` counts from 1."""

    markdown: str
    part: int = 1
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPrompt:
    """A question with its buttons or select; once answered it shows who answered what, without controls."""

    ask: Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A short remark of the program itself, in Markdown."""

    markdown: str
    level: Literal["info", "warning", "error"] = "info"


Content = RunStatus | AnswerPart | AskPrompt | Notice
