"""The folder in which uploads wait."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.web import upload_spool
from bots.web.upload_spool import UploadSource
from core.domain.errors import RunError
from core.domain.ids import new_id
from core.domain.threads import IncomingFile
from core.failpoints import FailpointHit, arm
from core.tasks import cancel, spawn
from tests.support.waiting import until
from tests.support.web_stage import staged


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read(folder: Path, file_ref: str, *, bytes_max: int = 100) -> bytes:
    file = IncomingFile(file_ref=file_ref, name="a.txt")
    return b"".join([p async for p in UploadSource(folder).open(file, bytes_max=bytes_max)])


async def test_what_is_stored_can_be_read_more_than_once(tmp_path: Path) -> None:
    file_ref, size = await upload_spool.store_upload(tmp_path / "u", pieces(b"ab", b"c"), bytes_max=3)
    assert size == 3
    assert await read(tmp_path / "u", file_ref) == b"abc"
    assert await read(tmp_path / "u", file_ref) == b"abc"
    (kept,) = (tmp_path / "u").iterdir()
    assert kept.stat().st_mode & 0o077 == 0


async def test_a_broken_store_leaves_no_half_file(tmp_path: Path) -> None:
    arm("web.spool.before:raise")
    try:
        with pytest.raises(FailpointHit):
            await upload_spool.store_upload(tmp_path, pieces(b"a"), bytes_max=3)
    finally:
        arm("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "file_ref",
    ["", "spool:", "spool:../../etc/passwd", "slack:x", "other:01a1fc67-4fe4-771b-bfd6-5dbca28ae52c", "spool:a/b"],
)
async def test_a_reference_of_others_opens_nothing(tmp_path: Path, file_ref: str) -> None:
    with pytest.raises(RunError, match="cannot be opened"):
        await read(tmp_path, file_ref)


async def stale(folder: Path) -> None:
    """An upload that nobody can want any more."""
    file_ref, _ = await upload_spool.store_upload(folder, pieces(b"old"), bytes_max=10)
    week_ago = time.time() - upload_spool.RETENTION_SECONDS - 60
    os.utime(folder / file_ref.removeprefix("spool:"), (week_ago, week_ago))


async def until_empty(folder: Path) -> None:
    await until(lambda: not list(folder.iterdir()))


async def test_old_uploads_are_swept_and_new_ones_stay(tmp_path: Path) -> None:
    assert upload_spool.delete_old_uploads(tmp_path / "missing") == 0
    old, _ = await upload_spool.store_upload(tmp_path, pieces(b"old"), bytes_max=10)
    new, _ = await upload_spool.store_upload(tmp_path, pieces(b"new"), bytes_max=10)
    week_ago = time.time() - upload_spool.RETENTION_SECONDS - 60
    os.utime(tmp_path / old.removeprefix("spool:"), (week_ago, week_ago))
    assert upload_spool.delete_old_uploads(tmp_path) == 1
    assert await read(tmp_path, new) == b"new"
    upload_spool.discard_upload(tmp_path, new)
    assert list(tmp_path.iterdir()) == []


async def test_the_program_sweeps_uploads(tmp_path: Path) -> None:
    await stale(tmp_path / "uploads")
    async with staged(tmp_path):
        await until_empty(tmp_path / "uploads")


async def test_a_file_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="send it again"):
        await read(tmp_path, f"spool:{new_id()}")


async def test_a_file_over_the_readers_limit_is_refused(tmp_path: Path) -> None:
    file_ref, _ = await upload_spool.store_upload(tmp_path, pieces(b"abcd"), bytes_max=10)
    with pytest.raises(RunError, match="too large"):
        await read(tmp_path, file_ref, bytes_max=3)


async def test_uploads_that_grow_old_while_the_program_runs_are_swept(tmp_path: Path) -> None:
    await stale(tmp_path)
    sweeping = spawn(upload_spool.delete_old_uploads_periodically(tmp_path, interval_seconds=0.01), name="sweeper")
    try:
        await until_empty(tmp_path)
        await stale(tmp_path)
        await until_empty(tmp_path)
    finally:
        await cancel(sweeping)
