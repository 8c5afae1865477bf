"""A run whose worker died goes on from what is stored: nothing runs twice, every call has its result."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.errors import StorageUnavailable
from core.domain.events import AgentEvent, RunFinished, TurnFinished, TurnStarted
from core.domain.messages import JsonObject, Message
from core.domain.threads import Lease, ToolCallRecord
from core.domain.wire_format import suna_objects
from core.ports import ModelDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED, NEVER_STARTED, RepairContext, repair_history
from core.run.recorder import RunRecorder
from core.stores import JournalEntry, RunResult
from core.tools.tool import ToolContext
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import VanishingClaims, World
from tests.support.narrow import require


async def died_during_a_call(world: World, run_id: str) -> None:
    """Leaves the run as SIGKILL does: the call is on record, nothing after it is."""
    keeps = world.deps.stores.claims
    world.with_deps(claims=VanishingClaims(world.database), worker_id="worker-that-dies")
    running = asyncio.ensure_future(execute(run_id, world.deps))
    await world.bench.until_started("x")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    world.with_deps(claims=keeps, worker_id="worker-2")


async def taken_over(world: World, run_id: str) -> None:
    """A worker is gone four seconds after its last heartbeat."""
    async with asyncio.timeout(30):
        while run_id not in await world.deps.stores.claims.claimable_runs():
            await asyncio.sleep(0.1)
    await execute(run_id, world.deps)


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
async def test_a_call_that_was_under_way_is_reported_and_not_repeated(world: World, dialect: Dialect) -> None:
    world.with_deps(dialect=dialect)
    first = calls(("wait", '{"text": "x"}'), said="Working.")
    if dialect.name == "xml":
        first = text(invokes(("wait", {"text": "x"}), said="Working."))
    world.model.turns = [first, text("done")]
    run_id = await world.say("go")
    await died_during_a_call(world, run_id)
    await taken_over(world, run_id)
    assert world.bench.said == ["x"]
    sent = world.model.requests[-1].messages
    assert INTERRUPTED.split(":")[0] in str(sent[-1]["content"])
    run = await world.read_run(run_id)
    assert (run.status, run.attempt) == ("completed", 2)


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


async def died_while_the_model_was_asked(world: World, run_id: str) -> None:
    """Leaves the run as SIGKILL does: its turn has begun, and nothing of the answer is stored."""
    keeps = world.deps.stores.claims
    world.with_deps(claims=VanishingClaims(world.database), worker_id="worker-that-dies")
    before = await begun(world, run_id)
    running = asyncio.ensure_future(execute(run_id, world.deps))
    async with asyncio.timeout(30):
        while await begun(world, run_id) == before:
            await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    world.with_deps(claims=keeps, worker_id="worker-2")


async def begun(world: World, run_id: str) -> list[str]:
    return [one.turn_id for one in await world.events(run_id) if isinstance(one, TurnStarted)]


def turns(events: Sequence[AgentEvent]) -> list[str]:
    """The ids of the turns in the order they were told, each once. Fails where two are open at once or one stays so."""
    told: list[str] = []
    is_open: str | None = None
    for one in events:
        match one:
            case TurnStarted(turn_id=turn_id):
                assert is_open is None, "the turn before has no end"
                is_open = turn_id
                told += [] if turn_id in told else [turn_id]
            case TurnFinished(turn_id=turn_id):
                assert is_open == turn_id, "an end without its beginning"
                is_open = None
            case _:
                pass
    assert is_open is None, "the last turn has no end"
    return told


async def test_turns_stay_in_pairs_over_a_takeover_in_a_call(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id = await world.say("go")
    await died_during_a_call(world, run_id)
    await taken_over(world, run_id)
    events = await world.events(run_id)
    assert len(turns(events)) == 2
    assert isinstance(events[-1], RunFinished)


async def test_turns_stay_in_pairs_over_takeovers_while_the_model_was_asked(world: World) -> None:
    world.model.turns = [[asyncio.Event()], [asyncio.Event()], text("done")]
    run_id = await world.say("go")
    for attempt in (1, 2):
        await died_while_the_model_was_asked(world, run_id)
        await world.deps.stores.claims.remove_worker("worker-that-dies")
        assert len(await begun(world, run_id)) == attempt
    await execute(run_id, world.deps)
    assert len(turns(await world.events(run_id))) == 3
    stored = await world.deps.stores.conversations.events(run_id)
    told = [one for event in stored for one in suna_objects(event)]
    contents = [json.loads(str(one["content"])) for one in told if "content" in one]
    kinds = [one.get("status_type") for one in contents]
    marks = [one for one in kinds if one in ("thread_run_start", "thread_run_end")]
    assert marks == ["thread_run_start", "thread_run_end"] * 3


async def test_a_turn_that_was_cut_off_ends_also_where_nothing_follows(world: World) -> None:
    world.model.turns = [[asyncio.Event()]]
    run_id = await world.say("go")
    await died_while_the_model_was_asked(world, run_id)
    await world.stop(run_id)
    await taken_over(world, run_id)
    events = await world.events(run_id)
    assert len(turns(events)) == 1
    assert [one.kind for one in events[-2:]] == ["turn_finished", "run_finished"]


async def mended_history(
    world: World, dialect: Dialect, record: ToolCallRecord, history: Sequence[Message] = ()
) -> list[str]:
    """The contents that mending adds for one record."""
    run_id = await world.say("go")
    lease = require(await world.deps.stores.claims.claim(run_id, "worker-1"))
    recorder = RunRecorder(lease, world.deps.stores.journal, world.deps.messaging.bus)
    repair = RepairContext(
        dialect=dialect,
        toolbox=world.deps.defaults.toolbox,
        context=ToolContext(thread_id=lease.thread_id, run_id=run_id, sandbox=no_sandbox),
        run_log=recorder,
    )
    mended = await repair_history(history, [record], repair)
    await recorder.commit()
    return [json.dumps(message.content) for message in mended.messages]


async def no_sandbox() -> object:
    raise AssertionError("no sandbox is needed here")


def record(**changes: object) -> ToolCallRecord:
    values: dict[str, object] = {
        "run_id": "r",
        "turn_id": "t",
        "index": 0,
        "call_id": "call_7",
        "name": "echo",
        "arguments": {"text": "a"},
        "raw": '<invoke name="echo"><parameter name="text">a</parameter></invoke>',
        "assistant_message_id": "m",
    }
    return ToolCallRecord(**{**values, **changes})


async def test_a_call_whose_tool_is_gone_is_still_told_as_perhaps_done(world: World) -> None:
    under_way = await mended_history(world, NativeDialect(), record(name="gone"))
    assert INTERRUPTED in under_way[1]
    assert "There is no tool named 'gone'" in under_way[1]


async def test_a_call_that_was_not_begun_and_whose_tool_is_gone_was_not_done(world: World) -> None:
    waiting = await mended_history(world, NativeDialect(), record(name="gone", state="awaiting"))
    assert INTERRUPTED not in waiting[1]
    assert "There is no tool named 'gone'" in waiting[1]


async def test_the_assistant_message_is_made_again_from_the_calls(world: World) -> None:
    native = await mended_history(world, NativeDialect(), record())
    assert '"tool_calls"' in native[0]
    assert "call_7" in native[0]


async def test_the_assistant_text_is_made_again_in_xml(world: World) -> None:
    xml = await mended_history(world, XmlDialect(), record())
    assert "<function_calls>" in xml[0]
    assert '<invoke name=\\"echo\\">' in xml[0]


async def test_calls_in_text_that_waited_for_their_turn_are_told_as_not_run(world: World) -> None:
    said = invokes(("echo", {"text": "a"}), ("echo", {"text": "b"}))
    content: JsonObject = {"role": "assistant", "content": said}
    assistant = Message(type="assistant", content=content, is_llm_message=True, thread_id="t", message_id="m")
    result: JsonObject = {"success": True, "output": "echo a", "error": None}
    done = record(state="finished", result=result)
    added = await mended_history(world, XmlDialect(), done, [assistant])
    assert ["echo a" in one for one in added] == [True, False]
    assert NEVER_STARTED in added[1]
