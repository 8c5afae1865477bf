"""Showing a run: one status message, a new message for the answer, nothing twice and nothing lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bots.delivery import RunDelivery
from bots.posting import Showroom
from bots.rendering.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from core.approval import APPROVE_ONCE, CHOICES
from core.errors import (
    ModelRejected,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnclear,
)
from core.runs import execute
from core.threads import Address
from core.tools.tool import Toolbox
from sandbox.unsafe_process import UnsafeProcesses
from storage.asks import SqlAsks
from storage.deliveries import SqlDeliveries
from tests.core.conftest import World
from tests.core.conftest import world as world
from tests.fakes.played_model import calls, text
from tests.fakes.surface import Failure, FakeSurface, Posted


class Stage:
    """A world whose thread lives on the fake platform, and a delivery that shows it."""

    def __init__(self, world: World, sandboxes: UnsafeProcesses) -> None:
        self.world = world
        self.surface = FakeSurface()
        self.sandboxes = sandboxes
        self.delivery = self.new_delivery("worker-1")

    def new_delivery(self, worker_id: str) -> RunDelivery:
        return RunDelivery(
            Showroom(
                worker_id=worker_id,
                surfaces={"slack": self.surface},
                deliveries=SqlDeliveries(self.world.database),
                conversations=self.world.engine.conversations,
                asks=SqlAsks(self.world.database),
                bus=self.world.engine.bus,
                sandboxes=self.sandboxes,
                link_for=lambda thread_id, path: f"https://links.test/{path}",
            )
        )

    async def run(self, words: str = "go") -> str:
        run_id = await self.world.say(words)
        self.delivery.wake(run_id)
        await execute(run_id, self.world.engine)
        await self.shown()
        return run_id

    async def shown(self) -> None:
        async with asyncio.timeout(15):
            while await SqlDeliveries(self.world.database).open_runs():
                await asyncio.sleep(0.01)

    def of(self, kind: type[Content]) -> list[Posted]:
        return [one for one in self.surface.posted if one.contents and isinstance(one.newest, kind)]

    async def put_file(self, run_id: str, path: str, content: bytes) -> None:
        run = await self.world.engine.conversations.run(run_id)
        assert run is not None
        sandbox = await self.sandboxes.open(run.thread_id, fence=0)

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        await sandbox.files.write(path, pieces())


@pytest.fixture
async def stage(world: World, tmp_path: Path) -> AsyncIterator[Stage]:
    world.address = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    sandboxes = UnsafeProcesses(tmp_path / "sandboxes")
    made = Stage(world, sandboxes)
    await world.engine.claims.heartbeat("worker-1")
    made.delivery.start()
    yield made
    await made.delivery.close()
    await sandboxes.close()


async def test_the_answer_is_a_new_message_and_the_status_one_that_is_edited(stage: Stage) -> None:
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("The answer.")]
    await stage.run()
    (status,) = stage.of(RunStatus)
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="The answer.")
    final = status.newest
    assert isinstance(final, RunStatus)
    assert (final.view.state, final.view.can_stop) == ("completed", False)
    assert [task.title for task in final.view.tasks] == ["echo a"]


async def test_the_request_carries_one_reaction_at_a_time_and_two_in_all(stage: Stage) -> None:
    stage.world.model.turns = [text("ok")]
    await stage.run()
    assert stage.surface.reactions == [("1", "seen"), ("1", "done")]


async def test_a_run_that_waits_asks_in_a_message_that_later_says_who_allowed_it(
    stage: Stage,
) -> None:
    tools = dict(stage.world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text}")
    stage.world.with_engine(toolbox=Toolbox(tools))
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("Said.")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.engine)
    async with asyncio.timeout(15):
        while not stage.of(AskPrompt):
            await asyncio.sleep(0.01)
    (prompt,) = stage.of(AskPrompt)
    assert isinstance(prompt.newest, AskPrompt)
    assert prompt.newest.ask.options == CHOICES
    assert await stage.run(APPROVE_ONCE) == run_id
    assert (prompt.newest.ask.state, prompt.newest.ask.answer) == ("answered", APPROVE_ONCE)
    assert len(stage.of(RunStatus)) == len(stage.of(AskPrompt)) == 1
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Said.")


async def test_edits_keep_their_pace(stage: Stage) -> None:
    stage.surface.edit_interval_seconds = 0.3
    many = [calls(("echo", f'{{"text": "{n}"}}')) for n in range(40)]
    stage.world.model.turns = [*many, text("done")]
    await stage.run()
    assert stage.surface.edits <= 20
    assert len(stage.of(RunStatus)) == 1


@pytest.mark.parametrize("is_carried_out", [True, False])
@pytest.mark.parametrize("operation", ["post", "upload"])
async def test_after_an_unclear_failure_nothing_is_there_twice(
    stage: Stage, operation: str, is_carried_out: bool
) -> None:
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "a.txt"}')),
    ]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    async with asyncio.timeout(5):
        await stage.world.bench.has_started("x").wait()
    await stage.put_file(run_id, "a.txt", b"content")
    unclear = SurfaceUnclear("no answer came")
    stage.surface.failures.append(Failure(operation, unclear, is_carried_out))
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    assert len(stage.of(AnswerPart)) == 1
    assert [one.file_bytes for one in stage.surface.posted if one.file_name] == [b"content"]
    assert len(stage.of(RunStatus)) == 1


async def test_a_rate_limit_is_waited_out(stage: Stage) -> None:
    stage.world.model.turns = [text("The answer.")]
    limited = SurfaceRateLimited("slow down", retry_after_seconds=0.1)
    stage.surface.failures += [Failure("post", limited), Failure("edit", limited)]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1
    assert len(stage.of(RunStatus)) == 1


async def test_a_refused_status_message_does_not_keep_the_answer_back(stage: Stage) -> None:
    stage.world.model.turns = [text("The answer.")]
    refused = SurfaceRefused("it was deleted", code="message_not_found")
    stage.surface.failures += [Failure("edit", refused) for _ in range(10)]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1


async def test_a_failed_run_says_so_once_in_the_status(stage: Stage) -> None:
    stage.world.model.turns = [[ModelRejected("The key was refused.")]]
    await stage.run()
    (status,) = stage.of(RunStatus)
    final = status.newest
    assert isinstance(final, RunStatus)
    assert (final.view.state, final.view.message) == ("failed", "The key was refused.")
    assert final.view.can_retry
    assert len(stage.surface.posted) == 1
    assert stage.surface.reactions[-1] == ("1", "failed")


async def test_a_long_answer_comes_in_parts_and_a_very_long_one_as_a_file(stage: Stage) -> None:
    paragraphs = "\n\n".join(f"Paragraph {n} " + "word " * 55 for n in range(8))
    stage.world.model.turns = [text(paragraphs)]
    await stage.run()
    parts = [one.newest for one in stage.of(AnswerPart)]
    assert [part.part for part in parts if isinstance(part, AnswerPart)] == [1, 2, 3]
    stage.world.model.turns = [text("\n\n".join([paragraphs] * 5))]
    await stage.run("again")
    (file,) = [one for one in stage.surface.posted if one.file_name]
    assert file.file_name == "answer.md"
    assert file.file_bytes.decode().count("Paragraph 3") == 5


async def test_a_file_that_is_not_there_is_said_so(stage: Stage) -> None:
    stage.world.model.turns = [
        calls(("complete", '{"text": "Done.", "attachments": "none.txt, ../../etc/passwd"}'))
    ]
    await stage.run()
    said = [one.newest.markdown for one in stage.of(Notice) if isinstance(one.newest, Notice)]
    assert len(said) == 2
    assert "none.txt" in said[0]
    assert "climbs" in said[1]


async def test_a_file_that_is_too_large_becomes_a_link(stage: Stage) -> None:
    stage.surface.file_bytes_max = 3
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "big.bin"}')),
    ]
    run_id = await stage.world.say("go")
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    async with asyncio.timeout(5):
        await stage.world.bench.has_started("x").wait()
    await stage.put_file(run_id, "big.bin", b"12345")
    stage.world.bench.gate("x").set()
    await running
    stage.delivery.wake(run_id)
    await stage.shown()
    (notice,) = [one.newest for one in stage.of(Notice)]
    assert isinstance(notice, Notice)
    assert "https://links.test/big.bin" in notice.markdown


async def test_an_answered_question_shows_who_answered_also_after_a_restart(stage: Stage) -> None:
    stage.world.model.turns = [
        calls(("ask", '{"text": "Which?", "options": ["A", "B"]}')),
        text("A it is."),
    ]
    await stage.run()
    (prompt,) = stage.of(AskPrompt)
    await stage.delivery.close()
    run_id = await stage.world.say("A")
    await execute(run_id, stage.world.engine)
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    content = prompt.newest
    assert isinstance(content, AskPrompt)
    assert content.ask.answered_by is not None
    assert (content.ask.state, content.ask.answer) == ("answered", "A")
    assert content.ask.answered_by.name == "alice"
    assert len(stage.of(AskPrompt)) == 1


async def test_a_new_process_takes_the_same_status_message_up(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    await until(lambda: bool(stage.of(RunStatus)))
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    (status,) = stage.of(RunStatus)
    assert isinstance(status.newest, RunStatus)
    assert status.newest.view.state == "completed"
    assert len(stage.of(AnswerPart)) == 1


async def test_a_reaction_that_fails_changes_nothing(stage: Stage) -> None:
    refused = SurfaceRefused("no", code="no_permission")
    stage.surface.failures += [Failure("react", refused), Failure("react", refused)]
    stage.world.model.turns = [text("ok")]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)
