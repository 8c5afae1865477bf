"""A run whose worker died: nothing runs twice, every call has its result, and a run that kills its workers ends."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.events import RunFailed, RunFinished, TurnFinished, TurnStarted
from core.domain.threads import ToolCallRecord
from core.ports import ModelDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED
from core.run.run_end import STOPPED_AT_THE_SAME_PLACE, WORKER_DEATHS_MAX
from core.tools.tool import ToolSet
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
