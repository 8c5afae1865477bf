"""Models and servers that refuse tools: the run goes on with calls written as text."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bots.bootstrap.model_clients import ModelClient, build_model_client
from bots.settings import load_settings
from core.domain.events import RunFailed, RunFinished
from core.llm.error_mapping import NO_TOOL_CALLS
from tests.fakes.strict_models import Json, Refused, serve_strict
from tests.integration.core.conftest import World
from tests.integration.core.llm.test_model_habits import DONE, Habits
from tests.support.closing import close_after

CALL = '<function_calls>\n<invoke name="echo">\n<parameter name="text">a</parameter>\n</invoke>\n</function_calls>'
VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@dataclass
class WithoutTools(Habits):
    """Refuses tools, calls and results with `words`, the models in `all_of` only."""

    words: str = VLLM
    refuses_text: bool = False
    all_of: tuple[str, ...] = ("first",)

    def check(self, body: Json) -> int:
        has_calls = any(one["role"] == "tool" or one.get("tool_calls") for one in body["messages"])
        has_tools = "tools" in body or "tool_choice" in body or has_calls
        if body["model"] in self.all_of and (has_tools or self.refuses_text):
            raise Refused(self.words)
        return super().check(body)


@asynccontextmanager
async def built(model: WithoutTools, **settings: str) -> AsyncIterator[ModelClient]:
    async with serve_strict(model) as url:
        named = {"MODEL": "first", "LLM_API_KEY": "k", "LLM_BASE_URL": f"{url}/v1", **settings}
        environ = {f"THREADHAND_{name}": value for name, value in named.items()}
        async with close_after(build_model_client(load_settings(environ, Path("no such file")))) as client:
            yield client


def texts(request: Json) -> list[str]:
    return [str(one["content"]) for one in request["messages"]]


async def play(world: World, client: ModelClient) -> RunFinished | RunFailed:
    world.with_deps(model="first", ask_model=client.ask_model, dialect=client.dialect)
    end = (await world.events(await world.run("go")))[-1]
    assert isinstance(end, RunFinished | RunFailed)
    return end


def said(end: RunFinished | RunFailed) -> str:
    assert isinstance(end, RunFinished)
    assert end.reply is not None
    return end.reply.text


@pytest.mark.parametrize(
    "words", [VLLM, "registry.ollama.ai/library/first does not support tools", "tools is not supported in this model."]
)
async def test_a_run_goes_on_with_calls_in_the_text(world: World, words: str, caplog: pytest.LogCaptureFixture) -> None:
    answers = [([{"content": "I look.\n"}, {"content": CALL}], "stop"), ([DONE], "stop"), ([DONE], "stop")]
    model = WithoutTools(answers=answers, words=words)
    async with built(model) as client:
        with caplog.at_level(logging.WARNING, "bots"):
            assert said(await play(world, client)) == "Done."
            assert said(await play(world, client)) == "Done."
    assert world.bench.said == ["a"]
    assert model.refusals == [words]
    assert [record.args for record in caplog.records if "writes them as text" in record.msg] == [
        ("first", f"400 invalid_request_error {words}")
    ]
    first, second, _later = model.requests
    system = texts(first)[0]
    assert '<invoke name="echo">' in system
    assert "Say something back." in system
    assert texts(second)[0] == system
    assert any(text.startswith("I look.") and text.endswith(CALL) for text in texts(second))
    assert any(text == "Result of echo:\necho a" for text in texts(second))


async def test_a_model_that_refuses_even_the_text_ends_the_run_with_a_sentence(world: World) -> None:
    model = WithoutTools(refuses_text=True)
    async with built(model) as client:
        end = await play(world, client)
    assert isinstance(end, RunFailed)
    assert end.public_message == NO_TOOL_CALLS
    assert len(model.refusals) == 2
