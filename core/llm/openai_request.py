"""Writing the JSON of requests: a conversation grows by a few messages a turn, and only those are encoded."""

import re
from collections.abc import Iterable

from core.domain.messages import JsonObject
from core.llm.openai_answer import to_json
from core.ports import ModelRequest

CACHE_BYTES_MAX = 4 * 1024 * 1024
CACHED_MESSAGE_BYTES_MAX = 128 * 1024
"""A larger message is encoded each time: what is kept is for the many small ones of a history."""
_NOT_TAKEN = re.compile(
    r"un(?:supported|recogni[sz]ed|known|expected)|not (?:\w+ )?(?:supported|permitted|allowed|recogni[sz]ed)"
    r"|n(?:o|')t support|extra (?:fields|inputs|argument)",
    re.IGNORECASE,
)
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class RequestEncoder:
    """State: the JSON of messages and tools that were sent lately, and the options that models do not take.

    It is found by the identity of the object, which is never changed once it is inside a message, and is held along
    with its JSON so that no other object can have its id.
    """

    __slots__ = ("_kept", "_model_prefix", "_not_taken", "_tokens_key", "cached_bytes")

    def __init__(self, *, model_prefix: str, tokens_key: str) -> None:
        self._model_prefix = model_prefix
        self._tokens_key = tokens_key
        self._kept: dict[int, tuple[JsonObject, bytes]] = {}
        self._not_taken: dict[str, set[str]] = {}
        self.cached_bytes = 0

    def drop_rejected_options(self, request: ModelRequest, refusal: str) -> bool:
        """Whether the words name an option of the request as one that is not taken: later requests to the model go
        without it, or with its other name. They are the service's own, and nothing but an option is left out."""
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
        """The request as it goes over the wire."""
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
    """A stored message as providers accept it: none of them takes an empty `tool_calls`."""
    if "tool_calls" in message and not message["tool_calls"]:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return message
