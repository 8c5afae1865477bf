"""A run whose worker died goes on from what is stored: nothing runs twice, every call has its result."""

import asyncio

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.errors import StorageUnavailable
from core.domain.events import TurnFinished, TurnStarted
from core.domain.threads import Lease
from core.ports import ModelDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED
from core.stores import JournalEntry, RunResult
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import World


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


class Unending(SqlRunJournal):
    """A journal that stores everything but the end of a run."""

    async def finish(self, lease: Lease, entry: JournalEntry, ending: RunResult) -> bool:
        await self.write(lease, entry)
        raise StorageUnavailable("the server is gone")


@pytest.mark.parametrize("last", [text("done"), calls(("complete", '{"text": "done"}'))])
async def test_an_answer_that_was_stored_is_not_asked_for_again(
    world: World, last: list[ModelDelta | Exception | asyncio.Event]
) -> None:
    keeps = world.deps.stores.journal
    world.model.turns = [text("first")]
    await world.run("hello")
    world.model.turns = [last]
    run_id = await world.say("go")
    world.with_deps(journal=Unending(world.database))
    await execute(run_id, world.deps)
    world.with_deps(journal=keeps)
    asked = len(world.model.requests)
    await execute(run_id, world.deps)
    assert len(world.model.requests) == asked
    run = await world.read_run(run_id)
    assert (run.status, run.attempt) == ("completed", 2)
    assert (await world.read_reply(run_id)).text == "done"
