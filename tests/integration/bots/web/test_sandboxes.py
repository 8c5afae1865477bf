"""Files over HTTP: those of a sandbox, and the folder in which uploads wait."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.web import upload_spool
from bots.web.errors import ApiError
from bots.web.links import SignedLinks, load_link_secret, verify_file_link
from bots.web.sandbox_files import attachment_header, parse_workspace_path
from bots.web.upload_spool import UploadSource
from core.domain.errors import RunError, SandboxUnavailable, ToolError
from core.domain.ids import new_id
from core.domain.threads import IncomingFile, Lease
from core.failpoints import FailpointHit
from core.tasks import cancel, spawn
from tests.support.failpoints import armed
from tests.support.sandboxes import pieces
from tests.support.waiting import until
from tests.support.web_stage import Stage, staged


async def with_files(stage: Stage, contents: dict[str, bytes]) -> tuple[Lease, str]:
    lease = await stage.begun()
    await stage.give_sandbox(lease, **contents)
    shown = await stage.json("GET", f"/api/thread/{lease.thread_id}")
    return lease, f"/api/sandboxes/{shown['sandbox_id']}/files"


async def test_a_folder_is_listed(stage: Stage) -> None:
    _, path = await with_files(stage, {"a.txt": b"abc", "out/b.csv": b""})
    assert (await stage.json("GET", path))["files"] == [
        {"name": "a.txt", "path": "a.txt", "kind": "file", "size_bytes": 3, "modified_at": 1.5},
        {"name": "b.csv", "path": "out/b.csv", "kind": "file", "size_bytes": 0, "modified_at": 1.5},
    ]
    listed = await stage.json("GET", path, params={"path": "/workspace/out"})
    assert (listed["path"], len(listed["files"])) == ("out", 1)


async def test_a_file_is_downloaded_and_never_shown(stage: Stage) -> None:
    content = bytes(range(256)) * 40
    _, path = await with_files(stage, {"page.html": content})
    async with stage.http.get(f"{path}/content", params={"path": "page.html"}) as response:
        assert await response.read() == content
        assert response.content_length == len(content)
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Content-Disposition"].startswith('attachment; filename="page.html"')


async def test_looking_at_files_outranks_no_run(stage: Stage) -> None:
    lease, path = await with_files(stage, {"a": b"x"})
    await stage.json("GET", path)
    assert stage.sandboxes.opened == [(lease.thread_id, 0)]


@pytest.mark.parametrize("error", [ToolError("gone"), SandboxUnavailable("lost"), RuntimeError("a bug")])
async def test_nothing_is_written_into_a_download_that_breaks(stage: Stage, error: Exception) -> None:
    """What was announced would else be filled up with the error, and the rest of it taken for the next answer."""
    _, path = await with_files(stage, {"a": b"x" * 5100})
    stage.sandboxes.breaks_with = error
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.http._base_url.port)
    writer.write(f"GET {path}/content?path=a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    sent = b""
    try:
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                while piece := await reader.read(10_000):
                    sent += piece
    finally:
        writer.transport.abort()
    assert sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert set(sent.partition(b"\r\n\r\n")[2]) <= set(b"x")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "bad_path"),
        ("../../etc/passwd", 400, "bad_path"),
        ("/etc/passwd", 400, "bad_path"),
        ("a/../../b", 400, "bad_path"),
        ("a\x00b", 400, "bad_path"),
        ("x" * 5000, 400, "bad_path"),
        ("missing", 404, "file_not_found"),
        ("out", 400, "not_a_file"),
    ],
)
async def test_a_bad_path_is_refused(stage: Stage, query: str, status: int, code: str) -> None:
    _, path = await with_files(stage, {"out/a": b"", "out/b": b""})
    answer = await stage.json("GET", f"{path}/content", params={"path": query}, status=status)
    assert answer["error"] == code


class LostSandboxes:
    name = "lost"

    async def open(self, thread_id: str, *, fence: int) -> Any:
        raise SandboxUnavailable("No sandbox can be had now.", detail=f"{thread_id} {fence}")


async def test_a_sandbox_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    async with staged(tmp_path, sandboxes=LostSandboxes()) as stage:
        _, path = await with_files(stage, {})
        assert await stage.json("GET", path, status=503) == {
            "error": "sandbox_unavailable",
            "message": "No sandbox can be had now.",
        }


async def test_a_signed_link_needs_no_token(tmp_path: Path) -> None:
    async with staged(tmp_path, api_token="t") as stage:
        stage.http.headers["Authorization"] = "Bearer t"
        lease, _ = await with_files(stage, {"big.bin": b"12345"})
        del stage.http.headers["Authorization"]
        url = str(SignedLinks(stage.ports.links.secret, "https://agent.example/").file_url(lease.thread_id, "big.bin"))
        assert url.startswith("https://agent.example/files/")
        async with stage.http.get(url.removeprefix("https://agent.example")) as response:
            assert await response.read() == b"12345"


SECRET = b"k" * 32


@pytest.mark.parametrize("token", ["", "x", "a.b", "%%%.%%%", "é.é", "W10.W10"])
async def test_a_forged_link_is_unknown(token: str) -> None:
    with pytest.raises(ApiError, match="not one of ours"):
        verify_file_link(SECRET, token)


@given(st.text(), st.integers(0, 10_000), st.data())
def test_a_link_opens_as_signed_and_no_changed_one_does(path: str, late: int, data: Any) -> None:
    token = str(SignedLinks(SECRET, "/").file_url("s", path, expires_at=1000)).removeprefix("/files/")
    if late <= 1000:
        assert verify_file_link(SECRET, token, now=late) == ("s", path)
    else:
        with pytest.raises(ApiError, match="expired"):
            verify_file_link(SECRET, token, now=late)
    at = data.draw(st.integers(0, token.index(".") - 1))
    changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
    with pytest.raises(ApiError, match="not one of ours"):
        verify_file_link(SECRET, changed, now=0)


def test_the_secret_is_made_once_and_kept_private(tmp_path: Path) -> None:
    first = load_link_secret(tmp_path)
    assert load_link_secret(tmp_path) == first
    assert len(first) == 32
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o077 == 0


@given(st.text(max_size=60))
def test_no_path_leads_out(path: str) -> None:
    try:
        inside = parse_workspace_path(path)
    except ApiError:
        return
    assert not inside.startswith("/")
    assert ".." not in inside.split("/")
    assert parse_workspace_path(inside) == inside


@given(st.text(max_size=80))
def test_no_name_breaks_the_header(name: str) -> None:
    header = attachment_header(name)
    assert header.isascii()
    assert not {"\r", "\n"} & set(header)
    assert header.count('"') == 2


async def test_a_file_that_shrinks_breaks_the_download(stage: Stage) -> None:
    _, path = await with_files(stage, {"a": b"x" * 5000})
    stage.sandboxes.lies_by = 10
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stage.http.get(f"{path}/content", params={"path": "a"}) as response:
            await response.read()


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
    with armed("web.spool.before:raise"), pytest.raises(FailpointHit):
        await upload_spool.store_upload(tmp_path, pieces(b"a"), bytes_max=3)
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


async def test_old_uploads_are_swept_and_new_ones_stay(tmp_path: Path) -> None:
    assert upload_spool.delete_old_uploads(tmp_path / "missing") == 0
    await stale(tmp_path)
    new, _ = await upload_spool.store_upload(tmp_path, pieces(b"new"), bytes_max=10)
    assert upload_spool.delete_old_uploads(tmp_path) == 1
    assert await read(tmp_path, new) == b"new"
    upload_spool.discard_upload(tmp_path, new)
    assert list(tmp_path.iterdir()) == []


async def test_the_program_sweeps_uploads(tmp_path: Path) -> None:
    await stale(tmp_path / "uploads")
    async with staged(tmp_path):
        await until(lambda: not list((tmp_path / "uploads").iterdir()))


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
        await until(lambda: not list(tmp_path.iterdir()))
        await stale(tmp_path)
        await until(lambda: not list(tmp_path.iterdir()))
    finally:
        await cancel(sweeping)
