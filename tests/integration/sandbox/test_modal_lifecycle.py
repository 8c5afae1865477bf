"""The life of a Modal sandbox: saved, stopped, archived, restored, shared by workers, survived by its files."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.errors import SandboxUnavailable
from core.failpoints import FailpointHit
from sandbox.modal.provider import ModalSandboxProvider
from tests.support.failpoints import armed
from tests.support.modal_stage import HOUR, INTERNAL_FAILURE, MINUTE, Stage
from tests.support.modal_stage import stage as stage
from tests.support.sandboxes import content, pieces, run
from tests.support.waiting import until


async def test_the_files_are_saved_after_each_run_and_once(stage: Stage) -> None:
    worker = stage.worker()
    for number in range(3):
        sandbox = await worker.open("thread", fence=number + 1)
        await sandbox.files.write("file", pieces(str(number).encode()))
        await stage.save(worker)
        assert len(stage.snapshots) == 1
    record = await stage.record()
    assert (record.state, [record.snapshot_ref]) == ("started", stage.snapshots)
    assert stage.modal.calls.count("TaskSnapshotFilesystem") == 3


async def test_what_nobody_uses_is_stopped_archived_and_restored(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox(b"kept")
    await stage.clock.advance(14 * MINUTE)
    await worker.background_jobs.run_once()
    assert stage.living == ["thread.thread"]
    await stage.clock.advance(2 * MINUTE)
    await worker.background_jobs.run_once()
    assert stage.living == []
    stopped = await stage.record()
    assert stopped.state == "stopped"
    await stage.clock.advance(2 * HOUR)
    await worker.background_jobs.run_once()
    assert await stage.record() == replace(stopped, state="archived")
    with pytest.raises(SandboxUnavailable):
        await sandbox.files.list("")
    again = await worker.open("thread", fence=0)  # a listing is enough
    assert await content(again, "file") == b"kept"
    assert stage.living == ["thread.thread"]


async def test_a_command_that_runs_is_no_idleness(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox()
    waiting = asyncio.ensure_future(run(sandbox, "sleep 1000", seconds=2000))
    await until(lambda: sandbox.shell.sessions())
    await stage.clock.advance(HOUR)
    await worker.background_jobs.run_once()
    assert stage.living == ["thread.thread"]
    await sandbox.interrupt()
    await waiting
    await worker.background_jobs.run_once()
    assert stage.living == ["thread.thread"]
    await stage.clock.advance(HOUR)
    await worker.background_jobs.run_once()
    assert stage.living == []


async def test_a_busy_sandbox_is_saved_before_its_end(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox()
    command = "echo kept >file; sleep 1000"
    waiting = asyncio.ensure_future(run(sandbox, command, seconds=90_000))
    while not await sandbox.files.list("") or await content(sandbox, "file") != b"kept\n":
        await asyncio.sleep(0.01)
    await stage.clock.advance(23 * HOUR + 55 * MINUTE)
    await worker.background_jobs.run_once()
    with pytest.raises(SandboxUnavailable):
        await waiting
    assert await content(await worker.open("thread", fence=1), "file") == b"kept\n"


async def test_of_two_workers_one_makes_the_sandbox(stage: Stage) -> None:
    first, second = stage.worker(), stage.worker()
    ours, theirs = await asyncio.gather(first.open("thread", fence=1), second.open("thread", fence=1))
    assert stage.living == ["thread.thread"]
    await ours.files.write("file", pieces(b"shared"))
    assert await content(theirs, "file") == b"shared"


async def test_a_sandbox_whose_worker_died_is_saved_by_another(stage: Stage) -> None:
    dead, living = stage.worker(silence_seconds=0.5), stage.worker()
    await (await dead.open("thread", fence=1)).files.write("file", pieces(b"kept"))
    stage.workers.remove(dead)  # it is never closed
    await dead.background_jobs.close()
    await stage.clock.advance(18 * MINUTE)
    await living.background_jobs.run_once()
    assert stage.living == []
    assert await content(await living.open("thread", fence=2), "file") == b"kept"
    await dead.close()


async def test_one_that_is_gone_is_looked_for_once_and_told_when_it_is_opened(stage: Stage) -> None:
    dead, living = stage.worker(), stage.worker()
    await dead.open("thread", fence=1)
    await stage.end_sandbox(INTERNAL_FAILURE)
    await stage.clock.advance(18 * MINUTE)
    for _ in range(3):
        await living.background_jobs.run_once()
    assert stage.modal.calls.count("SandboxGetExitSnapshotV2") == 1
    with pytest.raises(SandboxUnavailable, match="before its files were saved"):
        await living.open("thread", fence=2)


async def test_a_loss_that_a_reader_found_is_told_to_the_next_run_elsewhere_once(stage: Stage) -> None:
    dead, reader, worker = stage.worker(), stage.worker(), stage.worker()
    await dead.open("thread", fence=1)
    await stage.end_sandbox(INTERNAL_FAILURE)
    await reader.open("thread", fence=0)
    with pytest.raises(SandboxUnavailable, match="before its files were saved"):
        await worker.open("thread", fence=2)
    for provider, fence in ((worker, 2), (reader, 3), (stage.worker(), 4)):
        await provider.open("thread", fence=fence)


async def test_a_ping_keeps_the_program_inside_alive(stage: Stage) -> None:
    worker = stage.worker(silence_seconds=1.5)
    sandbox = await worker.open("thread", fence=1)
    await run(sandbox, "X=kept")
    for _ in range(8):
        await asyncio.sleep(0.3)
        await worker.background_jobs.ping()
    assert (await run(sandbox, "echo $X")).output == "kept\n"


async def opened_and_closed(worker: ModalSandboxProvider) -> None:
    sandbox = await worker.open("thread", fence=2)
    await asyncio.gather(*worker._save_tasks)  # it ends the sandbox before for good
    await sandbox.close()


@pytest.mark.parametrize(
    "place",
    [
        "modal.create.before",
        "modal.create.after",
        "modal.exec.before",
        "modal.exec.after",
        "modal.snapshot.before",
        "modal.snapshot.after",
        "modal.delete_image.before",
        "modal.delete_image.after",
        "modal.terminate.before",
        "modal.terminate.after",
    ],
)
async def test_a_worker_that_breaks_off_anywhere_loses_nothing(stage: Stage, place: str) -> None:
    broken = stage.worker()
    await (await broken.open("thread", fence=1)).files.write("file", pieces(b"kept"))
    await (await broken.open("thread", fence=1)).close()
    with armed(f"{place}:raise"), pytest.raises(FailpointHit):
        await opened_and_closed(broken)
    healthy = stage.worker()
    assert await content(await healthy.open("thread", fence=3), "file") == b"kept"
    await until(lambda: not healthy._save_tasks)
    assert stage.living == ["thread.thread"]
    assert len(stage.exit_snapshots) <= 1  # of a process that died while it deleted one


async def test_a_sandbox_is_asked_for_as_planned_and_gets_no_secret(stage: Stage) -> None:
    await stage.worker(egress=("example.net",)).open("thread", fence=1)
    (made,) = stage.modal.world.living()
    definition = made.definition
    assert (definition.resources.milli_cpu, definition.resources.milli_cpu_max) == (500, 2000)
    assert (definition.resources.memory_mb, definition.resources.memory_mb_max) == (512, 4096)
    assert (definition.timeout_secs, definition.idle_timeout_secs) == (86_400, 1200)
    assert made.tags["threadhand-thread"] == "thread"
    assert made.environment == {}
    assert list(definition.secret_ids) == []
