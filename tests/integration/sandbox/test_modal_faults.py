"""Modal at its worst: every fault ends in a plain sentence, in time, and the next attempt works where it can."""

import asyncio
import logging
import random
import time

import modal.exception
import pytest
from grpclib import Status
from modal_proto import api_pb2

from core.domain.errors import SandboxUnavailable
from core.ports import Sandbox
from sandbox.modal import account, snapshots
from sandbox.modal.account import describe_sdk_error, unavailable_from_sdk_error
from sandbox.modal.config import sandbox_name
from sandbox.modal.provider import ModalSandboxProvider
from sandbox.modal.snapshots import LOOKUPS
from simulator.modal.world import Pace
from tests.support.modal_stage import INTERNAL_FAILURE, OUT_OF_MEMORY, Stage, modal_stage, refused, soon
from tests.support.modal_stage import stage as stage
from tests.support.sandboxes import content, pieces, run
from tests.support.waiting import until

JARGON = ("modal", "token", "grpc", "rpc", "quota", "Traceback", "image", "http")


def is_plain(sentence: str) -> bool:
    return sentence.endswith(".") and not any(word in sentence.lower() for word in JARGON)


async def test_passing_faults_are_not_seen(stage: Stage) -> None:
    for call in ("AppGetOrCreate", "AuthTokenGet", "SandboxCreateV2", "TaskExecStart"):
        stage.modal.faults.arm(call, Status.UNAVAILABLE, times=2)
    sandbox = await stage.worker().open("thread", fence=1)
    stage.modal.faults.arm("TaskExecStdinWrite", Status.UNAVAILABLE, times=2)
    assert (await run(sandbox, "echo on")).output == "on\n"


async def test_a_stream_that_is_cut_goes_on_where_it_was(stage: Stage) -> None:
    sandbox = await stage.worker().open("thread", fence=1)
    stage.modal.faults.arm("TaskExecStdinWrite", Status.INTERNAL, times=1, is_done=True)
    assert (await run(sandbox, "echo once >>file; cat file")).output == "once\n"


@pytest.mark.parametrize(
    ("status", "public", "operator"),
    [
        (Status.RESOURCE_EXHAUSTED, "no capacity", "limit of the Modal workspace"),
        (Status.UNAUTHENTICATED, "not set up correctly", "MODAL_TOKEN_ID"),
        (Status.PERMISSION_DENIED, "not set up correctly", "rights"),
        (Status.INVALID_ARGUMENT, "cannot be created", "THREADHAND_MODAL"),
        (Status.NOT_FOUND, "ended just now", "no longer has"),
        (Status.FAILED_PRECONDITION, "ended just now", "no longer has"),
        (Status.UNAVAILABLE, "does not answer", "error"),
        (Status.INTERNAL, "does not answer", "error"),
    ],
)
async def test_a_refusal_is_told_to_people_plainly_and_to_the_operator_with_facts(
    stage: Stage, caplog: pytest.LogCaptureFixture, status: Status, public: str, operator: str
) -> None:
    worker = stage.worker()
    stage.modal.faults.arm("SandboxCreateV2", status, "the facts", times=20)
    with caplog.at_level(logging.ERROR), pytest.raises(SandboxUnavailable) as caught:
        await worker.open("thread", fence=1)
    assert public in str(caught.value)
    assert is_plain(str(caught.value))
    assert operator in caught.value.detail
    assert "the facts" in caught.value.detail
    must_act = status.name in ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT")
    assert any(operator in record.getMessage() for record in caplog.records) == must_act
    stage.modal.faults.armed.clear()
    assert (await run(await worker.open("thread", fence=1), "echo on")).output == "on\n"


async def test_an_image_that_cannot_be_built_is_not_built_again_at_once(stage: Stage) -> None:
    worker = stage.worker()
    stage.modal.world.failing_builds = 7
    for build, pause_seconds in enumerate((30, 60, 120, 240, 480, 600, 600), start=1):
        for _ in range(2):
            with pytest.raises(SandboxUnavailable) as caught:
                await worker.open("thread", fence=1)
            assert "build's log" in caught.value.detail
        assert stage.modal.calls.count("ImageJoinStreaming") == build
        left_seconds = worker._account._build_again_at - time.monotonic()
        assert pause_seconds - 30 < left_seconds <= pause_seconds
        worker._account._build_again_at = 0.0
    await worker.open("thread", fence=1)


async def test_a_wrong_token_is_told_at_the_probe(stage: Stage) -> None:
    stage.modal.world.credentials = ("ak-other", "as-other")
    result = await stage.worker().probe()
    assert not result.ok
    assert "MODAL_TOKEN_ID" in result.reason
    assert "as-simulated" not in result.reason + result.remedy


async def test_a_silent_modal_is_given_up_in_time(stage: Stage) -> None:
    worker = stage.worker(start_seconds=1)
    await soon(worker, "another")  # the image is there now
    stage.modal.faults.arm("SandboxCreateV2", seconds=60)
    started = time.monotonic()
    with pytest.raises(SandboxUnavailable, match="does not answer"):
        await worker.open("thread", fence=1)
    assert time.monotonic() - started < 30
    assert (await run(await soon(worker), "echo on")).output == "on\n"


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_a_sandbox_that_ends_in_a_command_is_told_once_and_replaced(stage: Stage, has_snapshot: bool) -> None:
    worker, sandbox = await stage.open_sandbox(b"kept")
    if has_snapshot:
        await stage.save(worker)
    waiting = asyncio.ensure_future(run(sandbox, "sleep 1000", seconds=100))
    await until(lambda: sandbox.shell.sessions())
    await stage.end_sandbox(INTERNAL_FAILURE, waits_for_end=False)
    with pytest.raises(SandboxUnavailable, match="stopped working"):
        await waiting
    expected = "as they were last saved" if has_snapshot else "before its files were saved"
    with pytest.raises(SandboxUnavailable, match=expected) as caught:
        await worker.open("thread", fence=1)
    assert is_plain(str(caught.value))
    fresh = await worker.open("thread", fence=1)
    names = [entry.path for entry in await fresh.files.list("")]
    assert names == (["file"] if has_snapshot else [])


async def test_an_expired_snapshot_is_told_once_and_begins_afresh(stage: Stage) -> None:
    worker = stage.worker(snapshot_days=1)
    await (await worker.open("thread", fence=1)).files.write("file", pieces(b"gone"))
    await stage.clock.advance(3600)
    await worker.background_jobs.run_once()
    await stage.clock.advance(2 * 86_400)
    assert await (await worker.open("thread", fence=0)).files.list("") == ()
    with pytest.raises(SandboxUnavailable, match="have expired"):
        await worker.open("thread", fence=1)  # a reader's look did not swallow it
    assert await (await worker.open("thread", fence=1)).files.list("") == ()


async def test_the_old_snapshot_outlives_a_failed_new_one(stage: Stage) -> None:
    worker = stage.worker()
    await (await worker.open("thread", fence=1)).close()
    (before,) = stage.snapshots
    await worker.open("thread", fence=2)
    stage.modal.faults.arm("TaskSnapshotFilesystem", Status.RESOURCE_EXHAUSTED, times=1)
    await stage.save(worker)
    assert stage.snapshots == [before]
    assert (await stage.record()).snapshot_ref == before


async def test_a_sandbox_without_python_is_told_and_not_kept(stage: Stage) -> None:
    worker = stage.worker()
    stage.modal.faults.arm("TaskExecStart", Status.INVALID_ARGUMENT, "python3: not found", times=1)
    with pytest.raises(SandboxUnavailable):
        await worker.open("thread", fence=1)
    assert (await run(await worker.open("thread", fence=1), "echo on")).output == "on\n"


def test_every_error_of_the_sdk_has_a_plain_sentence() -> None:
    kinds = [
        kind
        for kind in vars(modal.exception).values()
        if isinstance(kind, type) and issubclass(kind, modal.exception.Error)
    ]
    assert len(kinds) > 20
    for kind in (*kinds, *account.SDK_ERRORS):
        error = kind.__new__(kind)
        public, hint = describe_sdk_error(error)
        assert is_plain(public), kind
        assert hint
        assert kind.__name__ in unavailable_from_sdk_error(error, doing="x").detail or error.args or str(error)


async def test_an_image_that_takes_long_is_told_as_that(stage: Stage) -> None:
    worker = stage.worker(start_seconds=1)
    await worker.probe()  # the way to Modal is open now
    stage.modal.faults.arm("ImageJoinStreaming", seconds=3)
    await refused(worker, "image that sandboxes start from")
    await soon(worker)
    assert stage.modal.calls.count("ImageJoinStreaming") == len(
        [one for one in stage.modal.world.images.values() if not one.folder]
    )


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
