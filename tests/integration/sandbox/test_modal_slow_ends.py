"""Modal as its users report it: ends that take half a minute, slow starts, and files that it saves by itself."""

import asyncio
import random

import pytest
from grpclib import Status
from modal_proto import api_pb2

from core.domain.errors import SandboxUnavailable
from core.ports import Sandbox
from sandbox.modal import snapshots
from sandbox.modal.config import sandbox_name
from sandbox.modal.provider import ModalSandboxProvider
from sandbox.modal.snapshots import LOOKUPS
from simulator.modal.world import Pace
from tests.support.modal_stage import OUT_OF_MEMORY, Stage, modal_stage
from tests.support.modal_stage import stage as stage
from tests.support.sandboxes import content, pieces, run
from tests.support.waiting import until

RESULT = api_pb2.GenericResult
LIFETIME_OVER = RESULT(status=RESULT.GENERIC_STATUS_TIMEOUT)
TERMINATED = RESULT(status=RESULT.GENERIC_STATUS_TERMINATED)


async def test_one_that_never_answered_is_replaced_under_another_name(stage: Stage) -> None:
    worker = stage.worker()
    await worker.open("thread", fence=1)
    assert stage.modal.world.living()[0].name == sandbox_name("thread", after="")
    await stage.records.remove("modal", "thread")  # as if its process had died before the hello
    await stage.end_sandbox(waits_for_end=False)
    assert await (await stage.worker().open("thread", fence=1)).files.list("") == ()
    assert stage.modal.world.living()[0].name == sandbox_name("thread", after="", attempt=2)


@pytest.mark.parametrize("status", [Status.NOT_FOUND, Status.FAILED_PRECONDITION])
async def test_no_file_is_called_expired_because_something_else_is_not_found(stage: Stage, status: Status) -> None:
    worker, sandbox = await stage.open_sandbox(b"kept")
    await sandbox.close()
    before = await stage.record()
    stage.modal.faults.arm("SandboxCreateV2", status, "App ap-1 is stopped", times=9)
    for _ in range(2):
        with pytest.raises(SandboxUnavailable) as caught:
            await worker.open("thread", fence=2)
        assert "expired" not in str(caught.value)
    assert await stage.record() == before
    assert stage.snapshots == [before.snapshot_ref]
    stage.modal.faults.armed.clear()
    assert await content(await worker.open("thread", fence=2), "file") == b"kept"


async def test_an_app_that_was_stopped_is_looked_up_anew(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox(b"kept")
    await sandbox.close()
    await stage.modal.world.stop_app("threadhand-test")
    assert await content(await worker.open("thread", fence=2), "file") == b"kept"
    await worker.open("another", fence=1)


@pytest.fixture
def quick_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LOOKUP_PAUSE_SECONDS", 0.01)


@pytest.mark.usefixtures("quick_lookups")
async def test_a_reference_outlives_an_image_that_cannot_be_found(stage: Stage) -> None:
    worker = stage.worker()
    await (await worker.open("thread", fence=1)).close()
    before = await stage.record()
    stage.modal.faults.arm("ImageFromId", Status.NOT_FOUND, times=LOOKUPS)
    with pytest.raises(SandboxUnavailable, match="have expired"):
        await worker.open("thread", fence=2)
    started = await stage.record()
    assert (started.state, started.snapshot_ref) == ("started", before.snapshot_ref)
    await (await worker.open("thread", fence=2)).close()
    assert stage.snapshots == [before.snapshot_ref, (await stage.record()).snapshot_ref]


@pytest.mark.usefixtures("quick_lookups")
async def test_a_snapshot_that_cannot_be_read_back_replaces_nothing(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox(b"one")
    await sandbox.close()
    before = await stage.record()
    sandbox = await worker.open("thread", fence=2)
    stage.modal.faults.arm("ImageFromId", Status.NOT_FOUND, times=LOOKUPS)
    await stage.save(worker)
    assert (await stage.record()).snapshot_ref == before.snapshot_ref
    assert before.snapshot_ref in stage.snapshots


@pytest.mark.parametrize("end", [OUT_OF_MEMORY, LIFETIME_OVER, TERMINATED])
async def test_what_modal_saves_at_the_end_is_used_before_anything_is_called_lost(
    stage: Stage, end: api_pb2.GenericResult
) -> None:
    worker, sandbox = await stage.open_sandbox(b"saved by us")
    await stage.save(worker)
    await sandbox.files.write("file", pieces(b"saved by Modal"))
    waiting = asyncio.ensure_future(run(sandbox, "sleep 1000", seconds=100))
    await until(lambda: sandbox.shell.sessions())
    await stage.end_sandbox(end, waits_for_end=False)
    with pytest.raises(SandboxUnavailable, match="stopped working") as told:
        await waiting
    assert "files" not in str(told.value)  # nobody knows yet
    with pytest.raises(SandboxUnavailable, match="with all files as they were"):
        await worker.open("thread", fence=1)
    assert await content(await worker.open("thread", fence=1), "file") == b"saved by Modal"
    assert stage.snapshots == []
    assert stage.exit_snapshots == [(await stage.record()).snapshot_ref]


async def test_the_janitor_keeps_what_modal_saved(stage: Stage) -> None:
    worker = stage.worker()
    await (await worker.open("thread", fence=1)).files.write("file", pieces(b"kept"))
    (made,) = stage.modal.world.living()
    await stage.modal.world.end(made, OUT_OF_MEMORY)
    await stage.clock.advance(3600)
    janitor = stage.worker()
    await janitor.background_jobs.run_once()
    record = await stage.record()
    assert (record.state, [record.snapshot_ref]) == ("stopped", stage.exit_snapshots)
    assert await content(await janitor.open("thread", fence=2), "file") == b"kept"


async def test_a_forgotten_thread_leaves_no_exit_snapshot() -> None:
    async with modal_stage(pace=Pace(end_seconds=(0.5, 0.5))) as stage:
        worker = stage.worker()
        await (await worker.open("thread", fence=1)).files.write("file", pieces(b"private"))
        await worker.destroy("thread")
        await (await worker.open("idle", fence=1)).close()
        await worker.destroy("idle")
        assert (stage.living, stage.snapshots, stage.exit_snapshots) == ([], [], [])


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_order_of_opens_stops_and_ends_loses_a_saved_file(seed: int) -> None:
    """Three workers use one thread in a random order; Modal ends its sandboxes as slowly as it likes."""
    chance = random.Random(seed)
    async with modal_stage(pace=Pace(scale=0.01, start_seconds=(0, 10), seed=seed)) as stage:
        workers = [stage.worker() for _ in range(3)]
        written = b""
        for fence in range(1, 10):
            sandbox = await _open(chance.choice(workers), fence)
            if written:
                assert await content(sandbox, "file") == written
            written = str(fence).encode()
            await sandbox.files.write("file", pieces(written))
            match chance.randrange(4):
                case 0:
                    await sandbox.close()
                case 1:
                    await stage.end_sandbox(waits_for_end=False)
                case 2:
                    await asyncio.gather(*(_open(worker, fence) for worker in workers))
                case _:
                    pass
        await until(lambda: not any(worker._save_tasks for worker in workers))
        assert len(stage.living) <= 1


async def _open(worker: ModalSandboxProvider, fence: int) -> Sandbox:
    try:
        return await worker.open("thread", fence=fence)
    except SandboxUnavailable as error:
        told = str(error)
    assert "with all files as they were" in told
    return await worker.open("thread", fence=fence)
