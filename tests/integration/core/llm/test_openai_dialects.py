"""What endpoints that call themselves OpenAI-compatible do otherwise than OpenAI."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core.domain.errors import ModelError, ModelRejected, ModelUnavailable
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta
from tests.support.closing import close_after
from tests.support.web import serve_http

HI = TextDelta(text="Hi")
STOPPED = ModelFinished(finish_reason="stop")
WHOLE = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
STREAM = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def asking(model: str = "m") -> ModelRequest:
    return ModelRequest(
        model=model,
        messages=({"role": "user", "content": "hi"},),
        temperature=0.5,
        output_tokens_max=10,
        stop_sequences=("Observation:",),
    )


@asynccontextmanager
async def endpoint(answer: Answer) -> AsyncIterator[OpenAIChatClient]:
    async with serve_http(answer) as url, close_after(OpenAIChatClient(f"{url}/v1/", "key")) as llm:
        yield llm


def events(*pieces: bytes, content_type: str = "text/event-stream") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    return answer


async def answered(*pieces: bytes, content_type: str = "text/event-stream") -> list[ModelDelta]:
    async with endpoint(events(*pieces, content_type=content_type)) as llm:
        return [delta async for delta in llm.stream(asking())]


def chunk(choice: str) -> bytes:
    return b'data: {"choices":[' + choice.encode() + b"]}\n\n"


@pytest.mark.parametrize("body", [WHOLE, b"\n " + WHOLE, STREAM, b"\xef\xbb\xbf" + STREAM])
@pytest.mark.parametrize(
    "content_type", ["application/json", "text/event-stream", "text/plain", "application/octet-stream"]
)
async def test_an_answer_is_known_by_what_it_begins_with_whatever_its_type(body: bytes, content_type: str):
    assert await answered(body, content_type=content_type) == [HI, STOPPED]


@pytest.mark.parametrize(
    "content",
    [
        '["H","i"]',
        '{"type":"text","text":"Hi"}',
        '[{"type":"thinking","thinking":[{"text":"Hm"}]},{"type":"text","text":"Hi"}]',
        '[{"type":"reasoning","text":"Hm"},"Hi"]',
    ],
)
async def test_content_in_parts_is_read_without_its_thinking(content: str):
    got = await answered(chunk(f'{{"delta":{{"content":{content}}},"finish_reason":"stop"}}'))
    assert got == [HI, STOPPED]


@pytest.mark.parametrize(
    ("content", "text"), [(b"caf\xe9", "caf\ufffd"), (b"a\tb", "a\tb"), (b"\xf0\x9f\x98", "\ufffd")]
)
async def test_a_piece_that_is_not_quite_json_does_not_lose_the_answer(content: bytes, text: str):
    broken = b'data: {"choices":[{"delta":{"content":"' + content + b'"}}]}\n\n'
    assert await answered(broken + STREAM) == [TextDelta(text=text + "Hi"), STOPPED]


VLLM = '{"object":"error","message":"The model `m` does not exist.","type":"NotFoundError","code":404}'
DASHSCOPE = '{"code":"InvalidParameter","message":"The tool call is odd.","request_id":"1"}'


@pytest.mark.parametrize(
    ("body", "expected", "detail"),
    [
        (VLLM, ModelRejected, "does not exist"),
        (f"data: {VLLM}\n\ndata: [DONE]\n\n", ModelRejected, "does not exist"),
        (f"event:error\ndata:{DASHSCOPE}\n\n", ModelUnavailable, "tool call is odd"),
        ('{"detail":"Not Found"}', ModelUnavailable, "Not Found"),
        ('{"message":"no Route matched"}', ModelUnavailable, "no Route matched"),
        ('{"errors":[{"why":"no such path"}]}', ModelUnavailable, "no such path"),
        ("<!DOCTYPE html><title>Welcome</title>", ModelUnavailable, "<title>Welcome"),
        ("Bad gateway", ModelUnavailable, "Bad gateway"),
    ],
)
async def test_what_is_no_answer_is_told_in_the_services_words(body: str, expected: type[ModelError], detail: str):
    with pytest.raises(expected) as caught:
        await answered(body.encode())
    assert detail in caught.value.detail


def picky(*refusals: tuple[str, str]) -> tuple[Answer, list[dict[str, object]]]:
    """Refuses each option with its words; notes what it was asked."""
    seen: list[dict[str, object]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body)
        for option, words in refusals:
            if option in body:
                said = {"error": {"message": words, "type": "invalid_request_error"}}
                return web.json_response(said, status=400)
        return web.Response(body=STREAM, content_type="text/event-stream")

    return answer, seen


async def test_options_that_an_endpoint_does_not_take_are_left_out_from_then_on():
    answer, seen = picky(
        ("stream_options", "Unrecognized request argument supplied: stream_options"),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
        ("stop", "'stop' is not supported with this model."),
        ("max_tokens", "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    )
    async with endpoint(answer) as llm:
        for _ in range(2):
            assert [delta async for delta in llm.stream(asking())] == [HI, STOPPED]
        assert len(seen) == 6
        assert [delta async for delta in llm.stream(asking("other"))] == [HI, STOPPED]
    assert sorted(seen[5]) == ["max_completion_tokens", "messages", "model", "stream"]
    assert "stop" in seen[6]


@pytest.mark.parametrize(
    "words",
    [
        "invalid temperature: only 1 is allowed for this model",
        "`temperature` may only be set to 1 when thinking is enabled.",
        "`temperature` is deprecated for this model.",
    ],
)
async def test_a_temperature_that_the_model_does_not_take_is_left_out(words: str):
    answer, seen = picky(("temperature", words))
    async with endpoint(answer) as llm:
        assert [delta async for delta in llm.stream(asking())] == [HI, STOPPED]
    assert ("temperature" in seen[1], len(seen)) == (False, 2)


@pytest.mark.parametrize(
    "words",
    [
        "temperature: should be less than 0.4",
        "Unsupported model.",
        "max_tokens is too large: 10. This model supports at most 4 tokens.",
    ],
)
async def test_a_refusal_for_another_reason_is_not_asked_again(words: str):
    answer, seen = picky(("model", words))
    async with endpoint(answer) as llm:
        with pytest.raises(ModelRejected):
            [delta async for delta in llm.stream(asking())]
    assert len(seen) == 1


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
            [delta async for delta in llm.stream(asking())]
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
            assert len([delta async for delta in llm.stream(asking())]) == 1
    assert len(ports) == 1
