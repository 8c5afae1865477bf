"""What servers return and ask beyond text: files, long results, progress, and questions for people."""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue

from core.domain.events import ActivityChanged, AgentEvent
from core.domain.messages import Message, ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.mcp.results import TEXT_CHARACTERS_MAX, convert_result, decode_base64
from core.tools.tool import ThreadMessages, ToolContext, prepare_call
from tests.fakes.made_pictures import noise
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.support.mcp_servers import CONTEXT, Guest, MakeGuest, context_in, http_fake, stdio


async def call(guest: Guest, tool: str, context: ToolContext, **arguments: JsonValue) -> CallOutcome:
    name = f"mcp_fake_{tool}"
    prepared = prepare_call(name, arguments, guest.toolbox)
    return await execute_call(ToolCall(call_id="c1", name=name, arguments=arguments), prepared, context)


async def test_files_are_saved_to_the_workspace_and_named(modern: Guest) -> None:
    sandboxes = MemorySandboxes()
    outcome = await call(modern, "files", context_in(sandboxes))
    sound, report, structure = str(outcome.result["output"]).splitlines()
    assert sound.startswith("[sound, audio/wav, 3000 bytes: saved as .results/")
    assert report.startswith("[resource file:///a/report.zip, application/zip, 3 bytes: saved as ")
    assert report.endswith("-report.zip]")
    assert structure == '{"parts": [{"data": "[3000 bytes of base64 are left out]"}]}'
    assert sorted(sandboxes.machines["thread"].content.values()) == [b"123", b"123" * 1_000]


PICTURE = noise((9, 9))


@pytest.mark.parametrize(
    "encoded",
    [
        base64.b64encode(PICTURE).decode(),
        base64.encodebytes(PICTURE).decode(),
        f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}",
        base64.urlsafe_b64encode(PICTURE).decode(),
        base64.b64encode(PICTURE).decode().rstrip("="),
    ],
)
async def test_an_image_is_decoded_in_every_spelling_of_base64(encoded: str) -> None:
    assert decode_base64(encoded) == PICTURE


async def test_progress_is_shown_and_extends_the_limit(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(program="mcp_modern.py", call_timeout_seconds=0.5)).ready()
    shown: list[AgentEvent] = []
    outcome = await call(guest, "work", replace(CONTEXT, emit=shown.append), steps=5)
    assert outcome.result["output"] == "worked"
    assert shown[:2] == [ActivityChanged(text="fake: step 0"), ActivityChanged(text="fake: step 1")]
    said = str((await call(guest, "work", CONTEXT, steps=60)).result["error"])
    assert "it did not answer within 0.5 s" in said


async def test_a_server_must_not_use_the_model(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(program="mcp_modern.py", protocol="legacy")).ready()
    assert await guest.output("think") == "-32601 sampling/createMessage is not supported"


def in_thread(run_id: str, told: Sequence[Message]) -> ToolContext:
    async def find(_message_id: str) -> Message | None:
        return None

    async def read_all() -> Sequence[Message]:
        return told

    messages = ThreadMessages(find=find, read_all=read_all)
    return replace(CONTEXT, run_id=run_id, messages=messages)


def tool_message(outcome: CallOutcome, run_id: str) -> Message:
    return Message(
        type="tool",
        content={"role": "tool", "content": str(outcome.result)},
        is_llm_message=True,
        thread_id="thread",
        run_id=run_id,
    )


@pytest.mark.parametrize(
    ("tool", "returned"), [("order", '{"action":"cancel"}'), ("book", "the error People have not answered.")]
)
async def test_a_question_of_a_server_is_asked_in_the_thread_and_answered_in_the_next_run(
    guest_of: MakeGuest, tool: str, returned: str
) -> None:
    guest = await guest_of(stdio(program="mcp_modern.py", protocol="legacy")).ready()
    first = await call(guest, tool, in_thread("run 1", ()), dish="soup")
    assert first.outcome == "failed"
    assert first.reply is not None
    assert first.reply.kind == "ask"
    assert f"The tool {tool} of the MCP server fake asks:\n\n> Which size of soup?" in first.reply.text
    assert '> - size: type "string"' in first.reply.text
    assert f"Without an answer it returned:\n{returned}" in str(first.result["output"])

    told = (tool_message(first, "run 1"),)
    answers: dict[str, JsonValue] = {"dish": "soup", "elicitation_answers": {"size": "L"}}
    second = await call(guest, tool, in_thread("run 2", told), **answers)
    assert '"data":{"size":"L","number":1}' in str(second.result["output"])


async def test_a_model_cannot_answer_for_people(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(program="mcp_modern.py", protocol="legacy")).ready()
    answers: dict[str, JsonValue] = {"dish": "soup", "elicitation_answers": {"size": "L"}}
    unasked = await call(guest, "order", in_thread("run 1", ()), **answers)
    same_run = in_thread("run 1", (tool_message(unasked, "run 1"),))
    for outcome in (unasked, await call(guest, "order", same_run, **answers)):
        assert outcome.reply is not None
        assert outcome.reply.kind == "ask"
    other = {"dish": "cake", "elicitation_answers": {"size": "L"}}
    later = in_thread("run 2", (tool_message(unasked, "run 1"),))
    assert (await call(guest, "order", later, **other)).reply is not None


async def test_what_a_server_asks_shows_none_of_its_secrets(guest_of: MakeGuest) -> None:
    guest = await guest_of(
        stdio(program="mcp_modern.py", protocol="legacy", secrets=frozenset({"sk-12345678"}))
    ).ready()
    outcome = await call(guest, "order", in_thread("run 1", ()), dish="sk-12345678")
    assert outcome.reply is not None
    assert "sk-12345678" not in f"{outcome.result} {outcome.reply}"


async def test_answers_that_do_not_fit_are_asked_for_again(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(program="mcp_modern.py", protocol="legacy")).ready()
    first = await call(guest, "order", in_thread("run 1", ()), dish="soup")
    wrong: dict[str, JsonValue] = {"dish": "soup", "elicitation_answers": {"size": 3}}
    later = in_thread("run 2", (tool_message(first, "run 1"),))
    second = await call(guest, "order", later, **wrong)
    assert "The answers do not fit: size: should be string" in str(second.result["output"])


@pytest.mark.parametrize(
    ("transport", "protocol", "is_certain"),
    [
        ("stdio", "auto", True),
        ("stdio", "legacy", False),
        ("http", "auto", True),
        ("http", "legacy", True),
        ("sse", "legacy", False),
    ],
)
async def test_a_question_is_asked_in_no_other_thread(
    guest_of: MakeGuest, tmp_path: Path, transport: str, protocol: str, is_certain: bool
) -> None:
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            config = stdio(protocol=protocol)
        else:
            config = (await stack.enter_async_context(http_fake(transport))).config(protocol=protocol)
        guest = await guest_of(config).ready()
        for attempt in range(2):
            shown, done = asyncio.Queue[AgentEvent](), tmp_path / f"done {attempt}"
            bob_context = replace(CONTEXT, thread_id="bob", emit=shown.put_nowait)
            bob = asyncio.ensure_future(call(guest, "wait", bob_context, until=str(done)))
            await shown.get()
            alice = asyncio.ensure_future(call(guest, "reserve", CONTEXT, dish="the secret takeover"))
            is_asked = is_certain or attempt == 1  # calls run one at a time once a question could not be told apart
            if is_certain or attempt == 0:
                await asyncio.wait([alice])
            done.touch()
            of_alice, of_bob = await alice, await bob
            assert of_bob.outcome == "completed"
            assert of_bob.reply is None
            assert "secret" not in str(of_bob.result)
            assert (of_alice.reply is not None) == is_asked
            assert ["Nobody has seen it" in str(one.result) for one in (of_alice, of_bob)] == [not is_asked] * 2


async def test_parts_after_the_limit_of_characters_are_counted() -> None:
    texts = ["x" * TEXT_CHARACTERS_MAX, "second", "third"]
    parts = [TextContent(type="text", text=text) for text in texts]
    said = await convert_result(CallToolResult(content=[*parts]), server="s", tool="t", context=CONTEXT)
    assert str(said.output).splitlines()[1:] == ["[2 more parts are left out: the result is too long]"]
