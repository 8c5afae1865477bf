"""Reasoning goes back to the model that wrote it, byte for byte, and to no other."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from core.domain.events import RunEvent, ThinkingStreamed
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY
from core.domain.wire_format import message_object, suna_objects
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIChatClient
from core.loop.run_context import LoopPolicy
from core.ports import ModelRequest
from core.run.execute import execute
from core.tools.tool import ToolSet
from storage.memory.event_bus import MemoryEventBus
from tests.fakes.strict_models import (
    ClaudeModel,
    DeepSeekModel,
    GeminiModel,
    KimiModel,
    OpenRouterModel,
    ResponsesModel,
    StrictModel,
    serve_strict,
)
from tests.integration.core.conftest import World
from tests.integration.core.llm.test_providers import read
from tests.integration.core.llm.test_server_habits import CALLED, WHOLE, Json, called, client, stream

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")

Client = OpenAIChatClient | LiteLLMClient
KEY = "sk-of-the-test"


@asynccontextmanager
async def client_of(kind: str, url: str) -> AsyncIterator[tuple[Client, str]]:
    """Context manager: yields a client for the endpoint and the name of its model."""
    made: tuple[Client, str]
    match kind:
        case "litellm-claude":
            made = LiteLLMClient(api_key=KEY, base_url=url), "anthropic/claude-sonnet-4-5"
        case "litellm-deepseek":
            made = LiteLLMClient(api_key=KEY, base_url=url), "deepseek/deepseek-reasoner"
        case "responses":
            made = OpenAIChatClient(f"{url}/v1", KEY, uses_responses_api=True), "gpt-5"
        case _:
            made = OpenAIChatClient(f"{url}/v1", KEY), kind
    try:
        yield made
    finally:
        await made[0].close()


SHAPES: list[tuple[type[StrictModel], str]] = [
    (DeepSeekModel, "deepseek-v4"),
    (KimiModel, "kimi-k2.6"),
    (OpenRouterModel, "anthropic/claude-opus"),
    (GeminiModel, "gemini-3-pro"),
    (ResponsesModel, "responses"),
    (ClaudeModel, "litellm-claude"),
    (DeepSeekModel, "litellm-deepseek"),
]


@asynccontextmanager
async def thread_with(world: World, shape: type[StrictModel], kind: str, turns: int = 2) -> AsyncIterator[StrictModel]:
    model = shape(turns=turns)
    async with serve_strict(model) as url, client_of(kind, url) as (client, name):
        world.with_deps(model=name, ask_model=client.stream)
        yield model


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
async def test_reasoning_comes_back_in_every_later_request(world: World, shape: type[StrictModel], kind: str):
    async with thread_with(world, shape, kind) as model:
        run_id = await world.run("go")
        assert ((await world.read_run(run_id)).status, model.refusals) == ("completed", [])
        assert world.bench.said == ["0.0", "0.1", "1.0", "1.1"]
        # a second run of the thread reads the reasoning from the database
        model.turns = 3
        await world.run("and again")
        assert model.refusals == []
        assert len(model.requests) == 5


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
async def test_reasoning_survives_a_crash_before_the_answer_was_whole(
    world: World, shape: type[StrictModel], kind: str
):
    tools = world.bench.toolbox().tools
    slow = ToolSet({**tools, "echo": replace(tools["wait"], name="echo")})
    async with thread_with(world, shape, kind, turns=1) as model:
        model.never_ends = True
        run_id = await world.say("go")
        world.with_deps(toolbox=slow)
        await world.lose_worker(run_id, lambda: world.bench.until_started("0.0"))
        assert "assistant" not in [one.type for one in await world.history(run_id)]

        model.never_ends = False
        await execute(run_id, world.deps)
        assert ((await world.read_run(run_id)).status, model.refusals) == ("completed", [])


@pytest.mark.parametrize("is_shown", [False, True])
async def test_people_read_the_reasoning_only_if_the_setting_says_so(world: World, *, is_shown: bool):
    seen: list[RunEvent] = []

    class Bus(MemoryEventBus):
        async def publish(self, events: Sequence[RunEvent]) -> None:
            seen.extend(events)

    async with thread_with(world, DeepSeekModel, "deepseek-v4", turns=1):
        world.with_deps(bus=Bus(), policy=LoopPolicy(shows_reasoning=is_shown))
        run_id = await world.run("go")
    told = json.dumps([one for event in seen for one in suna_objects(event)], ensure_ascii=False)
    stored = json.dumps([message_object(one) for one in await world.messages(run_id)])
    assert any(isinstance(one.event, ThinkingStreamed) for one in seen)
    assert ("Turn 0" in told) is is_shown
    assert REASONING_KEY not in told + stored
    assert "Turn 0" not in stored


class GeminiAfterAnother(GeminiModel):
    """Gemini, which did not write the first two turns."""

    def signed(self, turn: int) -> dict[str, Any]:
        foreign = {"google": {"thought_signature": "skip_thought_signature_validator"}}
        return foreign if turn < 2 else super().signed(turn)


@pytest.mark.parametrize(("second", "kind"), [(KimiModel, "kimi-k2.6"), (GeminiAfterAnother, "gemini-3-pro")])
async def test_a_model_that_demands_reasoning_takes_over_a_thread_of_another(
    world: World, second: type[StrictModel], kind: str
):
    async with thread_with(world, OpenRouterModel, "first"):
        await world.run("go")
    async with thread_with(world, second, kind, turns=4) as model:
        assert (await world.read_run(await world.run("go on"))).status == "completed"
        # it is refused once, and from then on the service's demand is known
        assert len(model.refusals) == 1
        assert "reasoning_details" not in json.dumps(model.requests)


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
