"""Ordinary things that models of different vendors do, through a strict endpoint and the whole engine."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.domain.events import RunFailed, RunFinished
from core.llm.openai_client import OpenAIChatClient
from tests.fakes.strict_models import Json, Refused, StrictModel, serve_strict
from tests.integration.core.conftest import World
from tests.support.closing import close_after

DONE: Json = {"content": "Done."}


def call(name: str = "echo", arguments: object = '{"text": "a"}', **more: object) -> Json:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}} | more


def calling(*calls: Json) -> Json:
    return {"tool_calls": [{"index": index, **one} for index, one in enumerate(calls)]}


@dataclass
class Habits(StrictModel):
    """Answers each request with the next of `answers`: deltas, and the finish reason if it is not the usual one.

    Refuses what providers refuse: calls without results, repeated or long ids, arguments that are no JSON object, empty
    messages, and requests that end with an assistant message.
    """

    answers: Sequence[tuple[list[Json], str]] = ()
    usage: Json | None = field(default_factory=lambda: {"prompt_tokens": 5, "completion_tokens": 5})

    def check(self, body: Json) -> int:
        waiting: list[str] = []
        for message in body["messages"]:
            role = message["role"]
            if role == "tool":
                if message["tool_call_id"] not in waiting:
                    raise Refused("a result without its call")
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                raise Refused(f"calls without results: {waiting}")
            waiting = self.ids_of_calls(message)
        if waiting or body["messages"][-1]["role"] == "assistant":
            raise Refused("the request must end with a message of the user or a result")
        return len(self.requests)

    def ids_of_calls(self, message: Json) -> list[str]:
        calls = message.get("tool_calls") or []
        if not message.get("content") and not calls:
            raise Refused(f"an empty message of the {message['role']}")
        ids = [one["id"] for one in calls]
        if len(set(ids)) < len(ids) or any(len(one) > 40 for one in ids):
            raise Refused(f"bad ids: {ids}")
        for one in calls:
            if not isinstance(json.loads(one["function"]["arguments"]), dict):
                raise Refused("arguments that are no object")
        return ids

    def events(self, turn: int) -> list[Json | str]:
        deltas, reason = self.answers[turn]
        whole: list[Json | str] = [{"choices": [{"index": 0, "delta": one}]} for one in deltas]
        last: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        return [*whole, last | ({"usage": self.usage} if self.usage else {}), "[DONE]"]


@dataclass
class Played:
    model: Habits
    end: RunFinished | RunFailed
    said: list[str]
    run_id: str = ""

    @property
    def text(self) -> str:
        assert isinstance(self.end, RunFinished)
        assert self.end.reply is not None
        return self.end.reply.text

    def results(self, request: int = -1) -> list[str]:
        """The tool results in one of the requests."""
        messages = self.model.requests[request]["messages"]
        return [str(one["content"]) for one in messages if one["role"] == "tool"]


async def play(world: World, *answers: list[Json] | tuple[list[Json], str], **model: Any) -> Played:
    said = [one if isinstance(one, tuple) else (one, "stop") for one in answers]
    habits = Habits(answers=said, **model)
    async with serve_strict(habits) as url, client(url) as made:
        world.with_deps(model="m", ask_model=made.stream)
        run_id = await world.run("go")
    end = (await world.events(run_id))[-1]
    assert isinstance(end, RunFinished | RunFailed)
    assert habits.refusals == []
    return Played(habits, end, world.bench.said, run_id)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[OpenAIChatClient]:
    async with close_after(OpenAIChatClient(f"{url}/v1", "sk-of-the-test")) as made:
        yield made


@pytest.mark.parametrize("arguments", ["null", "", '""', None, "[]", '"text"', "7"])
async def test_arguments_that_are_none_are_answered_with_what_is_missing(world: World, arguments: object) -> None:
    played = await play(world, [calling(call(arguments=arguments))], [DONE])
    assert (played.said, played.text) == ([], "Done.")
    (result,) = played.results()
    assert "text" in result or "one JSON object" in result


@pytest.mark.parametrize("passage", ["x", "The same line.\n", "word " * 300])
@pytest.mark.parametrize("is_whole", [False, True])
async def test_an_answer_that_repeats_itself_without_end_is_asked_for_again(
    world: World, passage: str, is_whole: bool
) -> None:
    endless = passage * (400_000 // len(passage))
    pieces = [endless] if is_whole else [endless[at : at + 700] for at in range(0, 400_000, 700)]
    said: list[Json] = [{"content": one} for one in ("I begin.\n", *pieces)]
    played = await play(world, (said, "length"), [DONE])
    assert played.text == "Done."
    assert "over and over" in str(played.model.requests[1]["messages"][-1]["content"])


async def test_a_finish_reason_may_say_that_the_call_is_unreadable(world: World) -> None:
    slip = ([{"content": ""}], "function_call_filter: MALFORMED_FUNCTION_CALL")
    played = await play(world, slip, [DONE])
    assert played.text == "Done."
    assert "MALFORMED_FUNCTION_CALL" in played.model.requests[-1]["messages"][-1]["content"]
