from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core.domain.errors import ModelRejected, ModelUnavailable
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelDelta, ModelRequest
from tests.support.closing import close_after
from tests.support.web import serve_http

REQUEST = ModelRequest(model="m", messages=({"role": "user", "content": "hi"},))
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def endpoint(answer: Answer) -> AsyncIterator[OpenAIChatClient]:
    async with serve_http(answer) as url, close_after(OpenAIChatClient(f"{url}/v1/", "key")) as llm:
        yield llm


def events(*pieces: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    return answer


async def answered(*pieces: bytes) -> list[ModelDelta]:
    async with endpoint(events(*pieces)) as llm:
        return [delta async for delta in llm.stream(REQUEST)]


@pytest.mark.parametrize(
    "piece",
    [
        b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
        b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n',
        b"data: {broken\n\n",
        b"data: 7\n\n",
        b'data: {"error":{"message":"overloaded","code":502}}\n\n',
        b'data: {"error":"boom"}\n\n',
        b"",
    ],
)
async def test_a_stream_that_is_no_whole_answer_is_unavailable(piece: bytes):
    with pytest.raises(ModelUnavailable):
        await answered(piece)


async def test_a_redirect_is_refused_and_the_key_does_not_travel():
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with endpoint(answer) as llm:
        with pytest.raises(ModelRejected, match="leads elsewhere"):
            [delta async for delta in llm.stream(REQUEST)]
    assert seen == ["/v1/chat/completions"]


async def test_one_connection_serves_one_call_after_the_other():
    ports: set[object] = set()
    done = events(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return await done(request)

    async with endpoint(answer) as llm:
        for _ in range(3):
            assert len([delta async for delta in llm.stream(REQUEST)]) == 1
    assert len(ports) == 1
