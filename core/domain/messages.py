"""Data types for the stored messages and tool calls of a conversation."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from core.domain.ids import new_id
from core.domain.json import JsonObject

REASONING_KEY = "reasoning_state"
"""Key of an assistant message's content: the model's reasoning as an opaque object, for requests to the same model."""

MessageType = Literal["user", "assistant", "tool", "status", "browser_state", "image_context", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call as the model wrote it, in any dialect.

    `call_id` is the model's own id, or a generated id if the model gave none. `raw` is the text of the call: XML, or
    the JSON of the arguments. If the call could not be parsed, `problem` says why, `arguments` is empty, and the call
    is not run: the model receives `problem` as its result.
    """

    name: str
    arguments: JsonObject
    call_id: str
    raw: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a thread. If `is_llm_message` is true, `content` is sent to the model: `{"role", "content", ...}`.

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

    @property
    def is_dialogue(self) -> bool:
        """Whether a user, the agent or a tool wrote the message, and not the program: only these are exported, searched
        and summarized."""
        return self.is_llm_message and self.type != "status"
