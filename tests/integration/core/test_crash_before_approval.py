"""A program that ends just before it asks for an approval: the people are asked afterwards, and the call runs once."""

import asyncio

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.approval import APPROVE_ONCE, EXPIRED, Approval
from core.domain.events import ApprovalAsked, RunFailed, ToolStarted, TurnFinished, TurnStarted
from core.domain.threads import Ask, Lease
from core.run.execute import execute
from core.stores import JournalEntry
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.run_transitions import SqlAsks
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import World
from tests.integration.core.test_approval import guarded
from tests.support.narrow import require


class Dying(SqlRunJournal):
    """A journal whose program is killed right before, or right after, the run is suspended."""

    is_stored = False

    async def suspend_run(self, lease: Lease, entry: JournalEntry, approval: Approval) -> None:
        if self.is_stored:
            await self.write(lease, entry)
        raise asyncio.CancelledError


async def question(world: World, run_id: str) -> Ask | None:
    return await world.deps.stores.journal.find_approval(run_id)


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_the_people_are_asked_after_all(world: World, dialect: Dialect, is_stored: bool) -> None:
    """Where not even the call was on record, the model makes it again."""
    guarded(world).with_deps(dialect=dialect)
    first = calls(("echo", '{"text": "a"}'))
    if dialect.name == "xml":
        first = text(invokes(("echo", {"text": "a"})))
    world.model.turns = [first]
    journal = Dying(world.database)
    journal.is_stored = is_stored
    run_id = await world.say("go")
    await world.lose_worker(run_id, journal=journal)
    assert await question(world, run_id) is None
    is_known = bool(await world.deps.stores.journal.tool_call_records(run_id))
    assert is_known or not is_stored
    world.model.turns = [text("done")] if is_known else [first, text("done")]
    await execute(run_id, world.deps)
    asked = require(await question(world, run_id))
    assert asked.state == "open"
    assert "Say a aloud" in asked.text
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


async def test_an_approval_that_nobody_gives_ends_the_run_with_a_plain_sentence(world: World) -> None:
    guarded(world).model.turns = [calls(("echo", '{"text": "a"}')), text("Not needed then.")]
    run_id = await world.run("go")
    asks = SqlAsks(world.database)
    assert await asks.expire_approvals(older_than_hours=1) == ()
    assert await asks.expire_approvals(older_than_hours=0) == (run_id,)
    assert await asks.expire_approvals(older_than_hours=0) == ()
    assert run_id in await world.deps.stores.claims.claimable_runs()
    await execute(run_id, world.deps)
    run = await world.read_run(run_id)
    assert (run.status, run.error) == ("failed", EXPIRED)
    assert isinstance((await world.events(run_id))[-1], RunFailed)
    assert world.bench.said == []
    assert require(await question(world, run_id)).state == "expired"
    again = require(await world.stops.retry_run(run_id, "retry-1", continues=False))
    await execute(again, world.deps)
    assert "no one has approved" in str(world.model.requests[-1].messages)
    assert world.bench.said == []
