"""Tool calls that need people's approval: the question, the valid answers, and the refusal that the model receives."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from core.domain.messages import JsonObject
from core.domain.threads import Ask

APPROVE_ONCE = "Approve once"
APPROVE_ALWAYS = "Always in this thread"
DENY = "Deny"
CHOICES = (APPROVE_ONCE, APPROVE_ALWAYS, DENY)
NOBODY_APPROVED = "Not run: no one has approved it. Call it again if it is still needed."
EXPIRED = "No one approved it in time, so I did not do it. Press Retry if it is still needed."
REASONS_CHARACTERS_MAX = 1600
"""Limits the question so that it fits into one message on every platform. People must see everything that they
approve."""
REASONS_SHOWN_MAX = 16
ARGUMENTS_CHARACTERS_MAX = 1200
VALUE_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The tool calls of one turn that need approval. `reasons` are lines that describe them to people."""

    turn_id: str
    tools: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """The question that people see."""
        lines = "\n".join(f"- {line}" for line in _shown(self.reasons))
        return f"May I do this?\n{lines}"

    @property
    def summary(self) -> str:
        """The calls that need approval, in one line."""
        first = self.reasons[0] if self.reasons else "a tool"
        more = f" and {len(self.reasons) - 1} more" if len(self.reasons) > 1 else ""
        return f"{_cut(first, 120)}{more}"

    @property
    def subject(self) -> str:
        """The turn id and the tool names, separated by spaces, as stored with the ask."""
        return " ".join((self.turn_id, *dict.fromkeys(self.tools)))


def describe_call(title: str, arguments: JsonObject) -> str:
    """Returns one line of Markdown that shows the call with its arguments to the approver. Long values are cut."""
    parts: list[str] = []
    room = ARGUMENTS_CHARACTERS_MAX
    for at, (name, value) in enumerate(arguments.items()):
        part = f"{_cut(_plain(name), 60)} `{_cut(_plain(value), VALUE_CHARACTERS_MAX)}`"
        room -= len(part)
        if room < 0 and parts:
            parts.append(f"and {len(arguments) - at} more values that do not fit here")
            break
        parts.append(part)
    return f"{title}, with {', '.join(parts)}" if parts else title


def tools_always_allowed(ask: Ask) -> frozenset[str]:
    """Returns the tools that the answer allows for the rest of the thread."""
    is_always = ask.kind == "approval" and parse_choice(ask.answer or "") == APPROVE_ALWAYS
    return frozenset(ask.subject.split()[1:]) if is_always else frozenset()


def parse_choice(answer: str) -> str | None:
    """Returns the button whose label equals the answer, or None. None counts as a denial in the person's own words."""
    said = " ".join(answer.split()).casefold()
    return next((choice for choice in CHOICES if choice.casefold() == said), None)


def is_allowed(ask: Ask) -> bool:
    """Returns whether the answer approves the calls."""
    return ask.state == "answered" and parse_choice(ask.answer or "") in (
        APPROVE_ONCE,
        APPROVE_ALWAYS,
    )


def is_about_turn(ask: Ask | None, turn_id: str) -> bool:
    """Returns whether the ask concerns the calls of that turn."""
    return ask is not None and ask.subject.startswith(f"{turn_id} ")


def refusal_reason(ask: Ask | None, turn_id: str) -> str | None:
    """Returns the reason, written for the model, why the turn's calls may not run, or None if they may."""
    if ask is None or ask.state != "answered" or not is_about_turn(ask, turn_id):
        return NOBODY_APPROVED
    if is_allowed(ask):
        return None
    who = ask.answered_by.name if ask.answered_by else "A person"
    if parse_choice(ask.answer or "") == DENY:
        return f"Not run: {who} denied it. Do not try it again; find another way or ask."
    return f"Not run: {who} denied it, with the words: {ask.answer}"


def _shown(reasons: Sequence[str]) -> Iterator[str]:
    """Yields a line for each reason. All lines have the same maximum length, so that a long reason cannot crowd out
    others."""
    shown = reasons[:REASONS_SHOWN_MAX]
    share = REASONS_CHARACTERS_MAX // max(1, len(shown))
    yield from (_cut(reason, share) for reason in shown)
    if len(reasons) > len(shown):
        yield f"and {len(reasons) - len(shown)} more calls that do not fit here"


def _plain(value: JsonValue) -> str:
    """Returns the value on one line, without backticks, which would end inline code in Markdown."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("`", "'") or " "


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"
