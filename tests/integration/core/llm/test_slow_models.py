"""A model that stops in the middle of its answer: another attempt in time, a fallback model, and people who see it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
from aiohttp import web

from core.domain.events import ActivityChanged, ResponseStarted
from core.llm.openai_client import OpenAIChatClient
from core.llm.retry import stream_with_retries
from core.ports import ModelDelta, ModelRequest
from tests.integration.core.conftest import World
from tests.support.closing import close_after
from tests.support.web import serve_http

SILENCE_SECONDS = 1.0
"""For a model that has begun its answer. Long enough that a busy machine does not seem to be a silent model."""


def event(text: str, finish: str | None = None) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': finish}]})}\n\n".encode()


@pytest.mark.parametrize("is_silent", [True, False], ids=["words", "cut"])
async def test_a_model_that_stops_in_the_middle_is_followed_by_its_fallback(world: World, is_silent: bool) -> None:
    models: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        models.append((await request.json())["model"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):
            if models[-1] == "second":
                await response.write(event("Hello.", "stop") + b"data: [DONE]\n\n")
                return response
            for word in ("Once ", "upon ", "a time"):
                await response.write(event(word))
            if is_silent:
                await asyncio.Event().wait()
        return response

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return stream_with_retries(
            llm, request, fallbacks=("second",), first_seconds=5, deadline_seconds=5, scale_seconds=0.01
        )

    async with (
        serve_http(answer) as url,
        close_after(OpenAIChatClient(f"{url}/v1", "sk-secret", silence_seconds=SILENCE_SECONDS)) as llm,
    ):
        world.with_deps(ask_model=ask)
        run_id = await world.run("go")
    events = await world.events(run_id)
    shown = [one.text for one in events if isinstance(one, ActivityChanged)]
    assert models == ["test", "test", "second"]
    assert shown[0].startswith("The model stopped answering in the middle: attempt 2 of 6")
    assert shown[2:] == ["test stopped answering in the middle: trying second", "Thinking"]
    assert sum(isinstance(one, ResponseStarted) for one in events) == 3
    assert (await world.read_reply(run_id)).text == "Hello."
