"""Work on the largest input that a limit lets through keeps the event loop free for other runs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.types import CallToolResult

from bots.delivery import outbox
from bots.delivery.poster import DeliveryDeps
from core.context.todo_file import TodoTracker
from core.domain.errors import ModelUnavailable, ToolError
from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.domain.threads import Run
from core.knowledge.chunk import Chunk
from core.knowledge.doc_qa import answer_from_document
from core.knowledge.ports import KnowledgeEntry, KnowledgeStore, Scope
from core.mcp import resources
from core.mcp.results import convert_result
from core.mcp.tools import SCHEMA_KEY, select_usable_tools
from core.ports import Sandbox
from core.stores import Delivery
from core.tools.tool import ToolContext
from core.tools.workspace.file_changes import ReplaceParams, run_replace
from core.tools.workspace.text_encoding import EDIT_BYTES_MAX
from tests.fakes.cpu_seconds import seconds_of
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.support.mcp_servers import CONTEXT, stdio

LOOP_SECONDS_MAX = 0.1
"""Of three tries, the first of which also builds the input."""


async def opened(path: str = "", content: bytes = b"") -> Sandbox:
    sandboxes = MemorySandboxes()
    sandbox = await sandboxes.open("thread", fence=1)
    sandboxes.machines["thread"].content[path] = content
    return sandbox


async def context_with(path: str, content: bytes) -> ToolContext:
    sandbox = partial(opened, path, content)
    return ToolContext(thread_id="thread", run_id="run", sandbox=sandbox)


async def edit_a_file() -> None:
    context = await context_with("a", b"ab\n" * (EDIT_BYTES_MAX // 3 - 2) + b"q r")
    params = ReplaceParams(file_path="a", old_str="q  r", new_str="x")
    with pytest.raises(ToolError, match="differs from it in its spaces only"):
        await run_replace(params, context)


async def follow_a_checklist() -> None:
    call = ToolCall(name="create_file", arguments={"file_path": "todo.md"}, call_id="c")
    text = ("# " + "*a " * 196 + "\n") * 109
    await TodoTracker().track_call(call, partial(opened, "todo.md", text.encode()), print)


@cache
def large_result() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"a": list(range(1_000_000))})


async def read_a_result_of_mcp() -> None:
    said = await convert_result(large_result(), server="s", tool="t", context=CONTEXT)
    assert "characters are left out" in str(said.output)


@cache
def large_schema() -> JsonObject:
    return {"properties": {f"p{number}": {} for number in range(200_000)}}


async def take_a_tool_of_mcp() -> None:
    tool: Any = SimpleNamespace(name="a", description="", annotations=None, meta={SCHEMA_KEY: large_schema()})
    _, (left_out,) = await select_usable_tools(stdio(is_forked=False), [tool])
    assert "is longer than" in left_out


async def list_resources_of_mcp() -> None:
    item = SimpleNamespace(uri_template="a" * 500, mime_type="", title="b", name="", description="\u0301\u0327" * 600)
    page = SimpleNamespace(resources=[], resource_templates=[item] * 10_000, next_cursor=None)

    async def told(**_cursor: object) -> object:
        return page

    client: Any = SimpleNamespace(list_resources=told, list_resource_templates=told)
    assert "more are left out" in await resources._listing(client, "a")


@cache
def many_chunks() -> tuple[Chunk, ...]:
    return tuple(Chunk(number=number, page=None, place="", text="x" * 250, tokens=250) for number in range(48_000))


async def answer_from_a_long_document() -> None:
    entry = KnowledgeEntry(
        entry_id="e",
        scope=Scope("thread", "t"),
        name="a.txt",
        kind="txt",
        title="",
        content_hash="",
        size_bytes=12_000_000,
        tokens=12_000_000,
        chunk_count=len(many_chunks()),
        created_at=datetime.now(UTC),
    )

    async def held(*_arguments: object, **_options: object) -> object:
        return many_chunks()

    async def found(*_arguments: object, **_options: object) -> object:
        return ()

    async def ask(_question: str) -> str:
        raise ModelUnavailable("no model")

    store = cast(KnowledgeStore, SimpleNamespace(chunks=held, search=found))
    with suppress(ModelUnavailable):
        await answer_from_document(entry, "Why?", store=store, ask=ask, room_tokens=100_000)


async def deliver_an_answer() -> None:
    text = "a\n\n" * 120_000 + "|a|\n|---|\n" + "|a|\n" * 60_000
    answer = Delivery(delivery_id="d", run_id="r", slot="answer", ordinal=0, body={"text": text}, state="pending")

    async def planned(*_arguments: object) -> Any:
        return ()

    async def sent(*_arguments: object) -> None: ...

    poster: Any = SimpleNamespace(
        surface=SimpleNamespace(answer_limit=1_800),
        latest_record=lambda one: SimpleNamespace(state="pending" if one is answer else "delivered"),
        plan_delivery=planned,
        send_file=sent,
    )
    run, deps = cast(Run, SimpleNamespace(run_id="r")), cast(DeliveryDeps, None)
    await outbox._deliver_answer(answer, [], run, poster, deps)


WORK: tuple[Callable[[], Awaitable[None]], ...] = (
    edit_a_file,
    follow_a_checklist,
    read_a_result_of_mcp,
    take_a_tool_of_mcp,
    list_resources_of_mcp,
    answer_from_a_long_document,
    deliver_an_answer,
)


@pytest.mark.parametrize("work", WORK)
def test_large_input_leaves_the_event_loop_free(work: Callable[[], Any]) -> None:
    seconds = seconds_of(lambda: asyncio.run(work()), seconds_max=LOOP_SECONDS_MAX)
    assert seconds <= LOOP_SECONDS_MAX
