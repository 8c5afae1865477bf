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
from core.domain.model_options import ModelOptions
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
    request = ModelRequest(model="first", messages=(SYSTEM, *messages), tools=(TOOL,), options=options)
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
