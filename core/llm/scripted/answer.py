"""A played step as an OpenAI-compatible answer: the deltas of a stream, or one whole message."""

import json
from collections.abc import Iterator
from typing import cast

from pydantic import JsonValue

from core.domain.messages import JsonObject
from core.llm.scripted.match import Play
from core.llm.scripted.scenario import ScriptedCall, Texts


def deltas(play: Play, *, is_native: bool) -> Iterator[JsonObject]:
    """The `delta` objects in order. Raises Unexpected for a place that nothing was captured for."""
    step = play.step
    for piece in _pieces(_filled(play, step.thinking), step.chunk_characters):
        yield {"reasoning_content": piece}
    text = _filled(play, step.text)
    if step.calls and not is_native:
        text = "\n\n".join(part for part in (text, _block(play, step.calls)) if part)
    for piece in _pieces(text, step.chunk_characters):
        yield {"content": piece}
    for piece in _raw(step.raw):
        yield {"content": _filled(play, piece)}
    if is_native:
        for index, call in enumerate(step.calls):
            yield from _call_deltas(play, index, call)


def finish_reason(play: Play, *, is_native: bool) -> str:
    """The step's own, or the natural one."""
    natural = "tool_calls" if play.step.calls and is_native else "stop"
    return play.step.finish_reason or natural


def whole_message(pieces: list[JsonObject]) -> JsonObject:
    """What the deltas amount to, for a request that is not streamed."""
    message: dict[str, object] = {"role": "assistant", "content": None}
    calls: dict[int, JsonObject] = {}
    for piece in pieces:
        for key in ("content", "reasoning_content"):
            if key in piece:
                message[key] = f"{message.get(key) or ''}{piece[key]}"
        for part in cast(list[JsonObject], piece.get("tool_calls") or []):
            _add_part(calls, part)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return cast(JsonObject, message)


def usage(play: Play, *, input_characters: int, output_characters: int) -> JsonObject:
    """The step's own, or a guess by the length."""
    told = play.step.usage
    if told is None:
        tokens_in, tokens_out = input_characters // 4 + 1, output_characters // 4 + 1
        return {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
    counted: JsonObject = {
        "prompt_tokens": told.input_tokens,
        "completion_tokens": told.output_tokens,
        "total_tokens": told.input_tokens + told.output_tokens,
        "prompt_tokens_details": {"cached_tokens": told.cached_tokens},
    }
    return counted if told.cost_usd is None else {**counted, "cost": told.cost_usd}


def size_of(piece: JsonObject) -> int:
    """Characters of the answer that a delta carries."""
    characters = len(str(piece.get("content") or ""))
    for part in cast(list[JsonObject], piece.get("tool_calls") or []):
        characters += len(str(cast(JsonObject, part["function"]).get("arguments") or ""))
    return characters


def _add_part(calls: dict[int, JsonObject], part: JsonObject) -> None:
    index = cast(int, part["index"])
    function = cast(JsonObject, part["function"])
    known = calls.get(index)
    if known is None:
        calls[index] = {"id": part["id"], "type": "function", "function": dict(function)}
        return
    kept = cast(JsonObject, known["function"])
    kept["arguments"] = f"{kept['arguments']}{function['arguments']}"


def _call_deltas(play: Play, index: int, call: ScriptedCall) -> Iterator[JsonObject]:
    call_id = call.id or f"call_{play.conversation.name}_{play.number}_{index}".replace(" ", "_")
    opening: JsonObject = {"name": call.name, "arguments": ""}
    first: JsonObject = {"index": index, "id": call_id, "type": "function", "function": opening}
    yield {"tool_calls": [first]}
    filled = play.filled(call.arguments)
    arguments = filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)
    for piece in _pieces(arguments, play.step.chunk_characters):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _block(play: Play, calls: tuple[ScriptedCall, ...]) -> str:
    lines = ["<function_calls>"]
    for call in calls:
        lines.append(f'<invoke name="{call.name}">')
        if isinstance(call.arguments, str):
            lines.append(_filled(play, call.arguments))
        else:
            lines.extend(_parameter(play, *argument) for argument in call.arguments.items())
        lines.append("</invoke>")
    return "\n".join((*lines, "</function_calls>"))


def _parameter(play: Play, name: str, value: JsonValue) -> str:
    filled = play.filled(value)
    text = filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)
    return f'<parameter name="{name}">{text}</parameter>'


def _filled(play: Play, text: str) -> str:
    return str(play.filled(text))


def _raw(raw: Texts) -> tuple[str, ...]:
    return (raw,) if isinstance(raw, str) else raw


def _pieces(text: str, characters: int) -> Iterator[str]:
    for start in range(0, len(text), characters):
        yield text[start : start + characters]
