"""Joins messages of a request so that their roles alternate, as the strictest providers and chat templates require.

No user message follows a tool result: Mistral rejects that, and other chat templates drop the model's reasoning before
the newest user message. So what users and the program write while a run is working is added to the text of the tool
result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from core.context.background_messages import FLOW_KEY
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.ports import ModelRequest

ADDED_MARK = "[Added by the program:]"
"""Separates a tool result from the text that is added to it. `message_text.format_for_model` removes it from the result
itself."""
RUN_ENDED: JsonObject = {"role": "assistant", "content": "(The run ended here.)"}
"""Inserted between the end of a run without a reply and the message that begins the next run."""


def request_starts(messages: Iterable[Message]) -> Iterator[bool]:
    """Yields for each message whether it begins new work. The first message of a run or of a flow's step does; a
    message that arrived while the run was working does not."""
    result: Message | None = None
    for message in messages:
        is_other = result is None or message.run_id != result.run_id or FLOW_KEY in message.metadata
        is_start = message.type == "user" and is_other
        yield is_start
        if message.type == "tool":
            result = message
        elif is_start or message.type == "assistant":
            result = None


def build_conversation(messages: Sequence[Message], contents: Sequence[JsonObject]) -> list[JsonObject]:
    """Returns the conversation in the form that a model receives. `contents` are the contents of the messages, perhaps
    truncated."""
    sent: list[JsonObject] = []
    unanswered: Message | None = None
    for message, content, is_start in zip(messages, contents, request_starts(messages), strict=True):
        is_next = unanswered is not None and (unanswered.type == "tool" or unanswered.run_id != message.run_id)
        if is_start and is_next:
            sent.append(RUN_ENDED)
        sent.append(content)
        if message.type in ("assistant", "summary"):
            unanswered = None
        elif is_start or message.type == "tool":
            unanswered = message
    return join_adjacent_roles(sent)


def join_adjacent_roles(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """Returns the messages, with adjacent messages of one role joined, and with user messages joined to the tool result
    before them. All other messages are the same objects, and each tool result stays a message of its own."""
    sent: list[JsonObject] = []
    for message in messages:
        if sent and _belong_together(sent[-1], message):
            before = sent[-1]
            parts = [*_parts(before.get("content")), *_parts(message.get("content"))]
            if before.get("role") == "tool" and ADDED_MARK not in _text(parts[:1]):
                parts.insert(1, {"type": "text", "text": ADDED_MARK})
            text = _text([part for part in parts if "text" in part])
            others: list[JsonValue] = [part for part in parts if "text" not in part]
            content: JsonValue = [{"type": "text", "text": text}, *others] if others else text
            kept = message if message.get("role") == "assistant" else before
            sent[-1] = {**kept, "content": content}
        else:
            sent.append(message)
    return sent


def with_passing_message(request: ModelRequest, message: JsonObject) -> ModelRequest:
    """Returns the request with a message joined to its end. Later requests do not contain that message."""
    messages = tuple(join_adjacent_roles((*request.messages, message)))
    stable = min(request.stable_messages, len(messages) - 1)
    return replace(request, messages=messages, stable_messages=stable)


def _belong_together(before: JsonObject, message: JsonObject) -> bool:
    match before.get("role"), message.get("role"):
        case (("user" | "tool"), "user"):
            return True
        case "assistant", "assistant":
            return not before.get("tool_calls")
        case _:
            return False


def _parts(content: JsonValue) -> list[JsonObject]:
    if isinstance(content, list):
        return [one for one in content if isinstance(one, dict)]
    return [{"type": "text", "text": content or ""}]


def _text(parts: Sequence[JsonObject]) -> str:
    return "\n\n".join(text for one in parts if (text := str(one.get("text") or "")))
