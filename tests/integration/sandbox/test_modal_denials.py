"""Modal denies what it has, clocks differ, processes meet: no sandbox in use is ended, and no file is lost."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

import grpclib
import modal.exception
import pytest
from grpclib import Status

from core.domain.errors import SandboxUnavailable
from core.domain.sandbox_records import SandboxRecord, SandboxState
from sandbox.memory_records import MemorySandboxRecords
from sandbox.modal import snapshots
from sandbox.modal.account import ModalAccount, describe_sdk_error
from sandbox.modal.provider import ModalSandboxProvider
from sandbox.modal.snapshots import LOOKUPS
from simulator.modal.world import Pace
from tests.support.modal_stage import HOUR, MINUTE, PLAN, Stage, modal_stage, refused, soon
from tests.support.sandboxes import content, pieces, run
from tests.support.waiting import until


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(snapshots, "LOOKUP_PAUSE_SECONDS", 0.01)
    async with modal_stage() as made:
        yield made


@pytest.mark.parametrize("call", ["SandboxWaitV2", "SandboxGetExitSnapshotV2"])
async def test_an_exit_snapshot_that_is_denied_in_passing_is_used(stage: Stage, call: str) -> None:
    sandbox = await stage.worker().open("thread", fence=1)
    await sandbox.files.write("file", pieces(b"never saved by us"))
    await stage.end_sandbox()
    stage.modal.faults.arm(call, Status.NOT_FOUND, times=LOOKUPS - 1)
    other = stage.worker()
    with pytest.raises(SandboxUnavailable, match="with all files as they were"):
        await other.open("thread", fence=2)
    assert await content(await other.open("thread", fence=2), "file") == b"never saved by us"


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("TaskExecStdioRead", Status.FAILED_PRECONDITION),
        ("TaskExecStart", Status.NOT_FOUND),
        ("SandboxGetCommandRouterAccess", Status.FAILED_PRECONDITION),
    ],
)
async def test_a_reader_that_fails_in_passing_ends_nobodys_command(stage: Stage, call: str, status: Status) -> None:
    sandbox = await stage.worker().open("thread", fence=7)
    await sandbox.files.write("file", pieces(b"kept"))
    await run(sandbox, "sleep 1000", seconds=0)
    stage.modal.faults.arm(call, status, "not now")
    assert await content(await stage.worker().open("thread", fence=0), "file") == b"kept"
    assert "SandboxTerminateV2" not in stage.modal.calls
    assert (await sandbox.shell.check("main")).exit_code is None


async def test_a_clock_that_is_hours_ahead_makes_no_sandbox_an_orphan(stage: Stage) -> None:
    ahead = ModalSandboxProvider(replace(PLAN, home="home"), stage.records, now=lambda: stage.clock() + 2 * HOUR)
    stage.workers.append(ahead)
    sandbox = await ahead.open("thread", fence=1)
    await stage.clock.advance(2 * HOUR + 31 * MINUTE)
    await ahead.open("thread", fence=1)
    await ahead.background_jobs.run_once()
    assert await stage.worker(home="home").terminate_orphans() == 0
    assert (await run(sandbox, "echo on")).output == "on\n"


async def test_an_orphan_that_cannot_be_ended_keeps_no_other_alive(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for thread_id in ("one", "two"):
        await stage.worker(home="home").open(thread_id, fence=1)
        await stage.records.remove("modal", thread_id)
    await stage.clock.advance(HOUR)
    stage.modal.faults.arm("SandboxTerminateV2", Status.PERMISSION_DENIED, "not this one")
    janitor = stage.worker(home="home")
    assert await janitor.terminate_orphans() == 1
    assert len(stage.living) == 1
    assert "not this one" in caplog.text
    assert await janitor.terminate_orphans() == 1
    assert stage.living == []


async def left_alone(stage: Stage) -> None:
    """Leaves a sandbox whose worker died so long ago that it is due to be stopped."""
    dead = stage.worker()
    await (await dead.open("thread", fence=1)).files.write("file", pieces(b"kept"))
    await dead.background_jobs.close()
    await stage.clock.advance(18 * MINUTE)


async def test_one_that_another_process_has_just_joined_is_not_abandoned(stage: Stage) -> None:
    await left_alone(stage)
    sandbox = await stage.worker().open("thread", fence=2)
    await stage.worker().background_jobs.run_once()
    assert (await run(sandbox, "cat file")).output == "kept"
    assert "TaskSnapshotFilesystem" not in stage.modal.calls


class Overtaken(MemorySandboxRecords):
    """Once, something else happens after a record or a list is read and before it is used."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None:
        found = await super().find(provider, thread_id)
        await self._overtake()
        return found

    async def list_unused(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        found = await super().list_unused(provider, states=states, unused_since=unused_since)
        await self._overtake()
        return found

    async def _overtake(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()


async def test_one_that_is_joined_while_it_is_about_to_be_stopped_goes_on(stage: Stage) -> None:
    stage.records = records = Overtaken()
    await left_alone(stage)
    joining = stage.worker()

    async def join() -> None:
        await run(await joining.open("thread", fence=2), "X=kept; sleep 1000", seconds=0)

    records.meanwhile = join
    await stage.worker().background_jobs.run_once()
    sandbox = await joining.open("thread", fence=2)
    assert (await sandbox.shell.check("main")).exit_code is None
    assert stage.snapshots == []


async def test_what_was_stopped_since_the_look_is_restored_as_it_was_stopped(stage: Stage) -> None:
    stage.records = records = Overtaken()
    leaving, other = (stage.worker() for _ in range(2))
    sandbox = await leaving.open("thread", fence=1)
    await sandbox.files.write("file", pieces(b"saved"))
    leaving.release("thread")
    await sandbox.files.write("file", pieces(b"as it was stopped"))
    records.meanwhile = leaving.close
    again = await other.open("thread", fence=2)
    assert await content(again, "file") == b"as it was stopped"


async def test_a_snapshot_that_was_replaced_since_the_look_is_no_loss(stage: Stage) -> None:
    stage.records = records = Overtaken()
    first, second, other = (stage.worker() for _ in range(3))
    sandbox = await first.open("thread", fence=1)
    await sandbox.files.write("file", pieces(b"one"))
    await first.close()

    async def used_meanwhile() -> None:
        sandbox = await second.open("thread", fence=2)
        await sandbox.files.write("file", pieces(b"two"))
        await second.close()

    records.meanwhile = used_meanwhile
    again = await other.open("thread", fence=3)
    assert await content(again, "file") == b"two"


async def end_only_sandbox(stage: Stage, worker: ModalSandboxProvider) -> None:
    """Returns when the worker knows: until then, it hands out the connection that it has."""
    await stage.end_sandbox()
    await until(lambda: not worker._machines.running_by_thread())


async def worker_whose_sandbox_lost_its_exit_snapshot(stage: Stage) -> ModalSandboxProvider:
    """The sandbox has ended. What was saved before is all that is left of its files."""
    worker, _sandbox = await stage.open_sandbox(b"saved")
    await stage.save(worker)
    await end_only_sandbox(stage, worker)
    for image_id in stage.exit_snapshots:
        await stage.modal.world.delete_image(image_id)
    return worker


async def test_an_exit_snapshot_whose_image_is_gone_is_told_as_a_loss(stage: Stage) -> None:
    worker = await worker_whose_sandbox_lost_its_exit_snapshot(stage)
    with pytest.raises(SandboxUnavailable, match="as they were last saved"):
        await worker.open("thread", fence=1)
    assert await content(await worker.open("thread", fence=1), "file") == b"saved"


def never_give_files(stage: Stage, call: str, status: Status | None) -> None:
    """Makes the call fail with the status for good, or, if there is none, leaves exit snapshots pending."""
    if status is None:
        stage.modal.world.pending_exit_snapshots = True
    else:
        stage.modal.faults.arm(call, status, times=1_000_000)


NEVER: list[tuple[str, Status | None]] = [
    ("SandboxGetExitSnapshotV2", None),
    ("SandboxGetExitSnapshotV2", Status.INTERNAL),
    ("SandboxGetExitSnapshotV2", Status.ABORTED),
]


@pytest.mark.parametrize(
    ("call", "status", "is_saved"),
    [
        *((*never, True) for never in NEVER),
        (*NEVER[0], False),
        (*NEVER[1], False),
        ("ImageFromId", Status.INTERNAL, False),
    ],
)
async def test_an_exit_snapshot_that_never_comes_is_given_up(
    stage: Stage, call: str, status: Status | None, is_saved: bool
) -> None:
    worker = stage.worker(start_seconds=2)
    sandbox = await soon(worker)
    if is_saved:
        await sandbox.files.write("file", pieces(b"saved"))
        await stage.save(worker)
    never_give_files(stage, call, status)
    await end_only_sandbox(stage, worker)
    await refused(worker, "still being saved")
    await stage.clock.advance(2 * HOUR)
    await refused(worker, "as they were last saved" if is_saved else "before its files were saved")
    names = [entry.path for entry in await (await soon(worker)).files.list("")]
    assert names == (["file"] if is_saved else [])


@pytest.mark.parametrize(("call", "status"), NEVER)
async def test_a_thread_whose_exit_snapshot_never_comes_is_deleted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, call: str, status: Status | None
) -> None:
    monkeypatch.setattr(snapshots, "END_SECONDS_MAX", 0.1)
    worker = stage.worker(start_seconds=2)
    await soon(worker)
    await stage.save(worker)
    never_give_files(stage, call, status)
    await end_only_sandbox(stage, worker)
    with pytest.raises(SandboxUnavailable):
        await worker.destroy("thread")
    await stage.clock.advance(2 * HOUR)
    await worker.destroy("thread")
    assert stage.snapshots == []
    assert await stage.records.find("modal", "thread") is None


async def test_a_forgotten_thread_leaves_nothing_of_one_that_still_starts(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox(b"private")
    await sandbox.close()
    stage.modal.world.pace = Pace(start_seconds=(60, 60), end_seconds=(0.5, 0.5), scale=1)
    await refused(stage.worker(start_seconds=1), "still starting", fence=2)
    await worker.destroy("thread")
    assert (stage.living, stage.snapshots, stage.exit_snapshots) == ([], [], [])


async def test_files_of_a_thread_that_is_forgotten_while_it_opens_are_not_kept(stage: Stage) -> None:
    worker, sandbox = await stage.open_sandbox(b"private")
    await sandbox.close()
    replaced = stage.records.replace

    async def forgotten(record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        stage.records.replace = replaced
        await stage.records.remove("modal", "thread")
        return await replaced(record, expected=expected)

    stage.records.replace = forgotten
    with pytest.raises(SandboxUnavailable, match="deleted"):
        await worker.open("thread", fence=2)
    await worker.wait_for_saves()
    restored = list(stage.modal.world.sandboxes.values())[1]
    assert restored.exit_image_id
    assert restored.exit_image_id not in stage.exit_snapshots


@pytest.mark.parametrize(
    "error",
    [
        grpclib.GRPCError(Status.RESOURCE_EXHAUSTED, "workspace billing cycle spend limit reached"),
        modal.exception.InternalError("workspace billing cycle spend limit reached"),
        modal.exception.RemoteError("Workspace has reached its spend limit"),
    ],
)
def test_a_spend_limit_is_recognised_in_any_error(error: Exception) -> None:
    """Modal's users report it as a bare error of the transport."""
    public, hint = describe_sdk_error(error)
    assert "paused" in public
    assert "budget" in hint


@pytest.mark.parametrize("name", ["TOKEN_SECRET", "OAUTH_REFRESH_TOKEN", "OAUTH_CLIENT_SECRET", "OAUTH_JWT_KEY"])
def test_whatever_opens_the_account_is_kept_out_of_logs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MODAL_{name}", "of-a-test")
    assert "of-a-test" in ModalAccount("app").secrets
