"""Prompt caching marks: where a provider that wants to be told may keep what it has read."""

import re
from collections.abc import Sequence

from core.domain.messages import JsonObject

TAIL_MARKS = 2
"""One at the end and one where the last call ended; with the system prompt's, three of the four that are allowed."""
_EXPLICIT = re.compile(r"claude|anthropic", re.IGNORECASE)
_MARK: JsonObject = {"type": "ephemeral"}


def with_cache_marks(model: str, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages with Anthropic's `cache_control` on the system prompt and the last two that are no model's own.

    Other models get them as they are: they cache by themselves, or not at all.
    """
    if not _EXPLICIT.search(model):
        return list(messages)
    marked = list(messages)
    chosen = [i for i, one in enumerate(marked) if one.get("role") == "system"][:1]
    tail = [i for i, one in enumerate(marked) if one.get("role") in ("user", "tool")]
    for index in {*chosen, *tail[-TAIL_MARKS:]}:
        marked[index] = _marked(marked[index])
    return marked


def _marked(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": [{"type": "text", "text": content, "cache_control": _MARK}]}
    if isinstance(content, list) and content and isinstance(last := content[-1], dict):
        return {**message, "content": [*content[:-1], {**last, "cache_control": _MARK}]}
    return message
