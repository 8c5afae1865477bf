"""Reasoning goes back to the model that wrote it, byte for byte, and to no other."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bots.bootstrap.model_clients import build_model_client
from bots.settings import load_settings
from core.dialects.xml import XmlDialect
from core.domain.events import RunEvent, ThinkingStreamed
from core.domain.messages import REASONING_KEY
from core.domain.wire_format import message_object, suna_objects
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIChatClient
from core.loop.run_context import LoopPolicy
from core.ports import ModelDelta, ModelRequest
from core.run.execute import execute
from core.tools.tool import ToolSet
from storage.memory.event_bus import MemoryEventBus
from tests.fakes.streamed_model import StreamedModel, calls, invokes
from tests.fakes.strict_models import (
    ClaudeModel,
    DeepSeekModel,
    GeminiModel,
    Json,
    KimiModel,
    OpenRouterModel,
    Refused,
    ResponsesModel,
    StrictModel,
    serve_strict,
    split,
    thought,
)
from tests.integration.core.conftest import World

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


class DeepSeekInXml(DeepSeekModel):
    """DeepSeek with calls in its text."""

    def check(self, body: Json) -> int:
        written = [one for one in body["messages"] if one["role"] == "assistant"]
        for turn, message in enumerate(written):
            if message.get("reasoning_content") != thought(turn):
                raise Refused(self.missing(turn))
        return len(written)

    def events(self, turn: int) -> list[Json | str]:
        said = invokes(("echo", {"text": f"{turn}"})) if turn < self.turns else "Done."
        deltas = [*self.pieces(turn), *({"content": piece} for piece in split(said))]
        whole = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        return [*whole, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"]


async def test_reasoning_comes_back_in_the_xml_dialect_and_is_shown_to_nobody(world: World):
    async with thread_with(world, DeepSeekInXml, "deepseek-v4") as model:
        world.with_deps(dialect=XmlDialect())
        run_id = await world.run("go")
        assert (world.bench.said, model.refusals) == (["0", "1"], [])
        assert (await world.read_reply(run_id)).text == "Done."
        assert "it is" not in json.dumps([message_object(one) for one in await world.messages(run_id)])
        assert "it is" not in str(await world.left(run_id))


async def test_reasoning_of_one_model_never_reaches_another(world: World):
    async with thread_with(world, OpenRouterModel, "anthropic/claude-opus"):
        await world.run("go")
    other = DeepSeekModel(turns=0)
    async with serve_strict(other) as url, client_of("x", url) as (client, _):
        world.with_deps(model="anthropic/claude-opus", ask_model=client.stream)
        await world.run("the same model elsewhere")
    assert other.requests == []
    assert len(other.refusals) == 2
    assert "signature" not in json.dumps(other.refusals)


class GeminiAfterAnother(GeminiModel):
    """Gemini, which did not write the first two turns."""

    def signed(self, turn: int) -> Json:
        foreign = {"google": {"thought_signature": "skip_thought_signature_validator"}}
        return foreign if turn < 2 else super().signed(turn)


@pytest.mark.parametrize(("second", "kind"), [(KimiModel, "kimi-k2.6"), (GeminiAfterAnother, "gemini-3-pro")])
@pytest.mark.parametrize("first", [OpenRouterModel, ResponsesModel])
async def test_a_model_that_demands_reasoning_takes_over_a_thread_of_another(
    world: World, first: type[StrictModel], second: type[StrictModel], kind: str
):
    async with thread_with(world, first, "responses" if first is ResponsesModel else "first"):
        await world.run("go")
    async with thread_with(world, second, kind, turns=4) as model:
        assert (await world.read_run(await world.run("go on"))).status == "completed"
        # it is refused once, and from then on the service's demand is known
        assert len(model.refusals) == 1
        sent = json.dumps(model.requests)
        assert "reasoning_details" not in sent
        assert "encrypted" not in sent
        messages = model.requests[-1]["messages"]
        if second is KimiModel:
            written = [one["reasoning_content"] for one in messages if one.get("tool_calls")]
            assert written == [" ", " ", thought(2), thought(3)]


@pytest.mark.parametrize("named", ["messages[2].seal", "something"])
async def test_a_field_that_its_own_service_refuses_is_left_out(world: World, named: str):
    class Sealing(DeepSeekModel):
        def pieces(self, turn: int) -> list[dict[str, Any]]:
            return [*super().pieces(turn), {"seal": "s"}]

        def check(self, body: dict[str, Any]) -> int:
            if any("seal" in one for one in body["messages"]):
                raise Refused(f"{named}: Extra inputs are not permitted")
            return super().check(body)

    async with thread_with(world, Sealing, "sealing") as model:
        assert (await world.read_run(await world.run("go"))).status == "completed"
        assert len(model.refusals) == 1


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


EXPECTED = (
    "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is"
    " enabled, a final `assistant` message must start with a thinking block."
)


class ClaudeBesideOthers(ClaudeModel):
    """Claude in a thread in which others have written messages, too: it thinks only if the last calls, while their
    results are the newest messages, follow thinking of its own. Without thinking it takes no thinking blocks."""

    def blocks(self, turn: int) -> list[Json]:
        return super().blocks(turn) if "thinking" in self.requests[-1] else []

    def check(self, body: Json) -> int:
        written = [one["content"] for one in body["messages"] if one["role"] == "assistant"]
        kinds = [[part["type"] for part in one] for one in written if not isinstance(one, str)]
        calling = [one for one in kinds if "tool_use" in one]
        if "thinking" not in body and any("thinking" in one for one in kinds):
            raise Refused("There are thinking blocks, but `thinking` is disabled.")
        if "thinking" in body and calling[-1:] == kinds[-1:] and kinds[-1:] == [["tool_use"]]:
            raise Refused(EXPECTED.format(len(body["messages"])))
        return len(calling)


class ClaudeBehindAProxy(OpenRouterModel):
    """The same behind an endpoint with OpenAI's chat API."""

    def pieces(self, turn: int) -> list[Json]:
        return super().pieces(turn) if "reasoning_effort" in self.requests[-1] else []

    def check(self, body: Json) -> int:
        written = [one for one in body["messages"] if one["role"] == "assistant"]
        calling = [one for one in written if one.get("tool_calls")]
        if "reasoning_effort" not in body and any("reasoning_details" in one for one in written):
            raise Refused("There are thinking blocks, but `thinking` is disabled.")
        is_open = calling[-1:] == written[-1:] and "reasoning_details" not in (calling or [{}])[-1]
        if "reasoning_effort" in body and calling and is_open:
            raise Refused(EXPECTED.format(len(body["messages"])))
        return len(calling)


@pytest.mark.parametrize("shape", [ClaudeBesideOthers, ClaudeBehindAProxy])
async def test_claude_goes_on_without_thinking_after_the_calls_of_a_fallback(
    world: World, shape: type[ClaudeBesideOthers] | type[ClaudeBehindAProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, model = "anthropic/claude-sonnet-4-5", shape(turns=3)
    option = "thinking" if shape is ClaudeBesideOthers else "reasoning_effort"
    async with serve_strict(model) as url:
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        environ = {
            "THREADHAND_MODEL": name,
            "THREADHAND_LLM_API_KEY": KEY,
            "THREADHAND_MODEL_OPTIONS": json.dumps({name: {"effort": "low"}}),
            "THREADHAND_LLM_BASE_URL": f"{url}/v1" if shape is ClaudeBehindAProxy else "",
            "THREADHAND_MODEL_FIRST_SECONDS": "280",  # the first call imports litellm
        }
        client = build_model_client(load_settings(environ, Path("no such file")))

        async def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
            is_second = sum(bool(one.get("tool_calls")) for one in request.messages) == 1
            fallback = StreamedModel([calls(("echo", '{"text": "of a fallback"}'))])
            async for delta in (fallback.stream if is_second else client.ask_model)(request):
                yield delta

        world.with_deps(model=name, ask_model=ask)
        assert (await world.read_run(await world.run("go"))).status == "completed"
        assert model.refusals == [EXPECTED.format(len(model.requests[1]["messages"]))]
        assert [option in one for one in model.requests] == [True, False, False]
        # the calls are over, so it may think about the next question
        await world.run("and again")
        assert option in model.requests[-1]
        assert len(model.refusals) == 1
        await client.close()
