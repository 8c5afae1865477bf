"""Context limits of models: the size of the context window, and how many of its tokens are reserved for the answer."""

import logging
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.context.message_text import content_text
from core.domain.threads import Usage
from core.ports import ModelRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimit:
    """A model's context window in tokens, and how many of these tokens are reserved for the answer. `source` says where
    the size comes from. It completes the sentence "the size of the window is"."""

    window: int
    reserved: int
    source: str = field(default="known for this model", compare=False)

    @property
    def room(self) -> int:
        """The number of tokens available to the system prompt, the tools and the conversation; at least 1."""
        return max(1, self.window - self.reserved)


ASSUMED = "assumed, because the model is unknown"
_UNKNOWN = ContextLimit(window=41_000, reserved=10_000, source=ASSUMED)
_FAMILIES = {
    "gpt-3\\.5": (16_385, 4_096),
    "gpt-4$": (8_192, 2_048),
    "sonnet|claude": (200_000, 64_000),
    "gpt": (128_000, 28_000),
    "gemini": (1_000_000, 300_000),
    "deepseek|kimi|glm|minimax|grok": (128_000, 28_000),
    "llama-?(3\\.[1-9]|[4-9])|gemma-?[3-9]|mistral-(small|medium|large)": (128_000, 28_000),
    "qwen|mi[sx]tral": (32_768, 8_192),
}
"""Windows and reserved tokens by regular expression. The first pattern that matches the model's name applies, so
specific patterns come first. If the models of a family differ, the size is one of the smaller ones."""
WINDOW_MIN = 16_000
"""In a smaller window, the instructions and the tools leave no room for a conversation."""
_MARKS = re.compile(r"\d{2}|\d{4}|\d{6}|\d{8}|i?q\d\w*|[bm]?x?fp\d+|bf16|int\d|[48]bit|awq|gptq|gguf|mlx|latest")
"""The last parts of a model's name that stand for a date or a quantisation."""
ANSWER_SHARE = 3
"""If only the window size is configured, at most one third of the window is reserved for the answer."""


def bare_name(model: str) -> str:
    """Returns the name in lower case without providers, tag, dates and quantisation: "kimi-k2" for
    "openrouter/moonshotai/Kimi-K2-0905:free"."""
    name = model.lower().rpartition("/")[2]
    parts = re.split("[:@]", name)[0].removesuffix(".gguf").split("-")
    while len(parts) > 1 and _MARKS.fullmatch(parts[-1]):
        parts.pop()
    return "-".join(parts)


def limits_by_bare_name(limits: Mapping[str, ContextLimit]) -> dict[str, ContextLimit]:
    """Returns one limit for each bare name. If providers differ, it is one of the smaller limits, but not the smallest,
    which is often wrong.

    Windows below WINDOW_MIN are left out, because many of them are the default of a service and can be raised."""
    found: defaultdict[str, list[ContextLimit]] = defaultdict(list)
    for name, limit in limits.items():
        if limit.window >= WINDOW_MIN:
            found[bare_name(name)].append(limit)
    return {
        name: replace(
            sorted(ones, key=lambda one: one.window)[(len(ones) - 1) // 4], source="known for models of this name"
        )
        for name, ones in found.items()
    }


def find_context_limit(model: str, known: Mapping[str, ContextLimit] | None = None) -> ContextLimit:
    """Returns the limit that `known` contains under the model's full or bare name. Otherwise returns the limit of its
    family."""
    name = bare_name(model)
    if known and (limit := known.get(model) or known.get(name)):
        return limit
    sizes = next((sizes for family, sizes in _FAMILIES.items() if re.search(family, name)), None)
    return (
        ContextLimit(window=sizes[0], reserved=sizes[1], source="usual for the model's family") if sizes else _UNKNOWN
    )


def with_overrides(limit: ContextLimit, *, window: int | None = None, reserved: int | None = None) -> ContextLimit:
    """Returns the limit with the configured window and answer sizes, in tokens; None keeps the model's own size.

    If only the window is given, at most a third of it is reserved for the answer."""
    size = window or limit.window
    if reserved is None:
        reserved = limit.reserved if window is None else min(limit.reserved, size // ANSWER_SHARE)
    source = limit.source if window is None else "set by the operator"
    return ContextLimit(window=size, reserved=min(reserved, size - 1), source=source)


SUSPECT_CHARACTERS = 8
"""The words of a request are counted only if there are more characters than this for each token that was read."""
CUT_PERCENT = 80
"""A service has truncated a request if it reports fewer tokens than this percentage of the request's words. No common
tokenizer turns two words into one token, so this rule does not depend on an estimate."""


class ObservedWindows:
    """The windows of services that truncate long requests without an error, as Ollama does with `num_ctx`. They are
    forgotten when the program ends."""

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}
        self._cut: set[str] = set()

    def observe(self, request: ModelRequest, usage: Usage) -> None:
        """Compares the usage of a response with the text of its request. Logs a warning the first time that a model's
        request was truncated."""
        model = request.model
        # some services do not count cached tokens as input
        read = usage.input_tokens + usage.cached_tokens + usage.written_tokens
        largest = self._largest[model] = max(read, self._largest.get(model, 0))
        texts = [content_text(message.get("content")) for message in request.messages]
        if model in self._cut or not usage.input_tokens or sum(map(len, texts)) < SUSPECT_CHARACTERS * largest:
            return
        words = sum(len(text.split()) for text in texts)
        if largest * 100 < words * CUT_PERCENT and words > WINDOW_MIN // 10:
            self._cut.add(model)
            log.warning(
                "the service of %s has read %s tokens of a request with %s words: it cuts requests to a window of its"
                " own without an error. Raise that window (in Ollama: num_ctx), or set THREADHAND_CONTEXT_TOKENS to it."
                " Until the program ends, requests to this model are shortened to %s tokens.",
                *(model, f"{read:,}", f"{words:,}", f"{max(largest, WINDOW_MIN):,}"),
            )

    def lower_limit(self, limit: ContextLimit, model: str) -> ContextLimit:
        """Returns the limit, with a smaller window if the service of the model truncates requests."""
        window = max(self._largest[model], WINDOW_MIN) if model in self._cut else limit.window
        if window >= limit.window:
            return limit
        source = "all that its service reads of a longer request"
        return replace(with_overrides(limit, window=window), source=source)
