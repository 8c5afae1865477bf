"""The kinds of message content that every chat platform renders: run status, answer part, question, notice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bots.delivery.markdown import truncate
from bots.delivery.run_view import RunView
from core.domain.approval import answerer_name, is_denied
from core.domain.outside_text import escape_markdown, escape_name
from core.domain.threads import Ask

FEEDBACK_LABELS = {"good": "Good answer", "bad": "Bad answer"}
"""The labels of the feedback buttons under an answer, by the rating that their values and ids contain."""


CLOSED_UNANSWERED = {"withdrawn": "This question is no longer open.", "expired": "No one answered in time."}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The status message of a run. Its Stop, Retry and Continue buttons carry `run_id`."""

    run_id: str
    view: RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPart:
    """One message of an answer that may span several messages.

    `markdown` fits the platform's message limit. `part` counts from 1 to `parts`. Only the last part has a `run_id`,
    with which users can rate the answer. `is_plain`: sent as plain text, because the platform fails at the Markdown."""

    markdown: str
    part: int = 1
    parts: int = 1
    run_id: str = ""
    is_plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPrompt:
    """A question with buttons or a select menu. Once answered, it shows who answered and what they answered instead,
    with a button for each of the `commands`, by label."""

    ask: Ask
    commands: Mapping[str, str] = field(default_factory=dict[str, str])


def answer_line(ask: Ask, *, answer_max: int) -> str:
    """Returns a line of Markdown that says who answered a question, and what they answered."""
    is_no = ask.kind == "approval" and is_denied(ask)
    line = f"{'❌' if is_no else '✅'} **{escape_name(answerer_name(ask))}** answered"
    if ask.is_written_in_thread:
        return f"{line} in this thread."
    return f"{line}: {escape_markdown(truncate((ask.answer or '').strip(), answer_max)) or '…'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A short Markdown message that is written by the bot itself, not by the model.

    `commands` maps the labels of its buttons, at most five, to commands such as `schedules pause k7m2xq`. Pressing a
    button runs its command."""

    markdown: str
    level: Literal["info", "warning", "error"] = "info"
    commands: Mapping[str, str] = field(default_factory=dict[str, str])


Content = RunStatus | AnswerPart | AskPrompt | Notice
