"""Calls that people must allow: the run waits without its lease and goes on as the same run with their answer."""

import json
from dataclasses import replace

from core.domain.approval import (
    APPROVE_ALWAYS,
    APPROVE_ONCE,
    DENY,
    Approval,
    describe_call,
    parse_choice,
)
from core.domain.events import AgentEvent, ApprovalAsked, RunFinished
from core.domain.threads import Lease
from core.run.execute import execute
from core.stores import JournalEntry
from core.tools.tool import ToolSet
from storage.sql.database import Database
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.played_model import calls, text
from tests.integration.core.conftest import World


def guarded(world: World) -> World:
    """`echo` needs an approval, `wait` and the rest do not."""
    tools = dict(world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text} aloud")
    return world.with_engine(toolbox=ToolSet(tools))


async def suspended(world: World) -> str:
    guarded(world).model.turns = [calls(("echo", '{"text": "a"}')), text("done")]
    return await world.run("go")


async def results(world: World, run_id: str) -> list[dict[str, object]]:
    return [
        json.loads(str(one.content["content"]))["tool_execution"]["result"]
        for one in await world.history(run_id)
        if one.type == "tool"
    ]


async def test_the_run_waits_and_says_what_for(world: World) -> None:
    run_id = await suspended(world)
    assert world.bench.said == []
    run = await world.engine.conversations.run(run_id)
    assert run is not None
    assert run.status == "waiting"
    snapshot = await world.engine.conversations.snapshot(run.thread_id)
    assert snapshot is not None
    assert snapshot.open_ask is not None
    assert "Say a aloud" in snapshot.open_ask.text
    assert snapshot.open_ask.options == (APPROVE_ONCE, APPROVE_ALWAYS, DENY)
    events = await world.events(run_id)
    assert isinstance(events[-1], ApprovalAsked)
    assert run_id not in await world.engine.claims.claimable_runs()


class Noting(SqlRunJournal):
    """A journal that notes which events were stored without a question."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.events: list[AgentEvent] = []

    async def write(self, lease: Lease, entry: JournalEntry) -> None:
        self.events += [one.event for one in entry.events]
        await super().write(lease, entry)


async def test_nobody_hears_that_it_waits_before_the_question_is_stored(world: World) -> None:
    """Else it is looked for in vain, and never shown."""
    journal = Noting(world.database)
    guarded(world).with_engine(journal=journal)
    world.model.turns = [calls(("echo", '{"text": "a"}'), said="I say it aloud."), text("done")]
    run_id = await world.run("go")
    assert isinstance((await world.events(run_id))[-1], ApprovalAsked)
    assert journal.events
    assert not [one for one in journal.events if isinstance(one, ApprovalAsked)]


async def test_an_approval_goes_on_with_the_same_run(world: World) -> None:
    run_id = await suspended(world)
    assert await world.run("approve once") == run_id
    assert world.bench.said == ["a"]
    assert [one["success"] for one in await results(world, run_id)] == [True]
    last = (await world.events(run_id))[-1]
    assert isinstance(last, RunFinished)
    roles = [message["role"] for message in world.model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_a_denial_is_told_to_the_model(world: World) -> None:
    run_id = await suspended(world)
    await world.run("Deny")
    assert world.bench.said == []
    (result,) = await results(world, run_id)
    assert result["error"] == (
        "Not run: alice denied it. Do not try it again; find another way or ask."
    )


async def test_plain_words_are_a_no_with_that_reason_and_stay_in_the_history(world: World) -> None:
    run_id = await suspended(world)
    await world.run("not on a Friday")
    assert world.bench.said == []
    (result,) = await results(world, run_id)
    assert "not on a Friday" in str(result["error"])
    history = await world.history(run_id)
    assert "not on a Friday" in str(history[-2].content)


async def test_always_holds_for_the_thread(world: World) -> None:
    run_id = await suspended(world)
    await world.run(APPROVE_ALWAYS)
    world.model.turns = [calls(("echo", '{"text": "b"}')), text("done")]
    assert await world.run("again") != run_id
    assert world.bench.said == ["a", "b"]


async def test_once_holds_once(world: World) -> None:
    await suspended(world)
    world.model.turns[-1:] = [calls(("echo", '{"text": "b"}'))]
    run_id = await world.run(APPROVE_ONCE)
    assert world.bench.said == ["a"]
    run = await world.engine.conversations.run(run_id)
    assert run is not None
    assert run.status == "waiting"


async def test_the_other_calls_of_the_turn_run_once_and_keep_their_results(world: World) -> None:
    world.bench.gate("b").set()
    guarded(world).model.turns = [
        calls(("echo", '{"text": "a"}'), ("wait", '{"text": "b"}'), ("wait", "{}")),
        text("done"),
    ]
    run_id = await world.run("go")
    assert world.bench.said == ["b"]
    await world.run(APPROVE_ONCE)
    assert world.bench.said == ["b", "a"]
    found = await results(world, run_id)
    assert sorted(str(one["output"]) for one in found if one["success"]) == [
        "echo a",
        "waited for b",
    ]
    assert any("Field required" in str(one["error"]) for one in found)


async def test_stopping_a_waiting_run_ends_it_and_runs_nothing(world: World) -> None:
    run_id = await suspended(world)
    await world.stop(run_id)
    await execute(run_id, world.engine)
    run = await world.engine.conversations.run(run_id)
    assert run is not None
    assert run.status == "stopped"
    assert world.bench.said == []
    snapshot = await world.engine.conversations.snapshot(run.thread_id)
    assert snapshot is not None
    assert snapshot.open_ask is None


async def test_an_ask_behind_a_waiting_call_does_not_end_the_run(world: World) -> None:
    guarded(world).model.turns = [
        calls(("echo", '{"text": "a"}'), ("ask", '{"text": "Which?"}')),
        text("done"),
    ]
    run_id = await world.run("go")
    await world.run(APPROVE_ONCE)
    errors = [str(one["error"]) for one in await results(world, run_id)]
    assert any("waits for an approval" in error for error in errors)
    assert world.bench.said == ["a"]


def test_buttons_are_understood_as_words() -> None:
    assert parse_choice("  approve   ONCE ") == APPROVE_ONCE
    assert parse_choice("yes") is None


def test_a_call_is_described_with_its_arguments_on_one_line() -> None:
    line = describe_call("notebook: write", {"line": "milk\n`rm`", "times": 2, "to": {"a": [1]}})
    assert line == "notebook: write, with line `milk 'rm'`, times `2`, to `{\"a\": [1]}`"
    assert describe_call("ping", {}) == "ping"


def test_many_or_long_arguments_are_cut_and_say_so() -> None:
    line = describe_call("x", {f"value{n}": "y" * 5000 for n in range(30)})
    assert len(line) < 1400
    assert "…" in line
    assert line.endswith("more values that do not fit here")


def test_a_long_reason_hides_no_other() -> None:
    approval = Approval(turn_id="t", tools=("a",), reasons=("z" * 9000, "Delete it all"))
    assert "Delete it all" in approval.text
    assert len(approval.text) < 2000
    many = Approval(turn_id="t", tools=("a",), reasons=tuple(f"reason {n}" for n in range(100)))
    assert "reason 15" in many.text
    assert "and 84 more calls that do not fit here" in many.text
    assert many.summary == "reason 0 and 99 more"
