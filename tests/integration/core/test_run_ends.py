"""How a run ends: with one answer, in every attempt and however often it is answered, and at once when stopped."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from core.domain.budget import Budget, Limit
from core.domain.call_consent import STAYS
from core.domain.events import ActivityChanged
from core.domain.threads import Reply
from core.knowledge.ports import Scope
from core.loop.loop import CALL_STOPPED
from core.loop.run_context import LoopPolicy
from core.ports import ModelDelta, ModelRequest, ModelRetried, TextDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED
from core.tools.replies import no_reply
from core.tools.tool import Tool, ToolContext, ToolOutput
from tests.fakes.streamed_model import calls, ended, text
from tests.integration.core.conftest import EchoParams, World
from tests.integration.core.conftest import world as world
from tests.integration.core.test_approval import guarded
from tests.support.narrow import require
from tests.support.waiting import until

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
