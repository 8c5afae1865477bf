"""The kinds of message content that every chat platform renders: run status, answer part, question, notice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bots.delivery.markdown import truncate
from bots.delivery.run_view import RunView
from core.domain.approval import answerer_name, is_denied
from core.domain.outside_text import escape_markdown, shown_name
from core.domain.threads import Ask

FEEDBACK_LABELS = {"good": "Good answer", "bad": "Bad answer"}
"""The labels of the buttons under an answer, by the sign that their values and ids carry."""


CLOSED_UNANSWERED = {"withdrawn": "This question is no longer open.", "expired": "No one answered in time."}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The status message of a run. Its Stop, Retry and Continue buttons carry `run_id`."""

    run_id: str
    view: RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPart:
    """One message of an answer that may span several messages.

    `markdown` fits the platform's message limit. `part` counts from 1 to `parts`. The last part names its run, so that
    people can say whether it was good. With `is_plain` it is sent as mere text, because the platform fails otherwise.
    """

    markdown: str
    part: int = 1
    parts: int = 1
    run_id: str = ""
    is_plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPrompt:
    """A question with buttons or a select menu. An answered question shows who answered and the answer instead, and has
    the buttons of the `commands`, by their labels."""

    ask: Ask
    commands: Mapping[str, str] = field(default_factory=dict[str, str])


def answer_line(ask: Ask, *, answer_max: int) -> str:
    """Returns who answered a question and what, as Markdown."""
    is_no = ask.kind == "approval" and is_denied(ask)
    line = f"{'❌' if is_no else '✅'} **{shown_name(answerer_name(ask))}** answered"
    if ask.is_written_in_thread:
        return f"{line} in this thread."
    return f"{line}: {escape_markdown(truncate((ask.answer or '').strip(), answer_max)) or '…'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A short message in Markdown that the bot itself writes, not the model.

    It has a button for each of the `commands`, at most five, by their labels. A press does what the typed command does,
    such as `schedules pause k7m2xq`."""

    markdown: str
    level: Literal["info", "warning", "error"] = "info"
    commands: Mapping[str, str] = field(default_factory=dict[str, str])


Content = RunStatus | AnswerPart | AskPrompt | Notice
