"""What the files of every real provider bear: links, odd names, large files, many of them, failures."""

import asyncio
import resource
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

from core.domain.errors import FileChanged, FileMissing, ToolError
from core.ports import NO_FILE, Sandbox, file_version
from tests.support.sandboxes import content, pieces, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEBIBYTE = 1 << 20


async def zeros(mebibytes: int) -> AsyncIterator[bytes]:
    piece = bytes(MEBIBYTE)
    for _ in range(mebibytes):
        yield piece


@pytest.mark.parametrize("target", ["/etc", "/", "../..", "/proc/self/root/etc", "/workspace/../etc", "/workspacex"])
async def test_a_link_that_leads_out_is_not_followed(sandbox: Sandbox, target: str) -> None:
    await run(sandbox, f"ln -s {target} evil; ln -s evil chain; ln -s {target}/passwd file")
    for path in ("evil/passwd", "chain/passwd", "file", "evil"):
        with pytest.raises(ToolError, match=r"leads out of|no such file|folder"):
            await content(sandbox, path)
        with pytest.raises(ToolError, match=r"leads out of|no such file|folder"):
            await sandbox.files.write(path, pieces(b"x"))
    with pytest.raises(ToolError, match=r"leads out of|no such file"):
        await sandbox.files.list("evil")
    with pytest.raises(ToolError, match=r"leads out of|no such file"):
        await sandbox.files.delete("evil/passwd")


async def test_a_link_inside_is_followed_and_deleted_as_a_link(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir d e; echo 1 >d/f; ln -s d l; ln -s ../d/f e/up; ln -s $PWD/d abs")
    for path in ("l/f", "e/up", "abs/f"):
        assert await content(sandbox, path) == b"1\n"
    await sandbox.files.write("e/up", pieces(b"2"))
    assert await content(sandbox, "d/f") == b"2"
    kinds = {entry.path: entry.kind for entry in await sandbox.files.list("")}
    assert kinds == {"abs": "link", "d": "folder", "e": "folder", "l": "link"}
    await sandbox.files.delete("l")
    assert await content(sandbox, "d/f") == b"2"


async def test_a_write_that_expects_another_version_changes_nothing(sandbox: Sandbox) -> None:
    first = file_version(b"one")
    await sandbox.files.write("f", pieces(b"one"), expected=NO_FILE)
    for expected in (NO_FILE, file_version(b"two"), file_version(b"longer")):
        with pytest.raises(FileChanged):
            await sandbox.files.write("f", pieces(b"lost"), expected=expected)
    assert await content(sandbox, "f") == b"one"
    await run(sandbox, "printf two >f")
    with pytest.raises(FileChanged):
        await sandbox.files.write("f", pieces(b"lost"), expected=first)
    await sandbox.files.write("f", pieces(b"three"), expected=file_version(b"two"))
    await sandbox.files.delete("f")
    with pytest.raises(FileChanged):
        await sandbox.files.write("f", pieces(b"lost"), expected=file_version(b"three"))
    assert await sandbox.files.list("") == ()


@pytest.mark.parametrize(
    "name",
    ["with space", "tab\tand\nnewline", "漢字 🎉.txt", "\u202eright-to-left", "-rf", "~", "*", "a\\b", "x" * 255,
     ".hidden", "\x01\x1b[31m", "quote'\"", "%s", "a\\xff"],
)  # fmt: skip
async def test_an_odd_name_is_a_name(sandbox: Sandbox, name: str) -> None:
    await sandbox.files.write(f"folder/{name}", pieces(b"odd"))
    (entry,) = await sandbox.files.list("folder")
    assert entry.path == f"folder/{name}"
    assert await content(sandbox, entry.path) == b"odd"
    await sandbox.files.delete(entry.path)
    assert await sandbox.files.list("folder") == ()


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("cafe\u0301 d/re\u0301sume\u0301.txt", "café d/résumé.txt"),
        ("10.30\u202fAM.png", "10.30 AM.png"),
        ("two\u00a0words/a\u00a0b", "two words/a b"),
        ("résumé", "re\u0301sume\u0301"),
    ],
)
async def test_a_name_that_looks_the_same_is_found(sandbox: Sandbox, stored: str, asked: str) -> None:
    await sandbox.files.write(stored, pieces(b"one"))
    assert await content(sandbox, asked) == b"one"
    (entry,) = await sandbox.files.list(asked)
    assert entry.kind == "file"
    with pytest.raises(FileChanged):
        await sandbox.files.write(asked, pieces(b"new"), expected=NO_FILE)
    await sandbox.files.write(asked, pieces(b"two"), expected=file_version(b"one"))
    assert await content(sandbox, stored) == b"two"
    await sandbox.files.delete(asked)
    with pytest.raises(FileMissing):
        await content(sandbox, stored)


async def test_a_new_file_does_not_take_the_place_of_one_that_looks_the_same(sandbox: Sandbox) -> None:
    await sandbox.files.write("a\u00a0b", pieces(b"one"))
    await sandbox.files.write("a b", pieces(b"two"))
    assert await content(sandbox, "a\u00a0b") == b"one"
    assert await content(sandbox, "a b") == b"two"


async def test_of_several_names_that_look_the_same_none_is_meant(sandbox: Sandbox) -> None:
    for name in ("a\u00a0b", "a\u202fb"):
        await sandbox.files.write(name, pieces(b"x"))
    for path in ("a b", "no/folder"):
        with pytest.raises(FileMissing):
            await content(sandbox, path)
        with pytest.raises(FileMissing):
            await sandbox.files.delete(path)


async def test_a_name_that_is_no_utf8_can_be_listed_and_read(sandbox: Sandbox) -> None:
    await run(sandbox, "printf odd > $'caf\\xe9.txt'")
    (entry,) = await sandbox.files.list("")
    assert entry.path == "caf\\xe9.txt"
    (alone,) = await sandbox.files.list(entry.path)
    assert (alone.path, alone.kind) == (entry.path, "file")
    assert await content(sandbox, entry.path) == b"odd"
    await sandbox.files.delete(entry.path)
    assert await sandbox.files.list("") == ()


async def test_names_that_cannot_be_are_told(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="too long"):
        await sandbox.files.write("x" * 300, pieces(b""))
    with pytest.raises(ToolError, match="NUL"):
        await sandbox.files.write("a\0b", pieces(b""))
    with pytest.raises(ToolError, match="too long"):
        await content(sandbox, "a/" * 3000)
    await sandbox.files.write("file", pieces(b""))
    with pytest.raises(ToolError, match="is a file, not a folder"):
        await sandbox.files.write("file/below", pieces(b""))


async def test_a_large_file_streams_in_little_memory(sandbox: Sandbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await sandbox.files.write("large", zeros(120)) == 120 * MEBIBYTE
    read = 0
    async for piece in sandbox.files.read("large"):
        read += len(piece)
    assert read == 120 * MEBIBYTE
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40 * 1024, f"{grown} KiB"


async def test_commands_overtake_bulk_data(sandbox: Sandbox) -> None:
    await sandbox.files.write("large", zeros(100))
    copying = asyncio.ensure_future(content(sandbox, "large"))
    ended = 0
    while not copying.done():
        await run(sandbox, "true")
        ended += not copying.done()
    assert len(await copying) == 100 * MEBIBYTE
    assert ended > 2  # behind the data the first of them would have ended with it


async def test_a_reader_that_stops_early_leaves_the_sandbox_usable(sandbox: Sandbox) -> None:
    await sandbox.files.write("large", zeros(20))
    for _ in range(50):
        async with aclosing(cast("AsyncGenerator[bytes]", sandbox.files.read("large"))) as stream:
            await anext(stream)
    assert (await run(sandbox, "true")).exit_code == 0


async def test_a_half_written_file_is_never_seen(sandbox: Sandbox) -> None:
    await sandbox.files.write("file", pieces(b"old"))
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"new"
        await gate.wait()
        yield b"er"

    writing = asyncio.ensure_future(sandbox.files.write("file", slow()))
    while ".threadhand-" not in (await run(sandbox, "ls -A")).output:
        await asyncio.sleep(0.01)
    assert await content(sandbox, "file") == b"old"
    assert [entry.path for entry in await sandbox.files.list("")] == ["file"]
    gate.set()
    assert await writing == 5
    assert await content(sandbox, "file") == b"newer"


async def test_an_abandoned_write_leaves_nothing(sandbox: Sandbox) -> None:
    await sandbox.files.write("file", pieces(b"old"))

    async def failing() -> AsyncIterator[bytes]:
        yield b"new"
        raise ConnectionError("the download broke")

    with pytest.raises(ConnectionError):
        await sandbox.files.write("file", failing())
    assert await content(sandbox, "file") == b"old"
    assert (await run(sandbox, "ls -A")).output == "file\n"


async def test_a_file_over_its_limit_is_told_and_not_kept(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="exceeds the size limit for files"):
        await sandbox.files.write("huge", zeros(320))
    assert (await run(sandbox, "ls -A")).output == ""


async def test_what_is_no_ordinary_file_is_told(sandbox: Sandbox) -> None:
    await run(sandbox, "mkfifo pipe; mkdir folder")
    with pytest.raises(ToolError, match="not an ordinary file"):
        await content(sandbox, "pipe")
    with pytest.raises(ToolError, match="folder") as error:
        await content(sandbox, "folder")
    assert not isinstance(error.value, FileMissing)
    with pytest.raises(ToolError, match="cannot be deleted"):
        await sandbox.files.delete("")
    assert {entry.kind for entry in await sandbox.files.list("")} == {"folder", "other"}


async def test_a_mode_is_kept_without_special_bits(sandbox: Sandbox) -> None:
    await sandbox.files.write("run.sh", pieces(b"echo ran"), mode=0o6755)
    assert (await run(sandbox, "stat -c %a run.sh; ./run.sh")).output == "755\nran\n"


async def test_a_mode_can_be_left_as_it_is(sandbox: Sandbox) -> None:
    await sandbox.files.write("a", pieces(b"1"), mode=0o750)
    await sandbox.files.write("a", pieces(b"2"), mode=None)
    await sandbox.files.write("b", pieces(b"3"), mode=None)
    assert (await run(sandbox, "stat -c %a a b")).output == "750\n644\n"


async def test_deep_and_locked_folders_are_deleted(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir -p a/b/c; touch a/b/c/f; chmod 000 a/b/c a/b")
    await sandbox.files.delete("a")
    deep = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(2000)]"
    assert (await run(sandbox, f'python3 -c "{deep}"')).exit_code == 0
    await sandbox.files.delete("d")
    assert await sandbox.files.list("") == ()


async def test_a_folder_with_too_many_entries_is_told(sandbox: Sandbox) -> None:
    await run(sandbox, "mkdir many; cd many; seq 10500 | xargs touch")
    with pytest.raises(ToolError, match="10500 entries"):
        await sandbox.files.list("many")
    await sandbox.files.delete("many")
