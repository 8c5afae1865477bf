"""What servers return, offer and ask besides text, in single calls and in runs."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.events import ActivityChanged, AgentEvent, ToolFinished
from core.domain.messages import Message, ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.mcp.results import TEXT_CHARACTERS_MAX, convert_result, decode_base64
from core.tools.tool import ThreadMessages, ToolContext, prepare_call
from tests.fakes.made_pictures import noise
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.streamed_model import Played, calls, invokes, text
from tests.integration.core.conftest import World
from tests.support.conversations import message
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
    return message("tool", {"role": "tool", "content": str(outcome.result)}, thread_id="thread", run_id=run_id)


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


async def test_resources_are_listed_searched_and_read(modern: Guest) -> None:
    listed = await modern.output("list_resources")
    assert "notes://today (text/plain): today: What is to do today." in listed
    assert "notes://day/{day} (text/plain): day_notes: The notes of one day." in listed
    found = await modern.output("list_resources", search="PLAN")
    assert found.splitlines() == ["shop://plan (application/pdf): plan"]
    assert await modern.output("list_resources", search="nowhere") == "No resource matches."
    read = await modern.output("read_resource", uri="notes://day/Monday")
    assert read == "[resource notes://day/Monday, text/plain]\nNothing on Monday."
    assert "nowhere://" in await modern.error("read_resource", uri="nowhere://")


async def test_a_prompt_is_offered_with_its_arguments_and_filled_in(modern: Guest) -> None:
    said = modern.toolbox.specs["mcp_fake_get_prompt"].description
    assert "review(text, tone?): Asks for a review." in said
    got = await modern.output("get_prompt", name="review", arguments={"text": "ok"})
    assert got == "[user]\nReview this in a kind tone: ok"
    missing = await modern.error("get_prompt", name="review", arguments={"tone": "dry"})
    assert missing == "The prompt needs more arguments: review(text, tone?): Asks for a review."
    assert "answered with an error" in await modern.error("get_prompt", name="none", arguments={})
    assert "name" in await modern.error("get_prompt", arguments={"text": "ok"})


async def test_reading_needs_no_approval_unless_the_settings_say_so(guest_of: MakeGuest) -> None:
    names = ("list_resources", "read_resource", "get_prompt")
    guest = await guest_of(stdio(program="mcp_modern.py")).ready()
    assert not any(guest.servers.needs_approval(f"mcp_fake_{name}") for name in names)
    guest = guest_of(stdio(program="mcp_modern.py", needs_approval=["read_*"], enabled_tools=["*_resource"]))
    assert await guest.look() == ["mcp_fake_read_resource"]
    assert guest.servers.needs_approval("mcp_fake_read_resource")


def native() -> list[Played]:
    echo = ("mcp_fake_echo", '{"text": "007", "times": 2}')
    others = (("mcp_fake_mixed", "{}"), ("mcp_fake_sums", '{"numbers": "none"}'))
    return [calls(echo, *others), calls(("mcp_fake_die", "{}")), text("done")]


def xml() -> list[Played]:
    echo = ("mcp_fake_echo", {"text": "007", "times": "2"})
    others: tuple[tuple[str, dict[str, str]], ...] = (("mcp_fake_mixed", {}), ("mcp_fake_sums", {"numbers": "none"}))
    die: tuple[str, dict[str, str]] = ("mcp_fake_die", {})
    return [text(invokes(echo, *others)), text(invokes(die)), text("done")]


@pytest.mark.parametrize(("dialect", "turns"), [(NativeDialect(), native), (XmlDialect(), xml)], ids=["native", "xml"])
async def test_a_run_uses_them_in_each_dialect(
    world: World, guest_of: MakeGuest, dialect: Dialect, turns: Callable[[], list[Played]]
) -> None:
    guest = await guest_of(stdio(needs_approval=())).ready()
    world.model.turns = list(turns())
    run_id = await world.with_deps(toolbox=guest.toolbox, dialect=dialect).run("go")

    sent = str(world.model.requests[0])
    assert "[Tool of the MCP server fake, described by it:] Says it again." in sent
    finished = [event for event in await world.events(run_id) if isinstance(event, ToolFinished)]
    assert [event.outcome for event in finished] == ["completed", "completed", "error", "failed"]
    told = [str(one.content) for one in await world.messages(run_id) if one.type == "tool"]
    assert "007007" in told[0]
    assert "numbers: should be array" in told[2]
    assert "It may or may not have done what was asked" in told[3]
    assert (await world.read_end(run_id)).status == "completed"


async def test_a_picture_is_stored_before_the_message_of_its_tool(world: World, guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio(needs_approval=())).ready()
    world.model.turns = [calls(("mcp_fake_mixed", "{}")), text("done")]
    run_id = await world.with_deps(toolbox=guest.toolbox).run("go")
    kinds = [one.type for one in await world.messages(run_id) if one.type != "status"]
    assert kinds == ["user", "assistant", "image_context", "tool", "assistant"]
