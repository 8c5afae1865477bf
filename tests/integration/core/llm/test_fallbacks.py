"""A fallback model: it is asked after refusals, too, and its requests fit it."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bots.bootstrap.model_clients import ModelClient, build_model_client
from bots.settings import load_settings
from core.context.limits import ContextLimit
from core.context.tokens import count_message, count_tools
from core.context.window import ContextPolicy
from core.domain.errors import ModelError
from core.domain.json import JsonObject
from core.ports import ModelRequest, TextDelta
from tests.fakes.made_pictures import picture
from tests.fakes.strict_models import Json, Refused, serve_strict
from tests.integration.core.llm.test_model_habits import DONE, Habits
from tests.support.closing import close_after

TOO_LONG = "This model's maximum context length is 8192 tokens."
SYSTEM: JsonObject = {"role": "system", "content": "Be brief."}
TOOL: JsonObject = {
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
    pair: Pair, fallback: str = "second", policy: ContextPolicy | None = None
) -> AsyncIterator[ModelClient]:
    async with serve_strict(pair) as url:
        environ = {
            "THREADHAND_MODEL": "first",
            "THREADHAND_FALLBACK_MODELS": fallback,
            "THREADHAND_LLM_API_KEY": "k",
            "THREADHAND_LLM_BASE_URL": f"{url}/v1",
        }
        limits = {fallback: ContextLimit(window=SMALL, reserved=1_000)}
        settings = load_settings(environ, Path("no such file"))
        async with close_after(build_model_client(settings, policy or ContextPolicy(limits=limits))) as client:
            yield client


async def ask(client: ModelClient, *messages: JsonObject, tools: tuple[JsonObject, ...] = (TOOL,)) -> str:
    request = ModelRequest(model="first", messages=(SYSTEM, *messages), tools=tools)
    deltas = [one async for one in client.ask_model(request)]
    return "".join(one.text for one in deltas if isinstance(one, TextDelta))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "temperature must be below 2"),
        (401, "Incorrect API key provided"),
        (402, "Insufficient Balance"),
        (404, "The model does not exist"),
        (413, "Request too large"),
        (400, TOO_LONG),
    ],
)
async def test_a_refusal_of_the_first_model_is_followed_by_the_fallback(status: int, words: str) -> None:
    pair = Pair(answers=[([DONE], "stop")], status=status, words=words)
    async with built(pair) as client:
        assert await ask(client, {"role": "user", "content": "go"}) == "Done."
    assert pair.asked == ["first", "second"]


@dataclass
class RefusesTool(Pair):
    """Refuses a tool in the words of OpenAI."""

    def check(self, body: Json) -> int:
        self.asked.append(body["model"])
        if "mcp_x_bad" in json.dumps(body):
            raise Refused("Invalid schema for function 'mcp_x_bad': array schema missing items.")
        return Habits.check(self, body)


async def test_a_tool_that_the_first_model_refuses_is_left_out_and_the_model_goes_on() -> None:
    bad: JsonObject = {"type": "function", "function": {"name": "mcp_x_bad", "parameters": {"type": "object"}}}
    pair = RefusesTool(answers=[([DONE], "stop")] * 2)
    async with built(pair) as client:
        for _ in range(2):
            assert await ask(client, {"role": "user", "content": "go"}, tools=(TOOL, bad)) == "Done."
    assert pair.asked == ["first"] * 3
    assert pair.requests[1]["tools"] == [TOOL]


async def test_a_request_for_a_large_window_is_shortened_for_the_fallback() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
    calling: JsonObject = {"role": "assistant", "content": "", "tool_calls": [call]}
    result: JsonObject = {"role": "tool", "tool_call_id": "c1", "content": "word " * 20_000}
    pair = Pair(answers=[([DONE], "stop")], status=401)
    async with built(pair) as client:
        assert await ask(client, {"role": "user", "content": "go"}, calling, result) == "Done."
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
