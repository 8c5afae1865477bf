"""A run whose worker died goes on from what is stored: nothing runs twice, every call has its result."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.errors import StorageUnavailable
from core.domain.events import TurnFinished, TurnStarted
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.threads import Lease, ToolCallRecord
from core.ports import ModelDelta
from core.run.execute import execute
from core.run.history_repair import INTERRUPTED, NEVER_STARTED, RepairContext, repair_history
from core.run.recorder import RunRecorder
from core.stores import JournalEntry, RunResult
from core.tools.tool import ToolContext
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, invokes, text
from tests.integration.core.conftest import World
from tests.support.narrow import require


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


@pytest.mark.parametrize(("state", "is_perhaps_done"), [("started", True), ("awaiting", False)])
async def test_a_call_whose_tool_is_gone_is_told_as_perhaps_done_if_it_was_begun(
    world: World, state: str, *, is_perhaps_done: bool
) -> None:
    _, result = await mended_history(world, NativeDialect(), record(name="gone", state=state))
    assert (INTERRUPTED in result) is is_perhaps_done
    assert "There is no tool named 'gone'" in result


@pytest.mark.parametrize(
    ("dialect", "parts"),
    [(NativeDialect(), ('"tool_calls"', "call_7")), (XmlDialect(), ("<function_calls>", '<invoke name=\\"echo\\">'))],
)
async def test_the_assistant_message_is_made_again_from_the_calls(
    world: World, dialect: Dialect, parts: Sequence[str]
) -> None:
    assistant, _ = await mended_history(world, dialect, record())
    assert [part for part in parts if part not in assistant] == []


async def test_calls_in_text_that_waited_for_their_turn_are_told_as_not_run(world: World) -> None:
    said = invokes(("echo", {"text": "a"}), ("echo", {"text": "b"}))
    content: JsonObject = {"role": "assistant", "content": said}
    assistant = Message(type="assistant", content=content, is_llm_message=True, thread_id="t", message_id="m")
    result: JsonObject = {"success": True, "output": "echo a", "error": None}
    done = record(state="finished", result=result)
    added = await mended_history(world, XmlDialect(), done, [assistant])
    assert ["echo a" in one for one in added] == [True, False]
    assert NEVER_STARTED in added[1]
