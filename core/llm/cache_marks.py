"""Marks where providers with explicit prompt caches shall keep the prompt: Anthropic's models, wherever they run."""

import re

from core.domain.messages import JsonObject
from core.ports import ModelRequest

CACHE_FIELD = "cache_control"
_EXPLICIT = re.compile(r"claude|anthropic", re.IGNORECASE)
_MARK: JsonObject = {"type": "ephemeral"}


def cache_mark_places(request: ModelRequest) -> frozenset[int]:
    """Returns the indexes of the messages to mark; empty for models that cache by themselves or not at all.

    The marks are on the system prompt, on the last message that later requests repeat, and where the request before
    this one ended. Anthropic allows four."""
    if not _EXPLICIT.search(request.model) or not request.messages:
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
