"""Modal at its worst: every fault ends in a plain sentence, in time, and the next attempt works where it can."""

import asyncio
import logging
import time

import modal.exception
import pytest
from grpclib import Status

from core.domain.errors import SandboxUnavailable
from sandbox.modal import account
from sandbox.modal.account import describe_sdk_error, unavailable_from_sdk_error
from tests.support.modal_stage import INTERNAL_FAILURE, Stage, refused, soon
from tests.support.modal_stage import stage as stage
from tests.support.sandboxes import pieces, run
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
