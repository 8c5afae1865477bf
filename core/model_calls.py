"""One call of a language model: what it is asked, and the pieces in which its answer comes."""

from dataclasses import dataclass
from typing import Literal

from core.domain.messages import JsonObject
from core.domain.threads import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `messages` are OpenAI-shaped; `tools` are function schemas, empty for text dialects."""

    model: str
    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...] = ()
    temperature: float | None = None
    output_tokens_max: int | None = None
    stop_sequences: tuple[str, ...] = ()
    is_streamed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    text: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a native call. `index` tells parallel calls apart; id and name may come once, late, or never."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """Always the last delta. `usage` is None where the provider tells none."""

    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage | None = None
    model: str | None = None


ModelDelta = TextDelta | ThinkingDelta | ToolCallDelta | ModelFinished
"""Where another model answers than the request's, the first delta and the last say in `model` which."""
