"""Options of model calls: checked at the start, sent with every turn, shown by `use`."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from bots.bootstrap.inbound import build_roster
from bots.bootstrap.model_clients import ModelClient, ProviderClients, build_model_client
from bots.settings import Settings, load_settings
from core.context.limits import ContextLimit
from core.context.tokens import count_message, count_tools
from core.context.window import ContextPolicy
from core.domain.errors import ConfigurationError, ModelError
from core.domain.json import JsonObject
from core.domain.model_options import NO_OPTIONS, ModelOptions
from core.llm.litellm_client import LiteLLMClient
from core.llm.responses_api import ResponsesEncoder
from core.ports import ModelRequest, TextDelta
from core.run.deps import RunDeps
from storage.sql.stores.agents import SqlAgentVersions
from tests.fakes.made_pictures import picture
from tests.fakes.streamed_model import text
from tests.fakes.strict_models import Json, Refused, serve_strict
from tests.fakes.web_service import fake_web_service
from tests.integration.core.conftest import World
from tests.integration.core.llm.test_model_habits import DONE, Habits
from tests.support.closing import close_after

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
BY_MODEL = {"m": {"effort": "low", "temperature": 0.5, "answer_tokens": 900}}
REQUEST = ModelRequest(model="m", messages=({"role": "user", "content": "hi"},), tools=(TOOL,), is_streamed=False)


def settings(options: object, **variables: str) -> Settings:
    environ = {"THREADHAND_MODEL_OPTIONS": json.dumps(options)} | {
        f"THREADHAND_{name}": value for name, value in variables.items()
    }
    return load_settings(environ, Path("no such file"))


async def sent_by(options: object, request: ModelRequest) -> dict[str, Any]:
    """What an endpoint receives."""
    bodies: list[dict[str, Any]] = []

    async def answer(received: web.Request) -> web.Response:
        bodies.append(await received.json())
        choice = {"message": {"content": "hello"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    async with fake_web_service([web.post("/v1/chat/completions", answer)]) as service:
        clients = ProviderClients(settings(options, MODEL="m", LLM_BASE_URL=f"{service.url}/v1", LLM_API_KEY="k"))
        async for _ in clients.stream(request):
            pass
        await clients.close()
    return bodies[0]


async def test_the_options_of_the_model_are_sent_and_those_of_the_agent_replace_them() -> None:
    own = ModelOptions(effort="high", tool_choice="required", extra={"verbosity": "low"})
    body = await sent_by(BY_MODEL, replace(REQUEST, options=own))
    assert body["reasoning_effort"] == "high"
    assert body["temperature"] == 0.5
    assert 900 + 16_384 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert body["tool_choice"] == "required"
    assert body["verbosity"] == "low"


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"effort": "high"}, 8_000 + 16_384),
        ({"extra": {"thinking": {"type": "enabled", "budget_tokens": 20_000}}}, 28_000),
        ({"effort": "none"}, 8_000),
        ({}, 8_000),
    ],
)
async def test_thinking_is_added_to_the_room_for_an_answer(options: dict[str, Any], tokens: int) -> None:
    """A summary, for example, has a limit of 8,000 tokens, which is less than some models think."""
    body = await sent_by({"m": options}, replace(REQUEST, output_tokens_max=8_000))
    assert tokens in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_no_tool_is_forced_where_there_is_none_or_outside_a_turn() -> None:
    forced = {"m": {"tool_choice": "required", "effort": "low"}}
    assert "tool_choice" not in await sent_by(forced, replace(REQUEST, options=None))
    bare = replace(REQUEST, tools=(), options=NO_OPTIONS)
    assert "tool_choice" not in await sent_by(forced, bare)
    assert (await sent_by(forced, bare))["reasoning_effort"] == "low"


def test_the_responses_api_gets_the_effort_in_its_own_form() -> None:
    request = replace(REQUEST, options=ModelOptions(effort="medium", tool_choice="auto"))
    encoder = ResponsesEncoder(provider="openai", model_prefix="", tokens_key="max_output_tokens")
    body = json.loads(encoder.body(request))
    assert body["reasoning"] == {"effort": "medium"}
    assert body["tool_choice"] == "auto"
    assert "reasoning_effort" not in body


def test_litellm_gets_them_by_its_own_names() -> None:
    thinking = {"type": "enabled", "budget_tokens": 4000}
    options = ModelOptions(effort="high", tool_choice="none", extra={"thinking": thinking})
    arguments = LiteLLMClient(provider_keys={}, api_key="k")._arguments(
        replace(REQUEST, options=options), ModuleType("litellm")
    )
    assert arguments["reasoning_effort"] == "high"
    assert arguments["tool_choice"] == "none"
    assert arguments["thinking"] == thinking
    assert arguments["api_key"] == "k"


@pytest.mark.parametrize(
    "options",
    [
        "no object",
        {"m": {"effort": "huge"}},
        {"m": {"temperature": 3}},
        {"m": {"answer_tokens": 0}},
        {"m": {"tool_choice": "look"}},
        {"m": {"speed": 1}},
        *(
            {"m": {"extra": {name: "x"}}}
            for name in ("model", "api_base", "base_url", "extra_headers", "tools", "a b", "")
        ),
    ],
)
def test_wrong_options_stop_the_start(options: object) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_MODEL_OPTIONS"):
        settings(options)


def with_options(world: World, options: object) -> RunDeps:
    roster = build_roster(settings(options), SqlAgentVersions(world.database), ())
    return replace(world.deps, agents=replace(world.deps.agents, roster=roster))


@pytest.mark.parametrize(("channel_id", "effort"), [(None, "high"), ("C999", None)])
async def test_the_options_of_the_channel_reach_every_turn_of_a_run(
    world: World, channel_id: str | None, effort: str | None
) -> None:
    place = channel_id or world.address.channel_id
    world.deps = with_options(world, {f"channel:{place}": {"effort": "high"}})
    world.model.turns = [text("Hello.")]
    await world.run("hi")
    sent = world.model.requests[-1].options
    assert sent is not None
    assert sent.effort == effort


TOO_LONG = "This model's maximum context length is 8192 tokens."
SYSTEM: JsonObject = {"role": "system", "content": "Be brief."}
LOOK_UP: JsonObject = {
    "type": "function",
    "function": {"name": "echo", "description": "Say it.", "parameters": {"type": "object"}},
}
SMALL = 8_000


@dataclass
class Pair(Habits):
    """Two models. The first refuses every request; the fallback refuses images and what is too long for it."""

    status: int = 503
    words: str = "down"
    asked: list[str] = field(default_factory=list)

    def check(self, body: Json) -> int:
        self.asked.append(body["model"])
        if body["model"] == "first":
            raise Refused(self.words, status=self.status)
        if "image_url" in json.dumps(body):
            raise Refused("This model does not support images.")
        if sum(map(count_message, body["messages"])) + count_tools(body.get("tools", ())) > SMALL:
            raise Refused(TOO_LONG)
        return super().check(body)


@asynccontextmanager
async def built(
    pair: Habits, fallback: str = "second", policy: ContextPolicy | None = None
) -> AsyncIterator[ModelClient]:
    async with serve_strict(pair) as url:
        environ = {
            "THREADHAND_MODEL": "first",
            "THREADHAND_FALLBACK_MODELS": fallback,
            "THREADHAND_LLM_API_KEY": "sk-of-the-test",
            "THREADHAND_LLM_BASE_URL": f"{url}/v1",
        }
        limits = {fallback: ContextLimit(window=SMALL, reserved=1_000)}
        settings = load_settings(environ, Path("no such file"))
        async with close_after(build_model_client(settings, policy or ContextPolicy(limits=limits))) as client:
            yield client


async def ask(client: ModelClient, *messages: JsonObject, options: ModelOptions | None = None) -> str:
    request = ModelRequest(model="first", messages=(SYSTEM, *messages), tools=(LOOK_UP,), options=options)
    deltas = [one async for one in client.ask_model(request)]
    return "".join(one.text for one in deltas if isinstance(one, TextDelta))


CALL = {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
CALLING: JsonObject = {"role": "assistant", "content": "", "tool_calls": [CALL]}


async def test_a_request_for_a_large_window_is_shortened_for_the_fallback() -> None:
    result: JsonObject = {"role": "tool", "tool_call_id": "c1", "content": "word " * 20_000}
    pair = Pair(answers=[([DONE], "stop")], status=401)
    async with built(pair) as client:
        assert await ask(client, {"role": "user", "content": "go"}, CALLING, result) == "Done."
    (request,) = pair.requests
    assert [one["role"] for one in request["messages"]] == ["system", "user", "assistant", "tool"]
    assert "characters are left out here]" in request["messages"][3]["content"]
    assert pair.refusals == ["down"]


async def test_a_request_that_cannot_fit_the_fallback_is_not_sent_to_it() -> None:
    pair = Pair(status=401)
    many: list[JsonObject] = [{"role": role, "content": "word " * 200} for role in ("user", "assistant") * 40]
    async with built(pair) as client:
        with pytest.raises(ModelError, match="too long for second"):
            await ask(client, *many)
    assert pair.asked == ["first"]


async def test_a_fallback_that_takes_no_images_gets_a_note_in_their_place() -> None:
    url = f"data:image/png;base64,{base64.b64encode(picture()).decode()}"
    image: JsonObject = {"type": "image_url", "image_url": {"url": url}}
    message: JsonObject = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    pair = Pair(answers=[([DONE], "stop")] * 2, status=401)
    async with built(pair) as client:
        assert await ask(client, message) == "Done."
        assert await ask(client, message) == "Done."
    # the refusal is remembered
    assert pair.asked == ["first", "second", "second", "first", "second"]
    assert "which you cannot see" in str(pair.requests[0]["messages"])


async def test_a_fallback_without_tool_calls_reads_the_tools_in_its_prompt() -> None:
    pair = Pair(answers=[([DONE], "stop")], status=401)
    async with built(pair, fallback="gemma-2") as client:
        assert await ask(client, {"role": "user", "content": "go"}) == "Done."
    (request,) = pair.requests
    assert "tools" not in request
    assert '<invoke name="echo">' in str(request["messages"])


@dataclass
class WithoutTools(Habits):
    """Refuses tools, calls and results with `words`."""

    words: str = ""

    def check(self, body: Json) -> int:
        has_calls = any(one["role"] == "tool" or one.get("tool_calls") for one in body["messages"])
        if "tools" in body or "tool_choice" in body or has_calls:
            raise Refused(self.words)
        return super().check(body)


@pytest.mark.parametrize(
    "words",
    [
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "registry.ollama.ai/library/first does not support tools",
        "tools is not supported in this model.",
    ],
)
async def test_a_model_that_refuses_tools_gets_tools_calls_and_results_as_text(words: str) -> None:
    model = WithoutTools(answers=[([DONE], "stop")] * 2, words=words)
    result: JsonObject = {"role": "tool", "tool_call_id": "c1", "name": "echo", "content": "echo a"}
    async with built(model) as client:
        for _ in range(2):
            assert await ask(client, {"role": "user", "content": "go"}, CALLING, result) == "Done."
    assert model.refusals == [words]
    system, _question, call, answer = [str(one["content"]) for one in model.requests[0]["messages"]]
    assert '<invoke name="echo">' in system
    assert '<invoke name="echo">' in call
    assert answer == "Result of echo:\necho a"


@dataclass
class Claude(Habits):
    """Thinks only if the calls whose results it is sent follow thinking of its own."""

    def check(self, body: Json) -> int:
        if "reasoning_effort" in body and body["messages"][-1]["role"] == "tool":
            raise Refused("a final `assistant` message must start with a thinking block")
        return super().check(body)


async def test_claude_goes_on_without_thinking_after_the_calls_of_a_fallback() -> None:
    model, result = Claude(answers=[([DONE], "stop")] * 2), {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    question: JsonObject = {"role": "user", "content": "go"}
    async with built(model) as client:
        for messages in ((question, CALLING, result), (question,)):
            assert await ask(client, *messages, options=ModelOptions(effort="low")) == "Done."
    assert len(model.refusals) == 1
    assert ["reasoning_effort" in one for one in model.requests] == [False, True]
