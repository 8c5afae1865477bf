"""How much a model may be sent: its window less what is reserved for its answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimit:
    """Tokens that a model takes in at all, and those of them that its answer may need."""

    window: int
    reserved: int

    @property
    def room(self) -> int:
        """What a request may hold: system prompt, tools and conversation."""
        return max(1, self.window - self.reserved)


_UNKNOWN = ContextLimit(window=41_000, reserved=10_000)
_FAMILIES = (
    ("gpt-3\\.5", ContextLimit(window=16_385, reserved=4_096)),
    ("gpt-4(-0613|-0314)?$", ContextLimit(window=8_192, reserved=2_048)),
    ("sonnet|claude", ContextLimit(window=200_000, reserved=64_000)),
    ("gpt", ContextLimit(window=128_000, reserved=28_000)),
    ("gemini", ContextLimit(window=1_000_000, reserved=300_000)),
    ("deepseek", ContextLimit(window=128_000, reserved=28_000)),
)
"""The first that is found in the model's name holds; the narrow windows of old models stand before their family."""


ANSWER_SHARE = 3
"""Where nobody says what an answer needs, it gets a third of the window at most."""


def find_context_limit(model: str, known: Mapping[str, ContextLimit] | None = None) -> ContextLimit:
    """What is known for the model by its whole name, else what holds for its family."""
    if known and (limit := known.get(model)):
        return limit
    name = model.rpartition("/")[2].lower()
    return next((limit for family, limit in _FAMILIES if re.search(family, name)), _UNKNOWN)


def with_overrides(
    limit: ContextLimit, *, window: int | None = None, reserved: int | None = None
) -> ContextLimit:
    """The limit as the operator has it: a smaller window leaves an answer a third of it, if nothing else is said."""
    size = window or limit.window
    if reserved is None:
        reserved = limit.reserved if window is None else min(limit.reserved, size // ANSWER_SHARE)
    return ContextLimit(window=size, reserved=min(reserved, size - 1))
