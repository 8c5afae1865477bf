"""A model that is slow or fails: another attempt in time, a fallback model, and people who see it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from bots.bootstrap import model_clients
from bots.bootstrap.model_clients import build_model_client
from bots.settings import load_settings
from core.domain.events import ActivityChanged, AgentEvent, ResponseStarted, RunFinished
from core.domain.json import JsonObject
from core.llm.openai_client import OpenAIChatClient
from core.llm.retry import stream_with_retries
from core.loop import turn
from core.ports import ModelDelta, ModelRequest, TextDelta
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world
from tests.support.closing import close_after
from tests.support.web import serve_http

REQUEST = ModelRequest(model="first", messages=({"role": "user", "content": "hi"},))
FIRST_SECONDS = 0.3
SILENCE_SECONDS = 1.0
"""For a model that has begun its answer. Long enough that a busy machine does not seem to be a silent model."""
STREAM = {"Content-Type": "text/event-stream"}


def event(delta: JsonObject, finish: str | None = None) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': finish}]})}\n\n".encode()


ANSWER = event({"content": "Hello."}, "stop") + b"data: [DONE]\n\n"
COMMENT = b": OPENROUTER PROCESSING\n\n"
WORDS = [event({"content": word}) for word in ("Once ", "upon ", "a time")]
CALL = {"index": 0, "id": "c1", "function": {"name": "echo", "arguments": '{"text": "a"}'}}
CUT_CALL = {"index": 1, "id": "c2", "function": {"name": "echo", "arguments": '{"te'}}
FOR_EVER = 60.0
PLAYS: dict[str, list[bytes | float]] = {
    "answer": [ANSWER],
    "headers": [FOR_EVER],
    "drip": [COMMENT, 0.02] * 3000,
    "words": [*WORDS, FOR_EVER],
    "cut": [*WORDS],
    "call": [event({"tool_calls": [CALL]}), event({"tool_calls": [CUT_CALL]}), FOR_EVER],
}
"""What the endpoint sends, and the seconds in which it sends nothing."""


class Endpoint:
    """Answers each request with the next fault, or with the last one for ever; `answer` is no fault. The second model
    in a request has no faults."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        self.models: list[str] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.models.append((await request.json())["model"])
        if self.models[-1] == "second":
            return await self._answer(request, "answer")
        fault = self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]
        if fault.isdecimal():
            message = {"error": {"message": "Our engine burnt down. Key sk-secret."}}
            headers = {"Retry-After": "0.2"} if fault == "429" else {}
            return web.json_response(message, status=int(fault), headers=headers)
        if fault in ("hang", "slow"):
            await asyncio.sleep(60 if fault == "hang" else 2 * FIRST_SECONDS)
        return await self._answer(request, fault)

    async def _answer(self, request: web.Request, fault: str) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM)
        await response.prepare(request)
        with suppress(ConnectionError):
            for part in PLAYS.get(fault, [ANSWER]):
                if isinstance(part, bytes):
                    await response.write(part)
                else:
                    await asyncio.sleep(part)
        return response


@asynccontextmanager
async def serving(endpoint: Endpoint, silence_seconds: float = 180) -> AsyncIterator[OpenAIChatClient]:
    async with serve_http(endpoint.handle) as url:
        endpoint.url = f"{url}/v1"
        async with close_after(OpenAIChatClient(endpoint.url, "sk-secret", silence_seconds=silence_seconds)) as llm:
            yield llm


def asked(
    llm: OpenAIChatClient,
    request: ModelRequest = REQUEST,
    *fallbacks: str,
    deadline: float = 5,
    first: float = FIRST_SECONDS,
) -> AsyncGenerator[ModelDelta, None]:
    return stream_with_retries(
        llm, request, fallbacks=fallbacks, first_seconds=first, deadline_seconds=deadline, scale_seconds=0.01
    )


async def answer_of(
    world: World, endpoint: Endpoint, *fallbacks: str, deadline: float = 5
) -> tuple[list[AgentEvent], list[str]]:
    """Returns the events of a run whose model is at the endpoint, and what they showed people of its attempts."""

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return asked(llm, request, *fallbacks, deadline=deadline, first=deadline)

    async with serving(endpoint, silence_seconds=SILENCE_SECONDS) as llm:
        world.with_deps(ask_model=ask)
        run_id = await world.run("go")
    events = await world.events(run_id)
    return events, [one.text for one in events if isinstance(one, ActivityChanged)]


@pytest.mark.parametrize("fault", ["words", "cut"])
async def test_a_model_that_stops_in_the_middle_is_followed_by_its_fallback(world: World, fault: str) -> None:
    endpoint = Endpoint(fault)
    events, shown = await answer_of(world, endpoint, "second")
    assert endpoint.models == ["test", "test", "second"]
    assert shown[0].startswith("The model stopped answering in the middle: attempt 2 of 6")
    assert shown[2:] == ["test stopped answering in the middle: trying second", "Thinking"]
    assert sum(isinstance(one, ResponseStarted) for one in events) == 3
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.reply is not None
    assert last.reply.text == "Hello."


async def test_calls_of_an_answer_that_stops_stand_and_run_once(world: World) -> None:
    endpoint = Endpoint("call", "answer")
    events, shown = await answer_of(world, endpoint, "second")
    assert world.bench.said == ["a"]
    assert shown == []
    assert endpoint.models == ["test", "test"]
    assert isinstance(events[-1], RunFinished)


@pytest.mark.parametrize(("fault", "text"), [("headers", "Waiting for the model, "), ("drip", "Thinking, ")])
async def test_people_see_for_how_long_the_model_has_sent_nothing(
    world: World, fault: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "WAIT_TOLD_SECONDS", 0.4)
    async with serving(Endpoint(fault)) as llm:
        patient = partial(stream_with_retries, llm, first_seconds=2, deadline_seconds=2)
        world.with_deps(ask_model=patient)
        events = await world.events(await world.run("go"))
    shown = [one.text for one in events if isinstance(one, ActivityChanged)]
    assert len(shown) >= 3
    assert all(one.startswith(text) and one.endswith(" s") for one in shown)


@pytest.mark.parametrize(
    "variables",
    [{"MODEL_FIRST_SECONDS": "5"}, {"STREAM": "false", "MODEL_FIRST_SECONDS": "0.1", "MODEL_DEADLINE_SECONDS": "5"}],
)
async def test_an_answer_may_take_as_long_to_begin_as_the_settings_say(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_clients, "SILENCE_SECONDS", 0.1)
    endpoint = Endpoint("slow")
    async with serving(endpoint):
        named = {"MODEL": "first", "LLM_API_KEY": "k", "LLM_BASE_URL": endpoint.url, **variables}
        environ = {f"THREADHAND_{name}": value for name, value in named.items()}
        client = build_model_client(load_settings(environ, Path("no such file")))
        request = replace(REQUEST, is_streamed=variables.get("STREAM") != "false")
        got = [one async for one in client.ask_model(request)]
        await client.close()
    assert endpoint.models == ["first"]
    assert isinstance(got[0], TextDelta)
