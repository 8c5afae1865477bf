"""A program that ends just before it asks for an approval: the people are asked afterwards, and the call runs once."""

import asyncio

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.approval import APPROVE_ONCE, Approval
from core.domain.events import ApprovalAsked, ToolStarted, TurnFinished, TurnStarted
from core.domain.threads import Ask, Lease
from core.run.execute import execute
from core.stores import JournalEntry
from storage.sql.stores.run_journal import SqlRunJournal
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
