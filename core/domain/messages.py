"""What a conversation is made of: tool calls, stored messages, and their shape for a model."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from core.domain.ids import new_id

JsonObject = dict[str, JsonValue]
"""A JSON object as it is stored and sent; never mutated once it is inside a message."""

MessageType = Literal[
    "user", "assistant", "tool", "status", "browser_state", "image_context", "summary"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call as the model wrote it, whatever the dialect.

    `call_id` is the model's own id, or one that we made where it gave none. `raw` is the text of the call (XML, or the
    JSON of the arguments). `problem` is set when the call could not be parsed: it is then answered with that sentence
    and never run, and `arguments` is empty.
    """

    name: str
    arguments: JsonObject
    call_id: str
    raw: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a thread. `content` is what a model is sent when `is_llm_message`: `{"role", "content", ...}`.

    `sequence` is 0 until the store numbers the message within its thread.
    """

    type: MessageType
    content: JsonObject
    is_llm_message: bool
    thread_id: str
    run_id: str | None = None
    metadata: JsonObject = field(default_factory=dict[str, JsonValue])
    sequence: int = 0
    token_count: int = 0
    message_id: str = field(default_factory=new_id)
    agent_id: str | None = None
    agent_version_id: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
