"""How a run ends: with one answer, in every attempt and however often it is answered, and at once when stopped."""

import asyncio
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.budget import Budget, Limit
from core.domain.call_consent import STAYS
from core.domain.events import ActivityChanged, RunFailed, RunFinished, TurnFinished, TurnStarted
from core.domain.threads import Reply, ToolCallRecord, Usage
from core.knowledge.ports import Scope
from core.llm.openai_client import OpenAIChatClient
from core.loop.loop import CALL_STOPPED
from core.loop.run_context import LoopPolicy
from core.ports import ModelDelta, ModelFinished, ModelRequest, ModelRetried, TextDelta, ToolCallDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED
from core.run.run_end import STOPPED_AT_THE_SAME_PLACE, WORKER_DEATHS_MAX
from core.tools.replies import no_reply
from core.tools.tool import Tool, ToolContext, ToolOutput, ToolSet
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, ended, invokes, text
from tests.integration.core.conftest import EchoParams, World
from tests.integration.core.test_consent import guarded
from tests.support.closing import close_after
from tests.support.narrow import require
from tests.support.waiting import until
from tests.support.web import serve_http

LONG = ("PART-ONE, ", "PART-TWO.")
SILENCE = [text("")] * 3
COMPLETE = calls(("complete", "{}"))
DRAWN = calls(("image_edit_or_generate", '{"text": "a cat"}'))


async def draw(_params: EchoParams, _context: ToolContext) -> ToolOutput:
    return ToolOutput(output={"file_path": "cat.png"})


async def order(_params: EchoParams, _context: ToolContext) -> ToolOutput:
    return ToolOutput(output="People are asked.", is_success=False, reply=Reply(kind="ask", text="Which size?"))


def with_tool(world: World, name: str, run: Any) -> None:
    tool = Tool(name=name, effect="acts", reach=STAYS, params=EchoParams, run=run, title=lambda _params: name)
    world.with_deps(toolbox=world.deps.defaults.toolbox.with_tools([tool]))


@pytest.mark.parametrize(
    ("before", "answer", "after", "turns_max", "left"),
    [
        ([text(LONG[0], finish="length")], LONG[1], [text("Second.")], 9, ["PART-ONE, PART-TWO.", "Second."]),
        ([], "First.", [text("Second.")], 9, ["First.", "Second."]),
        ([], "First.", [calls(("complete", '{"text": "Second."}'))], 9, ["First.", "Second."]),
        ([], "First.", [COMPLETE], 9, ["First."]),
        ([], "First.", SILENCE, 9, ["First."]),
        ([text(LONG[0], finish="length")], LONG[1], [], 2, ["PART-ONE, PART-TWO."]),
        ([DRAWN], "Your cat.", [text("Welcome.")], 9, ["Your cat.", "cat.png", "Welcome."]),
    ],
)
async def test_a_message_that_comes_while_the_answer_is_written_does_not_repeat_it(
    world: World, before: list[Any], answer: str, after: list[Any], turns_max: int, left: list[str]
) -> None:
    with_tool(world, "image_edit_or_generate", draw)
    world.with_deps(policy=LoopPolicy(turns_max=turns_max))
    is_read = asyncio.Event()
    world.model.turns = [*before, [TextDelta(text=answer), is_read, ended()], *after]
    run_id, running = await world.begin("go")
    await until(lambda: len(world.model.requests) == len(before) + 1)
    await world.say("thanks!", message_ref="2")
    is_read.set()
    await running
    assert [body.get("text") or body.get("path") for _, body in await world.left(run_id)] == left
    assert (await world.read_run(run_id)).status == "completed"


@pytest.mark.parametrize(("is_addressed", "left"), [(False, ["First."]), (True, ["First.", "Second."])])
async def test_only_who_addresses_the_agent_while_it_answers_gets_another_answer(
    world: World, is_addressed: bool, left: list[str]
) -> None:
    world.with_deps(toolbox=world.deps.defaults.toolbox.with_tools([no_reply]))
    is_read = asyncio.Event()
    world.model.turns = [[TextDelta(text="First."), is_read, ended()], calls(("no_reply", "{}")), text("Second.")]
    run_id, running = await world.begin("go")
    await until(lambda: world.model.requests)
    await world.say("ok, thanks", message_ref="2", is_addressed=is_addressed)
    is_read.set()
    await running
    assert [body["text"] for _, body in await world.left(run_id)] == left


async def test_a_question_beside_a_call_that_needs_approval_is_asked_after_it(world: World) -> None:
    guarded(world)
    with_tool(world, "order", order)
    world.model.turns = [calls(("order", '{"text": "soup"}'), ("echo", '{"text": "a"}'))]
    run_id = await world.run("order soup and say a")
    assert (await world.read_run(run_id)).status == "waiting"
    assert await world.run("approve once") == run_id
    assert world.bench.said == ["a"]
    assert require((await world.read_end(run_id)).reply).text == "Which size?"


async def test_a_stop_ends_the_calls_that_people_have_approved(world: World) -> None:
    tools = world.deps.defaults.toolbox
    mail = replace(tools.tools["wait"], name="mail", needs_approval=lambda _params: "Send a mail")
    world.with_deps(toolbox=tools.with_tools([mail]))
    world.model.turns = [calls(*(("mail", f'{{"text": "mail {n}"}}') for n in range(3))), text("Sent.")]
    run_id = await world.run("send three mails")
    assert await world.say("approve all") == run_id
    running = asyncio.ensure_future(execute(run_id, world.deps))
    await world.bench.until_started("mail 0")
    await world.stop(run_id)
    await running
    assert (await world.read_run(run_id)).status == "stopped"
    assert not world.bench.has_started("mail 1").is_set()
    errors = [result["error"] for result in await world.tool_results(run_id)]
    assert errors == [INTERRUPTED, CALL_STOPPED, CALL_STOPPED]


async def know_much(world: World, run_id: str) -> None:
    """Adds a document that is too long for the prompt, so that the model is asked for keywords."""

    async def pieces() -> AsyncIterator[bytes]:
        yield "\n\n".join(f"Rabbits eat the carrots in garden number {n}." for n in range(1200)).encode()

    thread_id = (await world.read_run(run_id)).thread_id
    await world.deps.stores.knowledge_base.add(Scope("thread", thread_id), "garden.md", pieces())


async def test_a_budget_that_is_used_up_before_documents_are_searched_is_no_failure(world: World) -> None:
    world.model.turns = [text("first")]
    await know_much(world, await world.run("hello"))
    world.with_deps(budget=Budget(person=Limit(tokens=1)))
    run_id = await world.say("zzz?")
    assert (await execute(run_id, world.deps)).follower_id == ""
    assert (await world.read_end(run_id)).finish_reason == "budget"


async def test_a_stop_ends_the_search_of_documents(world: World) -> None:
    is_asked = asyncio.Event()

    async def hang(_request: ModelRequest) -> AsyncIterator[ModelDelta]:
        is_asked.set()
        yield ModelRetried(text="The model does not answer: attempt 2")
        await asyncio.Event().wait()

    run_id = await world.say("zzz?")
    await know_much(world, run_id)
    world.with_deps(ask_model=hang)
    running = asyncio.ensure_future(execute(run_id, world.deps))
    await is_asked.wait()
    await world.stop(run_id)
    await running
    assert (await world.read_run(run_id)).status == "stopped"
    shown = [event.text for event in await world.events(run_id) if isinstance(event, ActivityChanged)]
    assert shown == ["Looking into the documents"]


class Flood:
    """An endpoint whose model writes a call that never ends, in pieces or in one line, and then answers in words."""

    def __init__(self, *, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.sent_bytes = 0
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.text())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if len(self.requests) > 1:
            done = {"choices": [{"delta": {"content": "Smaller."}, "finish_reason": "stop"}]}
            await response.write(f"data: {json.dumps(done)}\n\ndata: [DONE]\n\n".encode())
            return response
        named = {"index": 0, "id": "c", "function": {"name": "echo", "arguments": '{"text": "'}}
        await response.write(_event(named))
        piece = _event({"index": 0, "function": {"arguments": "x" * self.line_bytes}})
        with suppress(ConnectionError):
            while self.sent_bytes < 100_000_000:
                await response.write(piece)
                self.sent_bytes += len(piece)
        return response


def _event(call: object) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n".encode()


@asynccontextmanager
async def endpoint(flood: Flood) -> AsyncIterator[OpenAIChatClient]:
    async with serve_http(flood.answer) as url, close_after(OpenAIChatClient(f"{url}/v1")) as llm:
        yield llm


CUT = ModelFinished(finish_reason="length", usage=Usage(input_tokens=9, output_tokens=4096))


async def answer(world: World) -> str:
    return (await world.read_reply(await world.run("go"))).text


@pytest.mark.parametrize("name", ["native", "xml", "react"])
async def test_a_call_that_was_cut_off_is_told_how_to_go_on(world: World, name: str) -> None:
    half = '{"text": "half of a long fi'
    written = {
        "native": ToolCallDelta(index=0, call_id="c", name="echo", arguments=half),
        "xml": TextDelta(text='<function_calls>\n<invoke name="echo">\n<parameter name="text">half of a long fi'),
        "react": TextDelta(text=f"Thought: I write.\nAction: echo\nAction Input: {half}"),
    }
    final = "Final Answer: done" if name == "react" else "done"
    if name != "native":
        world.with_deps(dialect=XmlDialect() if name == "xml" else ReactDialect())
    world.model.turns = [[written[name], CUT], text(final)]
    assert await answer(world) == "done"
    assert world.bench.said == []
    assert len(world.model.requests) == 2
    told = str(world.model.requests[1].messages[-1]["content"])
    assert "cut off inside this call, because it reached its limit of 4,096 tokens" in told
    assert "in several calls" in told


HALF = '{"name": "echo", "arguments": {"text": "half of a long fi'


async def test_half_a_written_call_stays_short_in_the_conversation(world: World) -> None:
    for dialect in (NativeDialect(), XmlDialect()):
        world.with_deps(dialect=dialect)
        long = TextDelta(text=f"I write.\n<tool_call>{HALF}" + "le " * 9000)
        world.model.turns = [[long, CUT], text("done")]
        assert await answer(world) == "done"
        assert len(str(world.model.requests[-1].messages[-2:])) < 6000


async def test_of_three_hundred_calls_32_run_and_the_others_say_what_to_do(world: World) -> None:
    world.model.turns = [calls(*[("echo", f'{{"text": "{number}"}}') for number in range(300)]), text("done")]
    run_id = await world.run("go")
    assert world.bench.said == [str(number) for number in range(32)]
    results = await world.tool_results(run_id)
    assert len(results) == 300
    assert "Not run: this is call 33 of your answer" in results[32]["error"]
    assert "do the work of many calls in one script" in results[299]["error"]


@pytest.mark.parametrize("line_bytes", [64_000, 30_000_000])
async def test_an_endless_call_is_not_read_on_and_the_model_is_told(world: World, line_bytes: int) -> None:
    flood = Flood(line_bytes=line_bytes)
    tracemalloc.start()
    async with endpoint(flood) as llm:
        world.with_deps(ask_model=llm.stream)
        assert await answer(world) == "Smaller."
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert flood.sent_bytes < 16_000_000 + line_bytes
    assert peak < 150_000_000
    assert "cut off inside this call" in flood.requests[1]
    assert len(flood.requests[1]) < 20_000


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
async def test_a_call_that_was_under_way_is_reported_and_not_repeated(world: World, dialect: Dialect) -> None:
    world.with_deps(dialect=dialect)
    first = calls(("wait", '{"text": "x"}'), said="Working.")
    if dialect.name == "xml":
        first = text(invokes(("wait", {"text": "x"}), said="Working."))
    world.model.turns = [first, text("done")]
    run_id = await world.say("go")
    await world.lose_worker(run_id, lambda: world.bench.until_started("x"))
    await execute(run_id, world.deps)
    assert world.bench.said == ["x"]
    sent = world.model.requests[-1].messages
    assert INTERRUPTED.split(":")[0] in str(sent[-1]["content"])
    run = await world.read_run(run_id)
    assert (run.status, run.attempt) == ("completed", 2)
    turns = [event.kind for event in await world.events(run_id) if isinstance(event, TurnStarted | TurnFinished)]
    assert turns == ["turn_started", "turn_finished"] * (len(turns) // 2)


DEADLY = "x"


class Fatal(SqlRunJournal):
    """A journal that kills whoever asks for the calls of a run."""

    async def tool_call_records(self, run_id: str) -> tuple[ToolCallRecord, ...]:
        raise asyncio.CancelledError


def deadly(dialect: Dialect) -> list[ModelDelta | Exception | asyncio.Event]:
    if dialect.name == "xml":
        return text(invokes(("wait", {"text": DEADLY}), said="Working."))
    return calls(("wait", json.dumps({"text": DEADLY})), said="Working.")


async def died(world: World, times: int) -> str:
    """A run that so many workers have died over, each in the same call."""
    dialect = world.deps.defaults.dialect
    world.model.turns = [deadly(dialect) for _ in range(times)]
    run_id = await world.say("go")
    for number in range(times):
        world.bench.has_started(DEADLY).clear()
        await world.lose_worker(run_id, lambda: world.bench.until_started(DEADLY), name=f"w{number}")
    return run_id


def ends(events: Sequence[object]) -> list[object]:
    return [one for one in events if isinstance(one, RunFailed | RunFinished)]


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
async def test_a_run_is_given_up_once_too_many_workers_have_died_over_it(
    world: World, dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    world.with_deps(dialect=dialect)
    run_id = await died(world, WORKER_DEATHS_MAX + 1)
    assert (await world.read_run(run_id)).status == "running"
    assert world.bench.said == [DEADLY] * (WORKER_DEATHS_MAX + 1)
    with caplog.at_level(logging.WARNING):
        await execute(run_id, world.deps)
    run = await world.read_run(run_id)
    assert (run.status, run.error) == ("failed", STOPPED_AT_THE_SAME_PLACE)
    assert world.bench.said == [DEADLY] * (WORKER_DEATHS_MAX + 1), "the call was not tried again"
    assert ends(await world.events(run_id)) == [RunFailed(public_message=STOPPED_AT_THE_SAME_PLACE)]
    assert await world.deps.stores.claims.claimable_runs() == ()
    assert f"{WORKER_DEATHS_MAX + 1} workers in a row died over it; this was attempt 7" in caplog.text


async def test_a_call_that_may_run_twice_is_not_run_by_whoever_gives_up(world: World) -> None:
    tools = dict(world.bench.toolbox().tools)
    tools["wait"] = replace(tools["wait"], is_idempotent=True)
    world.with_deps(toolbox=ToolSet(tools))
    run_id = await died(world, WORKER_DEATHS_MAX + 1)
    await execute(run_id, world.deps)
    assert world.bench.said == [DEADLY] * (WORKER_DEATHS_MAX + 1)
    assert (await world.read_run(run_id)).status == "failed"


async def test_where_giving_up_kills_too_the_next_worker_does_nothing_else(world: World) -> None:
    run_id = await died(world, WORKER_DEATHS_MAX + 1)
    await world.lose_worker(run_id, journal=Fatal(world.database))
    assert (await world.read_run(run_id)).status == "running"
    world.with_deps(journal=Fatal(world.database))
    await execute(run_id, world.deps)
    assert (await world.read_run(run_id)).status == "failed"
    assert len(ends(await world.events(run_id))) == 1
