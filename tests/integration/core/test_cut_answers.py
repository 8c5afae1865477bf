"""Answers that a limit cuts off: the model learns which limit it was and how to go on, and people read the whole."""

import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.threads import Usage
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelFinished, TextDelta, ToolCallDelta
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.support.closing import close_after
from tests.support.web import serve_http


class Flood:
    """An endpoint whose model writes a call that never ends, in pieces or in one line, and then answers in words."""

    def __init__(self, *, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.sent_bytes = 0
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.text())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if len(self.requests) > 1:
            done = {"choices": [{"delta": {"content": "Smaller."}, "finish_reason": "stop"}]}
            await response.write(f"data: {json.dumps(done)}\n\ndata: [DONE]\n\n".encode())
            return response
        named = {"index": 0, "id": "c", "function": {"name": "echo", "arguments": '{"text": "'}}
        await response.write(_event(named))
        piece = _event({"index": 0, "function": {"arguments": "x" * self.line_bytes}})
        with suppress(ConnectionError):
            while self.sent_bytes < 100_000_000:
                await response.write(piece)
                self.sent_bytes += len(piece)
        return response


def _event(call: object) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n".encode()


@asynccontextmanager
async def endpoint(flood: Flood) -> AsyncIterator[OpenAIChatClient]:
    async with serve_http(flood.answer) as url, close_after(OpenAIChatClient(f"{url}/v1")) as llm:
        yield llm


CUT = ModelFinished(finish_reason="length", usage=Usage(input_tokens=9, output_tokens=4096))


async def answer(world: World) -> str:
    return (await world.read_reply(await world.run("go"))).text


def last_sent(world: World, number: int) -> str:
    return str(world.model.requests[number].messages[-1]["content"])


@pytest.mark.parametrize("name", ["native", "xml", "react"])
async def test_a_call_that_was_cut_off_is_told_how_to_go_on(world: World, name: str) -> None:
    half = '{"text": "half of a long fi'
    written = {
        "native": ToolCallDelta(index=0, call_id="c", name="echo", arguments=half),
        "xml": TextDelta(text='<function_calls>\n<invoke name="echo">\n<parameter name="text">half of a long fi'),
        "react": TextDelta(text=f"Thought: I write.\nAction: echo\nAction Input: {half}"),
    }
    final = "Final Answer: done" if name == "react" else "done"
    if name != "native":
        world.with_deps(dialect=XmlDialect() if name == "xml" else ReactDialect())
    world.model.turns = [[written[name], CUT], text(final)]
    assert await answer(world) == "done"
    assert world.bench.said == []
    assert len(world.model.requests) == 2
    told = last_sent(world, 1)
    assert "cut off inside this call, because it reached its limit of 4,096 tokens" in told
    assert "in several calls" in told


HALF = '{"name": "echo", "arguments": {"text": "half of a long fi'


async def test_half_a_written_call_stays_short_in_the_conversation(world: World) -> None:
    for dialect in (NativeDialect(), XmlDialect()):
        world.with_deps(dialect=dialect)
        long = TextDelta(text=f"I write.\n<tool_call>{HALF}" + "le " * 9000)
        world.model.turns = [[long, CUT], text("done")]
        assert await answer(world) == "done"
        assert len(str(world.model.requests[-1].messages[-2:])) < 6000


async def test_of_three_hundred_calls_32_run_and_the_others_say_what_to_do(world: World) -> None:
    world.model.turns = [calls(*[("echo", f'{{"text": "{number}"}}') for number in range(300)]), text("done")]
    run_id = await world.run("go")
    assert world.bench.said == [str(number) for number in range(32)]
    results = await world.tool_results(run_id)
    assert len(results) == 300
    assert "Not run: this is call 33 of your answer" in results[32]["error"]
    assert "do the work of many calls in one script" in results[299]["error"]


@pytest.mark.parametrize("line_bytes", [64_000, 30_000_000])
async def test_an_endless_call_is_not_read_on_and_the_model_is_told(world: World, line_bytes: int) -> None:
    flood = Flood(line_bytes=line_bytes)
    tracemalloc.start()
    async with endpoint(flood) as llm:
        world.with_deps(ask_model=llm.stream)
        assert await answer(world) == "Smaller."
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert flood.sent_bytes < 16_000_000 + line_bytes
    assert peak < 150_000_000
    assert "cut off inside this call" in flood.requests[1]
    assert len(flood.requests[1]) < 20_000
