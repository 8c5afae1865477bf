"""Calls that people must allow: what they are asked, the answers that count, and what the model is told."""

from dataclasses import dataclass

from core.threads import Ask

APPROVE_ONCE = "Approve once"
APPROVE_ALWAYS = "Always in this thread"
DENY = "Deny"
CHOICES = (APPROVE_ONCE, APPROVE_ALWAYS, DENY)
NOBODY_APPROVED = "Not run: nobody has approved it. Call it again if it is still needed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a run waits for: the calls of one turn that need a yes. `reasons` are lines for people."""

    turn_id: str
    tools: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """The question as people see it."""
        lines = "\n".join(f"- {reason}" for reason in self.reasons)
        return f"May I do this?\n{lines}\n\nAny other answer than a button's counts as a no."

    @property
    def subject(self) -> str:
        """As it is stored with the ask."""
        return " ".join((self.turn_id, *dict.fromkeys(self.tools)))


def tools_always_allowed(ask: Ask) -> frozenset[str]:
    """What the answer allows for the rest of the thread."""
    is_always = ask.kind == "approval" and choice_of(ask.answer or "") == APPROVE_ALWAYS
    return frozenset(ask.subject.split()[1:]) if is_always else frozenset()


def choice_of(answer: str) -> str | None:
    """The button that the words are those of; None: a no, in the person's own words."""
    said = " ".join(answer.split()).casefold()
    return next((choice for choice in CHOICES if choice.casefold() == said), None)


def objection(ask: Ask | None, turn_id: str) -> str | None:
    """Why the calls of the turn may not run, for the model; None: they may."""
    if ask is None or ask.state != "answered" or not ask.subject.startswith(f"{turn_id} "):
        return NOBODY_APPROVED
    choice = choice_of(ask.answer or "")
    if choice in (APPROVE_ONCE, APPROVE_ALWAYS):
        return None
    who = ask.answered_by.name if ask.answered_by else "A person"
    if choice == DENY:
        return f"Not run: {who} denied it. Do not try it again; find another way or ask."
    return f"Not run: {who} denied it, with the words: {ask.answer}"
