"""What servers that call themselves OpenAI-compatible send, through the direct client and through litellm."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from core.domain.errors import AnswerRejected, ModelUnavailable
from core.llm.error_mapping import ENDLESS
from core.ports import LLM, ModelRequest, TextDelta
from tests.integration.core.llm.test_openai_dialects import answered
from tests.integration.core.llm.test_providers import Answer, client_of, read
from tests.support.web import serve_http

# litellm reads a deprecated attribute of its own models, and warns of arguments that are no text
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

Json = dict[str, Any]
KINDS = ["direct", "litellm"]
MODELS = {"direct": "m", "litellm": "openai/m"}
HEAD: Json = {"id": "c", "created": 1, "model": "m"}
WHOLE = '{"place": "Oslo", "days": 2}'
CALLED = [("look_up", {"place": "Oslo", "days": 2})]


def chunk(delta: Json, reason: str | None = None, index: int = 0) -> Json:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return HEAD | {"object": "chat.completion.chunk", "choices": [choice]}


def stream(*bodies: Json, before: str = "data: ", after: str = "\n\n") -> bytes:
    texts = [*map(json.dumps, bodies), "[DONE]"]
    return "".join(before + text + after for text in texts).encode()


def whole(message: Json, reason: str | None = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": reason}
    return json.dumps(HEAD | {"object": "chat.completion", "choices": [choice]}).encode()


def call(arguments: object, call_id: str = "", index: int | None = 0, name: str = "") -> Json:
    function = {"name": name} if name else {}
    known = {"id": call_id, "type": "function"} if call_id else {}
    place = {} if index is None else {"index": index}
    return {"function": {**function, "arguments": arguments}, **known, **place}


@asynccontextmanager
async def client(kind: str, body: bytes) -> AsyncIterator[LLM]:
    """Serves a body, as a stream unless it is a JSON object, and yields a client for it."""

    async def answer(_request: web.Request) -> web.Response:
        known = "application/json" if body.startswith(b"{") else "text/event-stream"
        return web.Response(body=body, content_type=known)

    async with serve_http(answer) as url, client_of(kind, f"{url}/v1") as made:
        yield made


async def ask(kind: str, body: bytes) -> Answer:
    async with client(kind, body) as llm:
        asked: Sequence[Json] = ({"role": "user", "content": "hi"},)
        is_streamed = not body.startswith(b"{")
        request = ModelRequest(model=MODELS[kind], messages=tuple(asked), is_streamed=is_streamed)
        return read([delta async for delta in llm.stream(request)])


def called(answer: Answer) -> list[tuple[str, Json]]:
    return [(one.name, dict(one.arguments)) for one in answer.calls]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "calls",
    [
        [call("", "x", name="look_up"), call(WHOLE[:9]), call(WHOLE[9:]), call(WHOLE)],
        [call(WHOLE[:9], "x", name="look_up"), call(WHOLE[:14]), call(WHOLE)],
        [call(WHOLE[:9], "x", name="look_up"), call(WHOLE[9:]), call(WHOLE, "x", name="look_up")],
        [call("", "x", None, "look_up"), call(WHOLE[:9], index=None), call(WHOLE[9:], index=None)],
        [call("", "x", 1, "look_up"), call(WHOLE, index=1)],
    ],
)
async def test_a_call_is_one_call_however_its_pieces_are_sent(kind: str, calls: list[Json]) -> None:
    pieces = [chunk({"tool_calls": [one]}) for one in calls]
    answer = await ask(kind, stream(*pieces, chunk({}, "tool_calls")))
    assert called(answer) == CALLED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("indexes", [(0, 0), (0, 1), (None, None), (1, 2)])
async def test_parallel_calls_are_told_apart_whatever_their_indexes(
    kind: str, indexes: tuple[int | None, int | None]
) -> None:
    one = call(WHOLE, "x", indexes[0], "look_up")
    two = call('{"place": "Rome"}', "y", indexes[1], "look_up")
    expected = [*CALLED, ("look_up", {"place": "Rome"})]
    in_one = await ask(kind, stream(chunk({"tool_calls": [one, two]}), chunk({}, "tool_calls")))
    in_two = [chunk({"tool_calls": [each]}) for each in (one, two)]
    same_id = [one, two | {"id": "x"}]
    assert called(in_one) == expected
    assert called(await ask(kind, stream(*in_two, chunk({}, "tool_calls")))) == expected
    assert called(await ask(kind, whole({"tool_calls": [one, two]}, "tool_calls"))) == expected
    again = stream(*(chunk({"tool_calls": [each]}) for each in same_id), chunk({}, "tool_calls"))
    answer = await ask(kind, again)
    if indexes[0] != indexes[1]:
        assert called(answer) == expected
        assert len({each.call_id for each in answer.calls}) == 2
    else:
        # it could be one call whose arguments are sent twice, so nothing runs and the model is told
        assert "not valid JSON" in str(answer.calls[0].problem)


OTHER_FORMS: list[tuple[Json, str, str, bool]] = [
    ({"content": None, "refusal": "I cannot help with that."}, "I cannot help with that.", "", False),
    ({"content": "Hi", "reasoning": "Hm."}, "Hi", "Hm.", False),
    ({"content": "Hi", "reasoning_text": "Hm."}, "Hi", "Hm.", False),
    ({"function_call": {"name": "look_up", "arguments": WHOLE}, "tool_calls": []}, "", "", True),
    ({"tool_calls": call(WHOLE, "x", name="look_up")}, "", "", True),
    ({"tool_calls": [call(json.loads(WHOLE), "x", name="look_up")]}, "", "", True),
    ({"tool_calls": [call(WHOLE * 2, "x", name="look_up")]}, "", "", True),
    ({"tool_calls": [{"id": "x", "name": "look_up", "arguments": WHOLE}]}, "", "", True),
    ({"tool_calls": [{"id": "x", "function": {"name": "look_up", "parameters": json.loads(WHOLE)}}]}, "", "", True),
    ({"tool_calls": [{"id": "x", "function": {"name": "look_up", "input": json.loads(WHOLE)}}]}, "", "", True),
]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("message", "text", "thinking", "is_call"), OTHER_FORMS)
async def test_an_answer_may_have_another_form(
    message: Json, text: str, thinking: str, is_call: bool, *, is_streamed: bool
) -> None:
    answer = await ask("direct", stream(chunk(message), chunk({}, "stop")) if is_streamed else whole(message))
    assert (answer.text, answer.thinking, called(answer)) == (text, thinking, CALLED if is_call else [])


async def test_narration_and_parallel_calls_may_come_as_several_choices() -> None:
    said: list[Json] = [
        {"content": "I look."},
        *({"tool_calls": [call(WHOLE, call_id, name="look_up")]} for call_id in ("x", "y")),
    ]
    choices = [{"index": at, "message": one, "finish_reason": "tool_calls"} for at, one in enumerate(said)]
    answer = await ask("direct", json.dumps(HEAD | {"choices": choices}).encode())
    assert (answer.text, called(answer)) == ("I look.", CALLED * 2)


async def test_calls_of_an_alternative_answer_are_not_run() -> None:
    for first, second in (
        ({"content": "A"}, {"content": "B", "tool_calls": [call(WHOLE, "x", name="look_up")]}),
        ({"tool_calls": [call(WHOLE, "x", name="look_up")]},) * 2,
    ):
        choices = [{"index": at, "message": one} for at, one in enumerate((first, second))]
        answer = await ask("direct", json.dumps(HEAD | {"choices": choices}).encode())
        assert called(answer) == (CALLED if "tool_calls" in first else [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "USER_CANCEL"])
async def test_an_answer_that_the_service_gave_up_is_no_whole_answer(
    kind: str, reason: str, *, is_streamed: bool
) -> None:
    said = {"content": "The first half"}
    body = stream(chunk(said), chunk({}, reason)) if is_streamed else whole(said, reason)
    with pytest.raises(ModelUnavailable):
        await ask(kind, body)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("max_length", "length"),
        ("token_limit", "length"),
        ("model_context_window_exceeded", "length"),
        ("model_length", "length"),
        ("max_output_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("sensitive", "content_filter"),
        ("refusal", "content_filter"),
        ("RECITATION", "content_filter"),
        ("SPII", "content_filter"),
        ("content_filtered", "content_filter"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("eos_token", "stop"),
        ("COMPLETE", "stop"),
        ("something new", "stop"),
    ],
)
async def test_a_finish_reason_means_what_its_words_say(
    kind: str, reason: str, meaning: str, *, is_streamed: bool
) -> None:
    said = {"content": "Hi"}
    body = stream(chunk(said), chunk({}, reason)) if is_streamed else whole(said, reason)
    assert (await ask(kind, body)).finished.finish_reason == meaning


async def test_an_answer_that_was_ended_because_it_repeats_itself_is_rejected() -> None:
    with pytest.raises(AnswerRejected, match=ENDLESS):
        await ask("direct", whole({"content": "Again. Again."}, "repetition"))


HI = [chunk({"content": "Hi"}), chunk({}, "stop")]
INDENTED = "".join(f"data: {line}\n" for line in json.dumps(HI[0], indent=1).splitlines())


@pytest.mark.parametrize(
    "body",
    [
        stream(*HI, after="\r\r"),
        stream(*HI, after="\r\n\r\n"),
        stream(*HI, after="\n"),
        stream(*HI, before="data:"),
        stream(*HI, before=": ping\n\nevent: message\nid: 1\nretry: 5\ndata: "),
        stream(*HI, before="data:\n\ndata: "),
        INDENTED.encode() + b"\n" + stream(HI[1]),
        INDENTED.replace("\n", "\r\n").encode() + b"\r\n" + stream(HI[1], after="\r\n\r\n"),
        INDENTED.replace("\n", "\r").encode() + b"\r" + stream(HI[1], after="\r\r"),
        stream(*HI).removesuffix(b"data: [DONE]\n\n"),
        stream(*HI).removesuffix(b"\n\ndata: [DONE]\n\n"),
        stream(*HI, after="\r\r").removesuffix(b"\r"),
    ],
)
async def test_a_stream_is_read_however_its_lines_end_and_are_cut(body: bytes) -> None:
    for size in (len(body), 1, 7):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert "".join(one.text for one in await answered(*pieces) if isinstance(one, TextDelta)) == "Hi"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "line",
    ['error: {"code": 500, "message": "boom"}', "error: boom", 'event: error\ndata: {"message": "boom", "code": 500}'],
)
async def test_a_line_of_its_own_may_hold_the_error(kind: str, line: str) -> None:
    body = stream(HI[0]).removesuffix(b"data: [DONE]\n\n") + f"{line}\n\n".encode()
    with pytest.raises(ModelUnavailable):
        await ask(kind, body + b"data: [DONE]\n\n")
