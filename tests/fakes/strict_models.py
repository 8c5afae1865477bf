"""Model endpoints that refuse what the real services refuse: reasoning that is missing, changed or foreign.

Each endpoint answers `turns` requests with reasoning and two parallel tool calls, then with a text. It signs what it
writes, and checks in every later request that all of it comes back unchanged.
"""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.web_service import fake_web_service, silent

TOOL = "echo"
PIECE = 5
FINAL = -1
"""The number of the turn that ends with a text."""
Json = dict[str, Any]


class Refused(Exception):
    """The request is answered with this status, and with `error` or an error that holds this message."""

    def __init__(self, message: str, *, status: int = 400, error: Json | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error or {"type": "invalid_request_error", "message": message}


def signature(*parts: str) -> str:
    return "sig-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def thought(turn: int) -> str:
    return f'Turn {turn}: hm, "echo" it is… 🤔\nthen\\n again. '


def call_ids(turn: int) -> list[str]:
    return [f"call_{turn}_{number}" for number in range(2)]


def arguments(turn: int, number: int) -> str:
    return json.dumps({"text": f"{turn}.{number}"})


def split(text: str, size: int = PIECE) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@dataclass
class StrictModel:
    """A strict endpoint. `requests` are the bodies that it accepted, `refusals` what it said to the others.

    If `never_ends` is set, its streams stop before their last events and stay open.
    """

    turns: int = 2
    never_ends: bool = False
    requests: list[Json] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def check(self, body: Json) -> int:
        """Returns the number of turns already in the request. Raises Refused."""
        raise NotImplementedError

    def events(self, turn: int) -> list[Json | str]:
        """Returns the stream of a turn. The last turn is a text."""
        raise NotImplementedError


class ChatModel(StrictModel):
    """The chat API. Subclasses define how reasoning is written."""

    def reasoning(self, turn: int) -> Json:
        """Returns the fields of the assistant message that must come back."""
        raise NotImplementedError

    def pieces(self, turn: int) -> list[Json]:
        raise NotImplementedError

    def missing(self, index: int) -> str:
        return f"The reasoning of the assistant message at index {index} is missing or was changed."

    def check(self, body: Json) -> int:
        turn = 0
        for index, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            if known := set(message) - {"role", "content", "tool_calls", *self.reasoning(0)}:
                raise Refused(f"Extra inputs are not permitted: messages[{index}].{min(known)}")
            if not message.get("tool_calls"):
                continue
            expected = self.reasoning(turn)
            if {key: message.get(key) for key in expected} != expected:
                raise Refused(self.missing(index))
            turn += 1
        return turn

    def events(self, turn: int) -> list[Json | str]:
        deltas = self.pieces(turn)
        if turn < self.turns:
            deltas += [
                {
                    "tool_calls": [
                        {
                            "index": number,
                            "id": call_id,
                            "type": "function",
                            "function": {"name": TOOL, "arguments": arguments(turn, number)},
                        }
                    ]
                }
                for number, call_id in enumerate(call_ids(turn))
            ]
        else:
            deltas.append({"content": "Done."})
        reason = "tool_calls" if turn < self.turns else "stop"
        whole = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        return [*whole, {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, "[DONE]"]


class DeepSeekModel(ChatModel):
    """DeepSeek, Qwen, GLM: `reasoning_content` of every assistant message since the last question."""

    def reasoning(self, turn: int) -> Json:
        return {"reasoning_content": thought(turn)}

    def missing(self, index: int) -> str:
        return "The `reasoning_content` in the thinking mode must be passed back to the API."

    def pieces(self, turn: int) -> list[Json]:
        return [{"content": None, "reasoning_content": piece} for piece in split(thought(turn))]


class KimiModel(DeepSeekModel):
    """Kimi: like DeepSeek, but any text that is not empty passes, so that histories of other models do too."""

    def missing(self, index: int) -> str:
        return f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"

    def check(self, body: Json) -> int:
        calling = [(index, one) for index, one in enumerate(body["messages"]) if one.get("tool_calls")]
        for index, message in calling:
            if not message.get("reasoning_content"):
                raise Refused(self.missing(index))
        return len(calling)


class OpenRouterModel(ChatModel):
    """OpenRouter: `reasoning_details` with a signed text, a summary and an encrypted block."""

    def reasoning(self, turn: int) -> Json:
        text = thought(turn)
        return {
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": text,
                    "signature": signature(text),
                    "format": "anthropic-claude-v1",
                    "index": 0,
                },
                {"type": "reasoning.encrypted", "data": signature(text, "data"), "index": 1},
            ]
        }

    def pieces(self, turn: int) -> list[Json]:
        text, encrypted = self.reasoning(turn)["reasoning_details"]
        start = {"type": "reasoning.text", "format": text["format"], "index": 0}
        details = [{**start, "text": piece} for piece in split(text["text"])]
        details += [{**start, "signature": text["signature"]}, encrypted]
        return [{"content": "", "reasoning": one.get("text"), "reasoning_details": [one]} for one in details]


class GeminiModel(ChatModel):
    """Gemini's OpenAI-compatible endpoint: a signature in the first call of each turn."""

    def reasoning(self, turn: int) -> Json:
        return {}

    def pieces(self, turn: int) -> list[Json]:
        return []

    def events(self, turn: int) -> list[Json | str]:
        events = super().events(turn)
        for event in events[:1] if turn < self.turns else ():
            assert isinstance(event, dict)
            call = event["choices"][0]["delta"]["tool_calls"][0]
            call["extra_content"] = self.signed(turn)
        return events

    def signed(self, turn: int) -> Json:
        return {"google": {"thought_signature": signature(str(turn))}}

    def check(self, body: Json) -> int:
        turn = super().check(body)
        calling = [one["tool_calls"] for one in body["messages"] if one.get("tool_calls")]
        for number, (first, *others) in enumerate(calling):
            if first.get("extra_content") != self.signed(number):
                raise Refused("Function call is missing a thought_signature in functionCall parts.")
            assert not any("extra_content" in one for one in others)
        return turn


class ClaudeModel(StrictModel):
    """Anthropic's messages API: thinking blocks with signatures and redacted blocks, unchanged and in order."""

    def blocks(self, turn: int) -> list[Json]:
        text = thought(turn)
        return [
            {"type": "thinking", "thinking": text, "signature": signature(text)},
            {"type": "redacted_thinking", "data": signature(text, "data")},
            {"type": "thinking", "thinking": "", "signature": signature(text, "omitted")},
        ]

    def check(self, body: Json) -> int:
        turn = 0
        if body["messages"][-1]["role"] == "assistant":
            raise Refused("This model does not support assistant message prefill.")
        for index, message in enumerate(body["messages"]):
            if message["role"] != "assistant" or isinstance(message["content"], str):
                continue
            if not any(one["type"] == "tool_use" for one in message["content"]):
                continue
            kinds = ("thinking", "redacted_thinking")
            found = [one for one in message["content"] if one["type"] in kinds]
            if found != self.blocks(turn) or message["content"][: len(found)] != found:
                raise Refused(
                    f"messages.{index}.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant"
                    " message cannot be modified. These blocks must remain as they were in the original response."
                )
            turn += 1
        return turn

    def events(self, turn: int) -> list[Json | str]:
        usage = {"input_tokens": 10, "output_tokens": 5}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
        made: list[Json] = [{"type": "message_start", "message": {**message, "model": "claude"}}]
        blocks: list[tuple[Json, list[Json]]] = []
        for one in self.blocks(turn):
            if one["type"] == "redacted_thinking":
                blocks.append((one, []))
                continue
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split(one["thinking"])]
            deltas.append({"type": "signature_delta", "signature": one["signature"]})
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if turn < self.turns:
            for number, call_id in enumerate(call_ids(turn)):
                use = {"type": "tool_use", "id": call_id, "name": TOOL, "input": {}}
                said = arguments(turn, number)
                deltas = [{"type": "input_json_delta", "partial_json": one} for one in split(said)]
                blocks.append((use, deltas))
        else:
            text = {"type": "text", "text": ""}
            blocks.append((text, [{"type": "text_delta", "text": "Done."}]))
        for index, (block, deltas) in enumerate(blocks):
            made.append({"type": "content_block_start", "index": index, "content_block": block})
            made += [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
            made.append({"type": "content_block_stop", "index": index})
        reason = "tool_use" if turn < self.turns else "end_turn"
        ended = {"stop_reason": reason, "stop_sequence": None}
        made.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}})
        return [*made, {"type": "message_stop"}]


class ResponsesModel(StrictModel):
    """OpenAI's Responses API without storage: encrypted reasoning items before the items that follow them."""

    def item(self, turn: int) -> Json:
        return {
            "id": f"rs_{turn}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": thought(turn)}],
            "encrypted_content": signature(thought(turn), "encrypted"),
        }

    def check(self, body: Json) -> int:
        if body.get("store") is not False or "reasoning.encrypted_content" not in body["include"]:
            raise Refused("Items are not persisted when `store` is set to false.")
        if known := set(body) - {"model", "stream", "store", "include", "input", "tools", "temperature"}:
            raise Refused(f"Unknown parameter: '{min(known)}'.")
        turn, asked = 0, set[str]()
        for place, item in enumerate(body["input"]):
            before, after = body["input"][max(0, place - 1)], body["input"][place + 1 : place + 2]
            match item:
                case {"type": "reasoning"}:
                    is_call = self.check_reasoning(item, after, turn)
                    turn += is_call
                case {"type": "function_call", "call_id": call_id}:
                    if before.get("type") not in ("reasoning", "function_call"):
                        raise Refused("A function_call was provided without its 'reasoning' item.")
                    asked.add(call_id)
                case {"type": "function_call_output", "call_id": call_id}:
                    if call_id not in asked:
                        raise Refused(f"No tool call found for function call output {call_id}.")
                case _:
                    if set(item) - {"role", "content", "phase", "type"}:
                        raise Refused(f"Unknown parameter: 'input[{place}].{min(item)}'.")
        return turn

    def check_reasoning(self, item: Json, after: list[Json], turn: int) -> bool:
        """Returns whether the reasoning belongs to a turn with calls. Raises Refused if it is changed or alone."""
        is_text = bool(after) and after[0].get("phase") == "final_answer"
        if item != self.item(FINAL if is_text else turn):
            raise Refused("The encrypted content of item could not be verified.")
        if not is_text and [one.get("call_id") for one in after] != call_ids(turn)[:1]:
            raise Refused(f"Item '{item['id']}' was provided without its required following item.")
        return not is_text

    def events(self, turn: int) -> list[Json | str]:
        number = turn if turn < self.turns else FINAL
        output: list[Json] = [{**self.item(number), "status": None}]
        made: list[Json] = [{"type": "response.created", "response": {"status": "in_progress"}}]
        made += [
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": piece}
            for piece in split(thought(number))
        ]
        made.append({"type": "response.output_item.done", "output_index": 0, "item": output[0]})
        if turn < self.turns:
            for number, call_id in enumerate(call_ids(turn)):
                call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": TOOL}
                place, said = number + 1, arguments(turn, number)
                start = {"output_index": place, "item": {**call, "arguments": ""}}
                made.append({"type": "response.output_item.added", **start})
                made += [
                    {"type": "response.function_call_arguments.delta", "output_index": place, "delta": piece}
                    for piece in split(said)
                ]
                output.append({**call, "arguments": said})
                done = {"output_index": place, "item": output[-1]}
                made.append({"type": "response.output_item.done", **done})
        else:
            text = {"type": "output_text", "text": "Done."}
            made.append({"type": "response.output_text.delta", "output_index": 1, "delta": "Done."})
            item = {"type": "message", "id": "msg_1", "phase": "final_answer", "content": [text]}
            output.append(item)
            made.append({"type": "response.output_item.done", "output_index": 1, "item": item})
        usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5}
        response = {"status": "completed", "output": output, "usage": usage, "error": None}
        return [*made, {"type": "response.completed", "response": response}]


@asynccontextmanager
async def serve_strict(model: StrictModel) -> AsyncIterator[str]:
    """Context manager: serves the endpoint inside the block and yields its URL, without the API's path."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            turn = model.check(body)
        except Refused as refused:
            model.refusals.append(str(refused))
            told = {"type": "error", "error": refused.error}
            return web.json_response(told, status=refused.status)
        model.requests.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = model.events(turn)
        for event in events[:-2] if model.never_ends else events:
            kind = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"{kind}data: {data}\n\n".encode())
        return await silent(request) if model.never_ends else response

    async with fake_web_service([web.post("/{path:.*}", answer)]) as service:
        yield service.url
