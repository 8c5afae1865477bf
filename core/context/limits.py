"""Context limits of models: the size of the context window, and how many of its tokens are reserved for the answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimit:
    """A model's context window in tokens, and how many of these tokens are reserved for the answer. `source` completes
    the sentence "the size of the window is"."""

    window: int
    reserved: int
    source: str = field(default="known for this model", compare=False)

    @property
    def room(self) -> int:
        """The number of tokens available to the system prompt, the tools and the conversation; at least 1."""
        return max(1, self.window - self.reserved)


ASSUMED = "assumed, because the model is unknown"
_UNKNOWN = ContextLimit(window=41_000, reserved=10_000, source=ASSUMED)
_FAMILIES = (
    ("gpt-3\\.5", ContextLimit(window=16_385, reserved=4_096)),
    ("gpt-4(-0613|-0314)?$", ContextLimit(window=8_192, reserved=2_048)),
    ("sonnet|claude", ContextLimit(window=200_000, reserved=64_000)),
    ("gpt", ContextLimit(window=128_000, reserved=28_000)),
    ("gemini", ContextLimit(window=1_000_000, reserved=300_000)),
    ("deepseek", ContextLimit(window=128_000, reserved=28_000)),
)
"""Limits by regular expression. The first match in the model's name applies, so specific patterns come first."""


ANSWER_SHARE = 3
"""If only the window size is configured, at most one third of the window is reserved for the answer."""


def find_context_limit(model: str, known: Mapping[str, ContextLimit] | None = None) -> ContextLimit:
    """Returns the limit listed in `known` under the model's full name, else the limit of the model's family."""
    if known and (limit := known.get(model)):
        return limit
    name = model.rpartition("/")[2].lower()
    found = next((limit for family, limit in _FAMILIES if re.search(family, name)), None)
    return replace(found, source="usual for the model's family") if found else _UNKNOWN


def with_overrides(limit: ContextLimit, *, window: int | None = None, reserved: int | None = None) -> ContextLimit:
    """Returns the limit with the configured window and answer sizes, in tokens; None keeps the model's own size.

    If only the window is given, at most a third of it is reserved for the answer."""
    size = window or limit.window
    if reserved is None:
        reserved = limit.reserved if window is None else min(limit.reserved, size // ANSWER_SHARE)
    source = limit.source if window is None else "set by the operator"
    return ContextLimit(window=size, reserved=min(reserved, size - 1), source=source)
