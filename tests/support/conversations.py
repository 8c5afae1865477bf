"""Messages as stores and platforms hand them over, and conversations to be shortened."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from core.context.tokens import with_token_count
from core.dialects.native import NativeDialect
from core.domain.json import JsonObject
from core.domain.messages import Message, MessageType, ToolCall
from core.domain.threads import Person, ThreadInput

_WORDS = ["the", "a", "plan", "file", "run", "of", "result", "check", "42", "/workspace/data.csv", "None\n"]
_DIALECT = NativeDialect()


def words(count: int, *, seed: int = 1) -> str:
    """Text of so many words, the same each time."""
    chooser = random.Random(seed)
    return " ".join(chooser.choice(_WORDS) for _ in range(count))


def message(kind: MessageType, content: JsonObject, *, is_llm: bool = True, **more: Any) -> Message:
    place = {"thread_id": "t", "run_id": "run"}
    return with_token_count(Message(type=kind, content=content, is_llm_message=is_llm, **{**place, **more}))


def thread_input(text: str = "look", **changes: Any) -> ThreadInput:
    """What alice wrote at noon, as the store hands it to a run."""
    alice, noon = Person(person_id="U1", name="alice"), datetime(2026, 11, 28, 12, tzinfo=UTC)
    usual = ThreadInput(
        input_id="i", thread_id="t", kind="message", author=alice, text=text, files=(), message_ref="1.0", sent_at=noon
    )
    return replace(usual, **changes)


def said(text: str) -> Message:
    return message("user", {"role": "user", "content": text})


def answered(text: str) -> Message:
    return message("assistant", {"role": "assistant", "content": text, "tool_calls": None})


def call_and_result(number: int, *, argument: str, output: JsonValue) -> tuple[Message, Message]:
    """A native call of a command, and what came back."""
    call = ToolCall(name="execute_command", arguments={"command": argument}, call_id=f"call_{number}")
    result: JsonObject = {"success": True, "output": output, "error": None}
    return (
        message("assistant", _DIALECT.assistant_content("I look.", [call])),
        message("tool", _DIALECT.result_content(call, result)),
    )


def long_thread(turns: int, *, words_each: int) -> Sequence[Message]:
    """A request, and turns of a call with its result."""
    messages = [said(words(words_each))]
    for number in range(turns):
        messages += call_and_result(number, argument=words(60, seed=number), output=words(words_each, seed=-number))
    return messages
