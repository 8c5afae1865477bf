"""Calls that people must allow: the run waits without its lease, and goes on with their answer, also after a crash."""

import asyncio
import json
from dataclasses import replace

import pytest
from sqlalchemy import update

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.approval import APPROVE_ALWAYS, APPROVE_ONCE, CHANGED, CHOICES, DENY, ONE_BY_ONE, TOO_LONG, Approval
from core.domain.events import ApprovalAsked, ToolStarted, TurnFinished, TurnStarted
from core.domain.threads import Ask, Lease
from core.failpoints import Failpoint
from core.run.execute import execute
from core.stores import JournalEntry
from core.tools.tool import ToolSet
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.tables.threads_and_runs import tool_calls
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import World
from tests.support.narrow import require


def guarded(world: World) -> World:
    """`echo` needs an approval, `wait` and the rest do not."""
    tools = dict(world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text} aloud")
    return world.with_deps(toolbox=ToolSet(tools))


async def suspended(world: World) -> str:
    guarded(world).model.turns = [calls(("echo", '{"text": "a"}')), text("done")]
    return await world.run("go")


async def test_an_approval_goes_on_with_the_same_run(world: World) -> None:
    run_id = await suspended(world)
    assert await world.run("approve once") == run_id
    assert world.bench.said == ["a"]
    assert [one["success"] for one in await world.tool_results(run_id)] == [True]
    await world.read_end(run_id)
    roles = [message["role"] for message in world.model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"]


async def two_waiting(world: World) -> str:
    turn = calls(("echo", '{"text": "a"}'), ("echo", '{"text": "b"}'))
    guarded(world).model.turns = [turn, text("done")]
    return await world.run("go")


async def asked(world: World, run_id: str) -> Ask:
    return require(await world.deps.stores.journal.find_approval(run_id))


@pytest.mark.parametrize("said", [ONE_BY_ONE, APPROVE_ONCE])
async def test_people_can_refuse_one_of_two_calls(world: World, said: str) -> None:
    """Also where the answer fits only one call: nothing runs that nobody meant."""
    run_id = await two_waiting(world)
    assert await world.run(said) == run_id
    first = await asked(world, run_id)
    assert (first.state, first.options) == ("open", CHOICES)
    assert "`a`" in first.text
    assert "`b`" not in first.text
    assert world.bench.said == []
    await world.run(DENY)
    second = await asked(world, run_id)
    assert "`b`" in second.text
    await world.run(APPROVE_ONCE)
    assert world.bench.said == ["b"]
    assert [one["success"] for one in await world.tool_results(run_id)] == [False, True]


async def test_always_for_the_first_call_answers_the_same_call_after_it(world: World) -> None:
    same = calls(("echo", '{"text": "a"}'), ("echo", '{"text": "a"}'))
    guarded(world).model.turns = [same, text("done")]
    run_id = await world.run("go")
    await world.run(ONE_BY_ONE)
    await world.run(APPROVE_ALWAYS)
    assert world.bench.said == ["a", "a"]
    assert (await world.read_run(run_id)).status == "completed"


async def test_a_call_that_is_changed_after_the_approval_does_not_run(world: World) -> None:
    run_id = await suspended(world)
    (record,) = await world.deps.stores.journal.tool_call_records(run_id)
    changed = update(tool_calls).where(tool_calls.c.run_id == run_id)
    await world.database.write(Failpoint("test"), lambda c: c.execute(changed.values(arguments={"text": "rm -rf /"})))
    assert record.arguments == {"text": "a"}
    await world.run(APPROVE_ONCE)
    assert world.bench.said == []
    (result,) = await world.tool_results(run_id)
    assert result["error"] == CHANGED


async def test_a_call_too_long_to_check_is_not_asked_about(world: World) -> None:
    long = json.dumps({"text": "x" * 60_000})
    guarded(world).model.turns = [calls(("echo", long)), text("done")]
    run_id = await world.run("go")
    (result,) = await world.tool_results(run_id)
    assert result["error"] == TOO_LONG
    assert await world.deps.stores.journal.find_approval(run_id) is None


async def test_an_ask_behind_a_waiting_call_does_not_end_the_run(world: World) -> None:
    guarded(world).model.turns = [calls(("echo", '{"text": "a"}'), ("ask", '{"text": "Which?"}')), text("done")]
    run_id = await world.run("go")
    await world.run(APPROVE_ONCE)
    errors = [str(one["error"]) for one in await world.tool_results(run_id)]
    assert any("waits for an approval" in error for error in errors)
    assert world.bench.said == ["a"]


class Dying(SqlRunJournal):
    """A journal whose program is killed right before, or right after, the run is suspended."""

    is_stored = False

    async def suspend_run(self, lease: Lease, entry: JournalEntry, approval: Approval) -> None:
        if self.is_stored:
            await self.write(lease, entry)
        raise asyncio.CancelledError


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_the_people_are_asked_after_all(world: World, dialect: Dialect, is_stored: bool) -> None:
    """If the program died before the call was recorded, the model makes the call again."""
    guarded(world).with_deps(dialect=dialect)
    first = calls(("echo", '{"text": "a"}'))
    if dialect.name == "xml":
        first = text(invokes(("echo", {"text": "a"})))
    world.model.turns = [first]
    journal = Dying(world.database)
    journal.is_stored = is_stored
    run_id = await world.say("go")
    await world.lose_worker(run_id, journal=journal)
    assert await world.deps.stores.journal.find_approval(run_id) is None
    is_known = bool(await world.deps.stores.journal.tool_call_records(run_id))
    assert is_known or not is_stored
    world.model.turns = [text("done")] if is_known else [first, text("done")]
    await execute(run_id, world.deps)
    open_ask = await asked(world, run_id)
    assert open_ask.state == "open"
    assert "Say a aloud" in open_ask.text
    assert world.bench.said == []
    events = await world.events(run_id)
    assert isinstance(events[-1], ApprovalAsked)
    assert await world.run(APPROVE_ONCE) == run_id
    assert world.bench.said == ["a"]
    (result,) = await world.tool_results(run_id)
    assert result["output"] == "echo a"
    assert (await world.read_run(run_id)).status == "completed"
    assert world.model.turns == []
    events = await world.events(run_id)
    turns = [event.kind for event in events if isinstance(event, TurnStarted | TurnFinished)]
    assert turns == ["turn_started", "turn_finished"] * (len(turns) // 2)
    titles = [event.title for event in events if isinstance(event, ToolStarted)]
    assert titles[-1] == "echo a"
    assert titles[:-1] == ["echo a (needs approval)"] or not is_known
