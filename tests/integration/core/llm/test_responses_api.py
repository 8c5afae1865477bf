"""Answers of OpenAI's Responses API: each item is told once, however much of it was streamed."""

import json

import pytest

from core.domain.json import JsonObject
from core.ports import ModelRequest
from tests.integration.core.llm.test_providers import read
from tests.integration.core.llm.test_server_habits import CALLED, WHOLE, Json, called, client, stream

CALL: Json = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": WHOLE}


THOUGHT: Json = {"type": "reasoning", "id": "r", "encrypted_content": "secret"}
FIRST, SECOND = ({"type": "message", "content": [{"type": "output_text", "text": text}]} for text in ("A.", "B."))
CALLS = [CALL | {"call_id": call_id} for call_id in ("c1", "c2")]


def told(text: str, place: int | None = None) -> Json:
    index = {} if place is None else {"output_index": place}
    return {"type": "response.output_text.delta", "delta": text} | index


def done(item: Json, place: int | None = None) -> Json:
    index = {} if place is None else {"output_index": place}
    return {"type": "response.output_item.done", "item": item} | index


def begun(item: Json, place: int | None = None) -> Json:
    empty = done(item | {"arguments": ""}, place)
    return empty | {"type": "response.output_item.added"}


@pytest.mark.parametrize(
    "events",
    [
        [],
        [told("A.", 0), told("B.", 1)],
        [told("A.", 0), done(FIRST, 0), done(SECOND, 1)],
        [done(FIRST, 0), told("B.", 1), done(SECOND, 1)],
        [told("A."), done(FIRST), told("B."), done(SECOND)],
        [told("A.", 0), done(FIRST, 0)],
        [told("A.", 0), done(FIRST, 0), begun(CALLS[0], 2)],
        [told("A.", 1), done(FIRST, 1), begun(CALLS[0], 3), done(CALLS[0], 3)],
        [begun(CALLS[0]), done(CALLS[0]), begun(CALLS[1]), done(CALLS[1])],
    ],
)
@pytest.mark.parametrize("first", [[], [THOUGHT], [{"type": "message", "content": []}]])
async def test_every_item_of_the_responses_api_is_told_once_however_much_was_streamed(
    events: list[Json], first: list[Json]
) -> None:
    response = {"status": "completed", "output": [*first, FIRST, SECOND, *CALLS]}
    last = {"type": "response.completed", "response": response}
    shift = len(first)
    moved = [one | {"output_index": one["output_index"] + shift} if "output_index" in one else one for one in events]
    streamed = [done(one, 0) for one in first]
    for body in (stream(*streamed, *moved, last), json.dumps(response).encode()):
        async with client("responses", body) as llm:
            asked: JsonObject = {"role": "user", "content": "hi"}
            is_streamed = not body.startswith(b"{")
            request = ModelRequest(model="m", messages=(asked,), is_streamed=is_streamed)
            answer = read([delta async for delta in llm.stream(request)])
        assert (answer.text, called(answer)) == ("A.\n\nB.", CALLED * 2)
        assert (answer.reasoning is not None) == (first == [THOUGHT])
