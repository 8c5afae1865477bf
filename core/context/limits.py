"""The context limits of models: the window, and the part of it reserved for the answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimit:
    """`window`: the model's context window in tokens. `reserved`: the tokens of it kept free for the answer."""

    window: int
    reserved: int

    @property
    def room(self) -> int:
        """The tokens left for a request: system prompt, tools and conversation."""
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
"""The first pattern found in the model's name applies, so old models with small windows precede their family."""


ANSWER_SHARE = 3
"""An answer gets at most a third of the window unless the operator sets its size."""


def find_context_limit(model: str, known: Mapping[str, ContextLimit] | None = None) -> ContextLimit:
    """Returns the known limit of the model by its full name, else the limit of its family."""
    if known and (limit := known.get(model)):
        return limit
    name = model.rpartition("/")[2].lower()
    return next((limit for family, limit in _FAMILIES if re.search(family, name)), _UNKNOWN)


def with_overrides(
    limit: ContextLimit, *, window: int | None = None, reserved: int | None = None
) -> ContextLimit:
    """Applies the operator's window and answer sizes. A given window reserves at most a third for the answer."""
    size = window or limit.window
    if reserved is None:
        reserved = limit.reserved if window is None else min(limit.reserved, size // ANSWER_SHARE)
    return ContextLimit(window=size, reserved=min(reserved, size - 1))
