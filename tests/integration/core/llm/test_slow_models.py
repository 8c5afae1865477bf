"""A model that is slow or fails: another attempt in time, a fallback model, and people who see it."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from aiohttp import web

from core import http_shutdown
from core.domain.errors import ModelUnavailable
from core.domain.events import ActivityChanged, RunFailed, RunFinished
from core.llm.openai_client import OpenAIChatClient
from core.llm.retry import stream_with_retries
from core.ports import ModelDelta, ModelRequest, ModelRetried, TextDelta
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

REQUEST = ModelRequest(model="first", messages=({"role": "user", "content": "hi"},))
FIRST_SECONDS = 0.3
STREAM = {"Content-Type": "text/event-stream"}
ANSWER = {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}


class Endpoint:
    """Answers each request with the next fault, or with the last one for ever; `answer` is no fault."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        self.models: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.models.append((await request.json())["model"])
        fault = self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]
        if fault.isdecimal():
            message = {"error": {"message": "Our engine burnt down. Key sk-secret."}}
            headers = {"Retry-After": "0.2"} if fault == "429" else {}
            return web.json_response(message, status=int(fault), headers=headers)
        if fault == "hang":
            await asyncio.sleep(60)
        response = web.StreamResponse(headers=STREAM)
        await response.prepare(request)
        if fault == "headers":
            await asyncio.sleep(60)
        with suppress(ConnectionError):
            while fault == "drip":
                await response.write(b": still here\n\n")
                await asyncio.sleep(0.02)
        await response.write(f"data: {json.dumps(ANSWER)}\n\ndata: [DONE]\n\n".encode())
        return response


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[OpenAIChatClient]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    llm = OpenAIChatClient(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "sk-secret")
    try:
        yield llm
    finally:
        await llm.close()
        await http_shutdown.shut_down_server(runner)


def asked(
    llm: OpenAIChatClient, request: ModelRequest = REQUEST, *fallbacks: str, deadline: float = 5
) -> AsyncGenerator[ModelDelta, None]:
    return stream_with_retries(
        llm,
        request,
        fallbacks=fallbacks,
        first_seconds=FIRST_SECONDS,
        deadline_seconds=deadline,
        scale_seconds=0.01,
    )


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("hang", "is slow"),
        ("headers", "is slow"),
        ("drip", "is slow"),
        ("429", "does not answer"),
        ("500", "does not answer"),
        ("529", "does not answer"),
    ],
)
async def test_each_fault_is_followed_by_another_attempt(fault: str, word: str) -> None:
    endpoint = Endpoint(fault, "answer")
    start = time.monotonic()
    async with serving(endpoint) as llm:
        got = [one async for one in asked(llm, deadline=30)]
    took = time.monotonic() - start
    assert [one.text for one in got if isinstance(one, TextDelta)] == ["Hello."]
    (retried,) = [one.text for one in got if isinstance(one, ModelRetried)]
    assert retried == f"The model {word}: attempt 2 of 6, 0 s"
    if fault == "429":
        assert took >= 0.2


async def test_all_attempts_end_by_the_deadline_and_the_log_has_the_providers_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    start = time.monotonic()
    async with serving(Endpoint("hang")) as llm:
        with pytest.raises(ModelUnavailable, match="did not answer in time"):
            async for _ in asked(llm, deadline=0.8):
                pass
    assert time.monotonic() - start < 30

    async with serving(Endpoint("500")) as llm:
        with pytest.raises(ModelUnavailable) as raised:
            async for _ in asked(llm, deadline=0.2):
                pass
    assert "burnt" not in str(raised.value)
    assert "Our engine burnt down. Key [key]." in caplog.text
    assert "sk-secret" not in caplog.text


async def test_a_fallback_answers_while_there_is_time() -> None:
    """A third of the deadline is for the first model, however many of its attempts fit in."""
    asked_models: list[str] = []

    class SilentFirst:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
            asked_models.append(request.model)
            if request.model == "first":
                await asyncio.Event().wait()
            yield TextDelta(text="Hello.")

    deltas = stream_with_retries(
        SilentFirst(),
        REQUEST,
        fallbacks=("second",),
        first_seconds=0.2,
        deadline_seconds=3,
        attempts_max=99,
        scale_seconds=0.01,
    )
    got = [one async for one in deltas]
    assert (asked_models[0], asked_models[-1]) == ("first", "second")
    assert [one.text for one in got if isinstance(one, TextDelta)] == ["Hello."]


async def test_an_answer_that_is_not_streamed_has_until_the_deadline() -> None:
    whole = ModelRequest(model="first", messages=REQUEST.messages, is_streamed=False)
    endpoint = Endpoint("hang")
    async with serving(endpoint) as llm:
        with pytest.raises(ModelUnavailable):
            async for _ in asked(llm, whole, deadline=2 * FIRST_SECONDS):
                pass
    assert endpoint.models == ["first"]


async def test_people_see_each_attempt_and_that_the_model_thinks_again(world: World) -> None:
    async with serving(Endpoint("headers", "answer")) as llm:
        world.with_deps(ask_model=partial(asked, llm))
        events = await world.events(await world.run("go"))
    shown = [one.text for one in events if isinstance(one, ActivityChanged)]
    assert shown == ["The model is slow: attempt 2 of 6, 0 s", "Thinking"]
    assert isinstance(events[-1], RunFinished)


async def test_a_model_that_never_answers_ends_the_run_with_one_sentence(world: World) -> None:
    async with serving(Endpoint("hang")) as llm:
        world.with_deps(ask_model=partial(asked, llm, deadline=0.5))
        events = await world.events(await world.run("go"))
    assert isinstance(events[-1], RunFailed)
    assert "did not answer in time" in events[-1].public_message
