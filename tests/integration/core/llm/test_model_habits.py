"""Ordinary things that models of different vendors do, through a strict endpoint and the whole engine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from core.llm.openai_client import OpenAIChatClient
from tests.fakes.strict_models import Json, Refused, StrictModel, serve_strict
from tests.integration.core.conftest import World
from tests.support.closing import close_after

DONE: Json = {"content": "Done."}


@dataclass
class Habits(StrictModel):
    """Answers each request with the next of `answers`: deltas and the finish reason.

    Refuses what providers refuse: calls without results, arguments that are no JSON object, and requests that end with
    an assistant message.
    """

    answers: Sequence[tuple[list[Json], str]] = ()

    def check(self, body: Json) -> int:
        waiting: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                raise Refused(f"calls without results: {waiting}")
            calls = message.get("tool_calls") or []
            if not all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in calls):
                raise Refused("arguments that are no object")
            waiting = [one["id"] for one in calls]
        if waiting or body["messages"][-1]["role"] == "assistant":
            raise Refused("the request must end with a message of the user or a result")
        return len(self.requests)

    def events(self, turn: int) -> list[Json | str]:
        deltas, reason = self.answers[turn]
        whole: list[Json | str] = [{"choices": [{"index": 0, "delta": one}]} for one in deltas]
        last: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        return [*whole, last | {"usage": {"prompt_tokens": 5, "completion_tokens": 5}}, "[DONE]"]


async def last_message(world: World, deltas: list[Json], reason: str) -> str:
    """The last message of the request after an answer of these deltas, which is answered with "Done."."""
    model = Habits(answers=[(deltas, reason), ([DONE], "stop")])
    async with serve_strict(model) as url, close_after(OpenAIChatClient(f"{url}/v1", "sk-of-the-test")) as client:
        world.with_deps(model="m", ask_model=client.stream)
        run_id = await world.run("go")
    assert ((await world.read_reply(run_id)).text, model.refusals) == ("Done.", [])
    return str(model.requests[1]["messages"][-1]["content"])


@pytest.mark.parametrize("arguments", ["null", "", '""', None, "[]", '"text"', "7"])
async def test_arguments_that_are_none_are_answered_with_what_is_missing(world: World, arguments: object) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "echo", "arguments": arguments}}
    result = await last_message(world, [{"tool_calls": [call]}], "stop")
    assert world.bench.said == []
    assert "text" in result or "one JSON object" in result


@pytest.mark.parametrize("passage", ["x", "The same line.\n", "word " * 300])
@pytest.mark.parametrize("size", [700, 400_000])
async def test_an_answer_that_repeats_itself_without_end_is_asked_for_again(
    world: World, passage: str, size: int
) -> None:
    endless = passage * (400_000 // len(passage))
    pieces = [endless[at : at + size] for at in range(0, 400_000, size)]
    assert "over and over" in await last_message(world, [{"content": one} for one in ("I begin.\n", *pieces)], "length")


async def test_a_finish_reason_may_say_that_the_call_is_unreadable(world: World) -> None:
    reason = "function_call_filter: MALFORMED_FUNCTION_CALL"
    assert "MALFORMED_FUNCTION_CALL" in await last_message(world, [{"content": ""}], reason)
