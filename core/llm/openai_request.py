"""Encodes chat requests as JSON, and caches encoded messages because each request repeats most of the previous one.

Marks the parts of the prompt that Anthropic's models should cache, on every service that runs these models."""

import re
from collections.abc import Iterable

from core.domain.json import JsonObject
from core.llm.message_rules import adapt_messages
from core.llm.openai_answer import to_json
from core.llm.reasoning import NEEDED_FIELDS, STAND_INS, ReasoningOrigin, build_wire_message, kept_names
from core.ports import ModelRequest

CACHE_BYTES_MAX = 4 * 1024 * 1024
CACHED_MESSAGE_BYTES_MAX = 128 * 1024
"""Larger messages are not cached, so that the cache has room for the many small messages of a conversation."""
_NOT_TAKEN = re.compile(
    r"un(?:supported|recogni[sz]ed|known|expected)|not (?:\w+ )?(?:supported|permitted|allowed|recogni[sz]ed)"
    r"|n(?:o|')t support|extra (?:fields|inputs|argument)|deprecated|only \S{1,9} is allowed|only be set to",
    re.IGNORECASE,
)
_IS_MISSING = re.compile(r"missing|required|must be (?:passed|sent|provided)", re.IGNORECASE)
"""Matches the errors of DeepSeek, Kimi and Gemini about a message without a field of STAND_INS."""
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
CACHE_FIELD = "cache_control"
CLAUDE = re.compile(r"claude|anthropic", re.IGNORECASE)
_MARK: JsonObject = {"type": "ephemeral"}


class RequestEncoder:
    """Encodes requests to one service, and remembers which options each model rejects or demands.

    Caches the JSON of recently sent messages and tools by the identity of the object. This is safe because these
    objects are never modified, and because the cache keeps a reference so that no other object gets the same id."""

    __slots__ = (
        "_demanded", "_kept", "_model_prefix", "_not_taken",
        "_provider", "_tokens_key", "cached_bytes",
    )  # fmt: skip

    _messages_key = b"messages"

    def __init__(self, *, provider: str, model_prefix: str, tokens_key: str) -> None:
        self._provider = provider
        self._model_prefix = model_prefix
        self._demanded: dict[str, set[str]] = {}
        self._tokens_key = tokens_key
        self._kept: dict[int, tuple[JsonObject, bytes, str]] = {}
        self._not_taken: dict[str, set[str]] = {}
        self.cached_bytes = 0

    def adapt_to_refusal(self, request: ModelRequest, refusal: str) -> bool:
        """Adapts later requests to the service's error message. Returns whether this has changed anything.

        If the model does not support an option or a field of messages, later requests to it omit the option, or send it
        under its other name. If it demands a field of STAND_INS in messages that it did not write, they contain it."""
        model = request.model
        missing = {field for field in STAND_INS if field in refusal and _IS_MISSING.search(refusal)}
        if missing:
            demanded = self._demanded.setdefault(model, set())
            is_new = not missing <= demanded
            demanded |= missing
            self._forget_all()
            return is_new
        not_taken = self._not_taken.setdefault(model, set())
        kept = kept_names(request.messages, ReasoningOrigin(self._provider, model))
        named: set[str] = set()
        if _NOT_TAKEN.search(refusal):
            options = self._options(request).keys() - {"model", "stream"}
            named = {option for option in options if re.search(rf"\b{option}\b", refusal)}
            # quoted or part of a path, because the words also occur in sentences about the model
            named |= {
                name
                for name in {CACHE_FIELD, *kept}
                if name in refusal and re.search(rf"['\"`.]{re.escape(name)}\b", refusal)
            }
        # if the service names nothing new, the fields that only it understands are the likeliest reason
        named = named - not_taken or kept - NEEDED_FIELDS - not_taken
        not_taken |= named
        self._forget_all()
        return bool(named)

    def body(self, request: ModelRequest) -> bytes:
        """Returns the request's HTTP body."""
        parts = [to_json(self._options(request))[:-1]]
        parts += (b',"', self._messages_key, b'":[', b",".join(self._messages(request)), b"]")
        if request.tools:
            parts += (b',"tools":[', b",".join(self._encoded(request.tools, request.model)), b"]")
        parts.append(b"}")
        return b"".join(parts)

    def _options(self, request: ModelRequest) -> dict[str, object]:
        options: dict[str, object] = {
            "model": request.model.removeprefix(self._model_prefix),
            "stream": request.is_streamed,
        }
        if request.is_streamed:
            options["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.output_tokens_max is not None:
            options[self._tokens_key] = request.output_tokens_max
        if request.stop_sequences:
            options["stop"] = request.stop_sequences
        if (wanted := request.options) is not None:
            if wanted.effort is not None:
                options["reasoning_effort"] = wanted.effort
            if wanted.tool_choice is not None and request.tools:
                options["tool_choice"] = wanted.tool_choice
            options |= wanted.extra
        if not_taken := self._not_taken.get(request.model):
            taken = {name: value for name, value in options.items() if name not in not_taken}
            renamed = {
                other: options[name]
                for name, other in _OTHER_NAMES.items()
                if name in options and name in not_taken and other not in not_taken
            }
            return taken | renamed
        return options

    def _messages(self, request: ModelRequest) -> list[bytes]:
        messages = adapt_messages(request.model, request.messages)
        encoded = self._encoded(messages, request.model)
        if CACHE_FIELD not in self._not_taken.get(request.model, ()):
            for place in cache_mark_places(request):
                encoded[place] = to_json(with_cache_mark(self._wire(messages[place], request.model)))
        return encoded

    def _encoded(self, values: Iterable[JsonObject], model: str) -> list[bytes]:
        kept, parts = self._kept, list[bytes]()
        for value in values:
            if (known := kept.get(id(value))) is not None and known[2] == model:
                parts.append(known[1])
                continue
            encoded = self._json(value, model)
            parts.append(encoded)
            if len(encoded) <= CACHED_MESSAGE_BYTES_MAX:
                self._forget(id(value))
                kept[id(value)] = (value, encoded, model)
                self.cached_bytes += len(encoded)
                while self.cached_bytes > CACHE_BYTES_MAX:
                    self._forget(next(iter(kept)))
        return parts

    def _forget(self, key: int) -> None:
        if (known := self._kept.pop(key, None)) is not None:
            self.cached_bytes -= len(known[1])

    def _forget_all(self) -> None:
        self._kept.clear()
        self.cached_bytes = 0

    def _json(self, value: JsonObject, model: str) -> bytes:
        """Returns a message or tool as the API takes it. The Responses API has other forms."""
        return to_json(self._wire(value, model))

    def _wire(self, value: JsonObject, model: str) -> JsonObject:
        return build_wire_message(
            value,
            ReasoningOrigin(self._provider, model),
            refused=frozenset(self._not_taken.get(model, ())),
            demanded=frozenset(self._demanded.get(model, ())),
        )


def cache_mark_places(request: ModelRequest) -> frozenset[int]:
    """Returns the indexes of the messages to mark; empty for models that cache by themselves or not at all.

    The marks are on the system prompt, on the last message that later requests repeat, and where the request before
    this one ended. Anthropic allows four."""
    if not CLAUDE.search(request.model) or not request.messages:
        return frozenset()
    roles = [one.get("role") for one in request.messages]
    end = (request.stable_messages or len(roles)) - 1
    newest_answer = max((at for at in range(end + 1) if roles[at] == "assistant"), default=0)
    system = {0} if roles[0] == "system" else set[int]()
    return frozenset(system | {end} | ({newest_answer - 1} if newest_answer else set()))


def with_cache_mark(message: JsonObject) -> JsonObject:
    """Returns the message with a cache mark on its last part, or unchanged if it has no content."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": [{"type": "text", "text": content, CACHE_FIELD: _MARK}]}
    if isinstance(content, list) and content and isinstance(last := content[-1], dict):
        return {**message, "content": [*content[:-1], {**last, CACHE_FIELD: _MARK}]}
    return message
