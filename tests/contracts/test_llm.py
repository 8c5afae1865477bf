"""The contract of the LLM port, passed by the direct client and by litellm against one local endpoint."""

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Protocol

import pytest
from aiohttp import ClientSession, web

from bots.demo.scripted_model import serve_scenario
from core.domain.errors import ContextOverflow, ModelError, ModelRejected, ModelUnavailable
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta, ToolCallDelta
from simulator.model.scenario import load_scenario
from simulator.model.server import ScriptedServer
from tests.fakes.web_service import Answer, fake_web_service, says

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")

KEY = "sk-secret-of-the-test"
STORY = """
conversations:
  - name: plain
    when: {user: {contains: greet}}
    steps:
      - {thinking: "Hm, hm.", text: "Hello, wörld 🙂 and more.", chunk_characters: 3,
         usage: {input_tokens: 90, cached_tokens: 30, output_tokens: 7}}
  - name: calls
    when: {user: {contains: look}, tools: [read_file]}
    steps:
      - text: "I look."
        chunk_characters: 5
        calls:
          - {name: read_file, arguments: {path: "a.txt"}}
          - {name: read_file, arguments: {path: "b.txt"}}
"""


class ClosableLLM(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def model(kind: str, base_url: str, **timeouts: float) -> AsyncIterator[ClosableLLM]:
    llm: ClosableLLM
    if kind == "direct":
        llm = OpenAIChatClient(base_url, KEY, model_prefix="openai/", **timeouts)
    else:
        llm = LiteLLMClient(api_key=KEY, base_url=base_url, **timeouts)
    try:
        yield llm
    finally:
        await llm.close()


def ask(text: str, *, is_streamed: bool = True, tools: tuple = ()) -> ModelRequest:
    return ModelRequest(
        model="openai/gpt-4o", messages=({"role": "user", "content": text},), tools=tools, is_streamed=is_streamed
    )


async def deltas(llm: ClosableLLM, request: ModelRequest) -> list[ModelDelta]:
    return [delta async for delta in llm.stream(request)]


async def collect(llm: ClosableLLM, request: ModelRequest, seen: list[ModelDelta]) -> None:
    async for delta in llm.stream(request):
        seen.append(delta)  # noqa: PERF401 - what came before an error counts


def fault_story(fault: str, text: str = "Hello there, this is an answer.") -> str:
    return f"""
conversations:
  - name: broken
    steps:
      - {{text: "{text}", chunk_characters: 4, fault: {fault}}}
"""


async def failure(kind: str, fault: str, **timeouts: float) -> tuple[ModelError, list[ModelDelta]]:
    seen: list[ModelDelta] = []
    async with (
        serve_scenario(load_scenario(fault_story(fault))) as server,
        model(kind, server.base_url, **timeouts) as llm,
    ):
        with pytest.raises(ModelError) as raised:
            await collect(llm, ask("anything"), seen)
    assert KEY not in raised.value.detail
    assert KEY not in str(raised.value)
    return raised.value, seen


both = pytest.mark.parametrize("kind", ["direct", "litellm"])


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serve_scenario(load_scenario(STORY)) as running:
        yield running


@both
async def test_an_empty_tool_calls_of_a_stored_message_is_not_sent(kind: str, server: ScriptedServer):
    request = ModelRequest(
        model="openai/gpt-4o",
        messages=({"role": "assistant", "content": "before", "tool_calls": None}, {"role": "user", "content": "greet"}),
    )
    async with model(kind, server.base_url) as llm:
        await deltas(llm, request)
    assert server.problems == []


@both
async def test_closing_the_stream_early_leaves_the_model_usable(kind: str, server: ScriptedServer):
    async with model(kind, server.base_url) as llm:
        async with aclosing(llm.stream(ask("greet me"))) as stream:
            async for _ in stream:
                break
        assert isinstance((await deltas(llm, ask("greet me")))[-1], ModelFinished)


@both
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("{kind: status, status: 429}", ModelUnavailable),
        ("{kind: status, status: 500}", ModelUnavailable),
        ("{kind: status, status: 503}", ModelUnavailable),
        ("{kind: status, status: 400}", ModelRejected),
        ("{kind: status, status: 401, message: 'bad key sk-secret-of-the-test'}", ModelRejected),
        ("{kind: status, status: 403}", ModelRejected),
        ("{kind: status, status: 404}", ModelRejected),
        ("{kind: status, status: 400, code: context_length_exceeded, message: 'too large'}", ContextOverflow),
        ("{kind: status, status: 400, message: 'prompt is too long: 9 tokens > 8 maximum'}", ContextOverflow),
    ],
)
async def test_a_refusal_before_the_answer_is_translated(kind: str, fault: str, expected: type[ModelError]):
    error, seen = await failure(kind, fault)
    assert type(error) is expected
    assert seen == []
    assert str(error).endswith(".")


@both
async def test_the_wait_that_a_service_asks_for_is_passed_on(kind: str):
    error, _ = await failure(kind, "{kind: status, status: 429, retry_after_seconds: 7}")
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_seconds == 7


@both
@pytest.mark.parametrize("fault", ["cut", "end", "error", "garbage"])
async def test_a_stream_that_breaks_in_the_middle_raises_after_its_deltas(kind: str, fault: str):
    error, seen = await failure(kind, f"{{kind: {fault}, after_characters: 12}}")
    assert isinstance(error, ModelUnavailable)
    assert "".join(delta.text for delta in seen if isinstance(delta, TextDelta)) == "Hello there,"


@both
async def test_a_silent_stream_ends_after_its_limit(kind: str):
    error, seen = await failure(kind, "{kind: hang, after_characters: 4}", silence_seconds=1)
    assert isinstance(error, ModelUnavailable)
    assert len(seen) == 1


def chunk(delta: str, finish: str = "null") -> str:
    choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
    return f'data: {{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{choice}]}}\n\n'


def dripping(*pieces: str, last: str) -> Answer:
    """Returns a handler that sends a piece every 0.15 s, and then the last."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece.encode())
            await asyncio.sleep(0.15)
        await response.write(last.encode())
        return response

    return answer


PING = 'event: ping\ndata: {"type": "ping"}\n\n'
CLAUDE_BEGIN = (
    'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type": "message",'
    ' "role": "assistant", "model": "claude-sonnet-4-5", "content": [],'
    ' "usage": {"input_tokens": 1, "output_tokens": 1}}}\n\n'
)
CLAUDE_END = """event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}

event: message_stop
data: {"type": "message_stop"}

"""


@pytest.mark.parametrize(
    ("kind", "name", "begin", "sign"),
    [
        ("direct", "openai/gpt-4o", "", ": OPENROUTER PROCESSING\n\n"),
        ("direct", "openai/gpt-4o", "", chunk('{"content": "", "reasoning": null}')),
        ("direct", "openai/gpt-4o", "", "\n"),
        ("litellm", "openai/gpt-4o", "", ": keep-alive\n\n"),
        ("litellm", "openai/gpt-4o", "", chunk('{"role": "assistant", "content": ""}')),
        ("litellm", "deepseek/deepseek-chat", "", ": keep-alive\n\n"),
        ("litellm", "anthropic/claude-sonnet-4-5", CLAUDE_BEGIN, PING),
    ],
)
async def test_data_without_content_is_told_and_is_no_silence(kind: str, name: str, begin: str, sign: str):
    answer = chunk('{"content":"Hello."}') + chunk("{}", '"stop"') + "data: [DONE]\n\n"
    last = CLAUDE_END if begin else answer
    received: list[float] = []
    request = replace(ask("anything"), model=name)
    async with fake_web_service([]) as server:
        url = f"{server.url}/v1"
        server.faults[""] = dripping(begin, last=last)
        async with model(kind, url) as llm:
            await deltas(llm, request)  # litellm's first call takes longer, because it imports more
        server.faults[""] = dripping(begin, *[sign] * 8, last=last)
        watched = replace(request, on_received=lambda: received.append(time.monotonic()))
        async with model(kind, url, silence_seconds=1) as llm:
            stream = llm.stream(watched)
            first = await anext(stream)
            signs = len(received)
            await stream.aclose()
    assert isinstance(first, TextDelta)
    assert first.text == "Hello."
    assert signs >= 6


async def test_a_closed_client_leaves_no_session_of_any_provider_open():
    async with fake_web_service([]) as server:
        for name, begin, last in (
            ("openai/gpt-4o", "", chunk('{"content":"Hello."}') + chunk("{}", '"stop"')),
            ("anthropic/claude-sonnet-4-5", CLAUDE_BEGIN, CLAUDE_END),
        ):
            server.faults[""] = dripping(begin, last=last)
            for _ in range(2):  # a client that was closed opens again
                async with model("litellm", f"{server.url}/v1") as llm:
                    await deltas(llm, replace(ask("anything"), model=name))
                gc.collect()
                made = [one for one in gc.get_objects() if isinstance(one, ClientSession)]
                assert [one for one in made if not one.closed] == []


@both
async def test_a_service_that_is_not_there_is_unavailable(kind: str):
    async with serve_scenario(load_scenario(STORY)) as gone:
        base_url = gone.base_url
    async with model(kind, base_url) as llm:
        with pytest.raises(ModelUnavailable):
            await deltas(llm, ask("greet"))


@both
async def test_a_character_that_was_cut_in_two_arrives_whole(kind: str):
    """Servers that write JSON in ASCII may cut between the two halves of a character; a half alone is no text."""
    call = r'{{"tool_calls":[{{"index":0,"id":"c","type":"function","function":{{"name":"f","arguments":"{}"}}}}]}}'
    said = (
        r'{"content":"a \ud83d"}',
        r'{"content":"\ude42 b \udc00 c \ud83d"}',
        r'{"content":" d \ud83d"}',
        call.format(r"{\"x\": \"\ud83d"),
        call.format(r"\ude42\"}"),
    )
    answer = "".join(map(chunk, said)) + chunk("{}", '"stop"') + "data: [DONE]\n\n"
    async with fake_web_service([]) as server, model(kind, f"{server.url}/v1") as llm:
        server.faults["/chat/completions"] = says(answer.encode(), "text/event-stream")
        got = await deltas(llm, ask("anything"))
    assert "".join(one.text for one in got if isinstance(one, TextDelta)) == "a 🙂 b \ufffd c \ufffd d "
    arguments = [one.arguments for one in got if isinstance(one, ToolCallDelta)]
    assert "".join(arguments) == '{"x": "🙂"}'
