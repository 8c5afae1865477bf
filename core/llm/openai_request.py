"""Encodes chat requests as JSON, and caches encoded messages because each request repeats most of the previous one."""

import re
from collections.abc import Iterable

from core.domain.messages import JsonObject
from core.llm.openai_answer import to_json
from core.ports import ModelRequest

CACHE_BYTES_MAX = 4 * 1024 * 1024
CACHED_MESSAGE_BYTES_MAX = 128 * 1024
"""Larger messages are not cached, so that the cache has room for the many small messages of a conversation."""
_NOT_TAKEN = re.compile(
    r"un(?:supported|recogni[sz]ed|known|expected)|not (?:\w+ )?(?:supported|permitted|allowed|recogni[sz]ed)"
    r"|n(?:o|')t support|extra (?:fields|inputs|argument)",
    re.IGNORECASE,
)
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class RequestEncoder:
    """Encodes requests, and remembers which options each model rejects.

    Caches the JSON of recently sent messages and tools by the identity of the object. This is safe because these
    objects are never modified, and because the cache keeps a reference so that no other object gets the same id.
    """

    __slots__ = ("_kept", "_model_prefix", "_not_taken", "_tokens_key", "cached_bytes")

    def __init__(self, *, model_prefix: str, tokens_key: str) -> None:
        self._model_prefix = model_prefix
        self._tokens_key = tokens_key
        self._kept: dict[int, tuple[JsonObject, bytes]] = {}
        self._not_taken: dict[str, set[str]] = {}
        self.cached_bytes = 0

    def drop_rejected_options(self, request: ModelRequest, refusal: str) -> bool:
        """Returns whether the error message says that the model does not support one of the request's options.

        `refusal` is the service's own error message. Later requests to this model omit the option, or send it
        under its other name.
        """
        if not _NOT_TAKEN.search(refusal):
            return False
        named = {
            option
            for option in self._options(request)
            if option not in ("model", "stream") and re.search(rf"\b{option}\b", refusal)
        }
        self._not_taken.setdefault(request.model, set()).update(named)
        return bool(named)

    def body(self, request: ModelRequest) -> bytes:
        """Returns the request's HTTP body."""
        parts = [to_json(self._options(request))[:-1]]
        parts += (b',"messages":[', b",".join(self._encoded(request.messages)), b"]")
        if request.tools:
            parts += (b',"tools":[', b",".join(self._encoded(request.tools)), b"]")
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
        not_taken = self._not_taken.get(request.model)
        return _without(options, not_taken) if not_taken else options

    def _encoded(self, values: Iterable[JsonObject]) -> list[bytes]:
        kept = self._kept
        return [
            found[1] if (found := kept.get(id(value))) is not None else self._encode(value)
            for value in values
        ]

    def _encode(self, value: JsonObject) -> bytes:
        encoded = to_json(without_empty_tool_calls(value))
        if len(encoded) <= CACHED_MESSAGE_BYTES_MAX:
            self._kept[id(value)] = (value, encoded)
            self.cached_bytes += len(encoded)
            while self.cached_bytes > CACHE_BYTES_MAX:
                _, oldest = self._kept.pop(next(iter(self._kept)))
                self.cached_bytes -= len(oldest)
        return encoded


def _without(options: dict[str, object], not_taken: set[str]) -> dict[str, object]:
    kept = {name: value for name, value in options.items() if name not in not_taken}
    for name, other in _OTHER_NAMES.items():
        if name in options and name in not_taken and other not in not_taken:
            kept[other] = options[name]
    return kept


def without_empty_tool_calls(message: JsonObject) -> JsonObject:
    """Returns the message without an empty `tool_calls` field, because providers reject it."""
    if "tool_calls" in message and not message["tool_calls"]:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return message
