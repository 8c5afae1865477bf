from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core.domain.errors import ModelRejected, ModelUnavailable
from core.domain.threads import Usage
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta, ToolCallDelta
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


async def test_strange_shapes_are_passed_over():
    got = await answered(
        b'data: {"choices":null}\n\ndata: {"choices":[7]}\n\ndata: {"usage":{"prompt_tokens":"x"}}\n\n'
        b'data: {"choices":[{"delta":{"content":[{"type":"text","text":"x"}],"tool_calls":[1,{"id":5}]}}]}\n\n'
        b"data: [DONE]\n\n"
    )
    assert got == [
        TextDelta(text="x"),
        ToolCallDelta(index=1),
        ModelFinished(finish_reason="tool_calls", usage=Usage()),
    ]


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


async def test_an_unusable_address_is_rejected_at_once():
    llm = OpenAIChatClient("http://[broken", "key")
    with pytest.raises(ModelRejected):
        [delta async for delta in llm.stream(REQUEST)]
    await llm.close()
