"""Joins messages of a request so that their roles alternate, as the strictest providers and chat templates demand.

No user message follows a tool result: Mistral refuses it, and other chat templates drop the model's reasoning before
the newest user message. What people and the program write while a run works is added to the text of the result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from core.context.background_messages import FLOW_KEY
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.ports import ModelRequest

ADDED_MARK = "[Added by the program:]"
"""Stands between a tool result and what is added to it. `message_text.for_model` keeps it out of the result itself."""
RUN_ENDED: JsonObject = {"role": "assistant", "content": "(The run ended here.)"}
"""Stands between the end of a run without a reply and the message that begins the next one."""


def request_starts(messages: Iterable[Message]) -> Iterator[bool]:
    """Yields for each message whether it begins new work: the first message of a run or of a flow's step, but no
    message that arrived while the run worked."""
    result: Message | None = None
    for message in messages:
        is_other = result is None or message.run_id != result.run_id or FLOW_KEY in message.metadata
        is_start = message.type == "user" and is_other
        yield is_start
        if message.type == "tool":
            result = message
        elif is_start or message.type == "assistant":
            result = None


def conversation(messages: Sequence[Message], contents: Sequence[JsonObject]) -> list[JsonObject]:
    """Returns the conversation as a model receives it. `contents` are those of the messages, perhaps truncated."""
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
    return alternate(sent)


def alternate(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """Returns the messages with adjacent messages of one role joined, and user messages joined to the tool result
    before them. Other messages are the same objects, and each tool result remains a message."""
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
    """Returns the request with a message joined to its end that later requests do not contain."""
    messages = tuple(alternate((*request.messages, message)))
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
