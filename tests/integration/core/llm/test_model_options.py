"""Options of model calls: checked at the start, sent with every turn, shown by `use`."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from bots.bootstrap.inbound import build_roster
from bots.bootstrap.model_clients import ProviderClients
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError
from core.domain.model_options import NO_OPTIONS, ModelOptions
from core.llm.litellm_client import LiteLLMClient
from core.llm.responses_api import ResponsesEncoder
from core.ports import ModelRequest
from core.run.deps import RunDeps
from storage.sql.stores.agents import SqlAgentVersions
from tests.fakes.streamed_model import text
from tests.fakes.web_service import fake_web_service
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

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
