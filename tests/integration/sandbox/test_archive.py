"""The archive of a workspace: what comes back of it, what a link in it leads to, and what is told when it is harmed."""

import gzip
import io
import os
import tarfile

import pytest

from core.domain.errors import SandboxUnavailable
from sandbox.limits import SandboxLimits
from sandbox.local.workspaces import ARCHIVE
from tests.integration.sandbox.controlled_clock import a_day
from tests.support.sandboxes import content, pieces, run


async def test_it_is_archived_after_two_hours_and_comes_back_as_it_was() -> None:
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        made = await run(sandbox, MAKE)
        assert made.exit_code == 0, made.output
        before = await run(sandbox, DESCRIBE)
        await day.passes(16)
        assert not day.is_archived
        await day.passes(105)
        assert day.is_archived
        assert (day.home / ARCHIVE).stat().st_mode & 0o777 == 0o600
        again = await day.jails.open("thread", fence=2)
        after = await run(again, DESCRIBE)
        assert after.output == before.output
        assert not (day.home / ARCHIVE).exists()
        assert (await run(again, "echo more >> file && cat file")).output == "one\nmore\n"
        if os.geteuid() == 0:
            assert (day.home / "workspace").stat().st_uid != 0


MAKE = r"""
mkdir -p a/b 'with space' empty && echo one > file && ln file a/hard && ln -s ../file a/b/soft && ln -s /etc/passwd out
ln -s missing dangling; printf x > $'odd\377name'; printf '#!/bin/sh\n' > run.sh; chmod 751 run.sh; chmod 000 a/hard
mkdir closed; echo secret > closed/in; chmod 000 closed; touch -d '2001-02-03 04:05:06' a/b; truncate -s 1G holes
printf middle | dd of=holes bs=1 seek=500000000 conv=notrunc status=none; mkfifo pipe
python3 -c 'import os; p = "deep/" * 300; os.makedirs(p); open(p + "n" * 200, "w").close()'
chmod 644 a/hard
"""
DESCRIBE = r"""
chmod 700 closed; cat closed/in; chmod 000 closed
find . -name pipe -prune -o -name closed -prune -o \( -type f -o -type l \) -printf '%p %y %m %n %s %l %T@\n' \
 | sed 's/\.[0-9]*$//' | sort
stat -c '%a %Y' a/b closed empty; md5sum holes; test $(stat -c %b holes) -lt 1000 && echo sparse
test file -ef a/hard && echo linked
"""


async def test_links_are_neither_followed_on_the_way_in_nor_out() -> None:
    async with a_day() as day:
        precious = day.folder / "precious"
        precious.mkdir()
        (precious / "file").write_text("precious")
        sandbox = await day.jails.open("thread", fence=1)
        await run(sandbox, f"ln -s {precious} folder; ln -s {precious}/file file; ln -s / root; ln -s /workspace self")
        await day.passes(500)
        await day.passes(1)
        assert day.is_archived
        assert b"precious\0" not in (day.home / ARCHIVE).read_bytes()
        again = await day.jails.open("thread", fence=2)
        shown = (await run(again, "readlink folder file root self")).output.split()
        assert shown == [str(precious), f"{precious}/file", "/", "/workspace"]
        assert (precious / "file").read_text() == "precious"


@pytest.mark.parametrize("leaves", [["workspace", ARCHIVE], [ARCHIVE, "workspace.gone"], [ARCHIVE, "workspace.new"]])
async def test_cut_off_anywhere_nothing_is_lost(leaves: list[str]) -> None:
    """As a crash leaves the folder: the whole workspace beside the archive, or what is half removed or half made."""
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"whole"))
        await sandbox.close()
        if "workspace" in leaves:
            (day.home / ARCHIVE).write_bytes(b"half")
        else:
            await day.passes(500)
            (day.home / leaves[1]).mkdir()
            (day.home / leaves[1] / "file").write_bytes(b"half")
        assert await content(await day.jails.open("thread", fence=2), "file") == b"whole"
        await day.passes(16)
        await day.passes(500)
        assert day.is_archived


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "no archive at all"])
async def test_an_archive_that_is_not_whole_is_told_once(harm: str) -> None:
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(os.urandom(300_000)))
        await sandbox.close()
        await day.passes(500)
        archive = day.home / ARCHIVE
        whole = archive.read_bytes()
        flipped = whole[:150_000] + bytes([whole[150_000] ^ 255]) + whole[150_001:]
        archive.write_bytes({"cut": whole[:-1000], "flipped": flipped, "empty": b""}.get(harm, b"x" * 5000))
        reader = await day.jails.open("thread", fence=0)
        assert await reader.files.list("") == ()
        with pytest.raises(SandboxUnavailable, match="could not be read"):
            await day.jails.open("thread", fence=2)
        fresh = await day.jails.open("thread", fence=2)
        assert (await run(fresh, "echo on")).output == "on\n"
        assert list(day.home.glob("*.broken"))


async def test_an_archive_that_leads_out_is_not_believed() -> None:
    async with a_day() as day:
        await (await day.jails.open("thread", fence=1)).close()
        await day.passes(500)
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            entry = tarfile.TarInfo("../escaped")
            tar.addfile(entry)
        (day.home / ARCHIVE).write_bytes(gzip.compress(made.getvalue()))
        with pytest.raises(SandboxUnavailable, match="could not be read"):
            await day.jails.open("thread", fence=2)
        assert not (day.home / "escaped").exists()


async def test_a_disk_that_is_full_keeps_the_archive_for_later() -> None:
    async with a_day(SandboxLimits(workspace_bytes=1_000_000)) as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"x" * 3_000_000))
        await sandbox.close()
        day.jails._limits = SandboxLimits()
        await day.passes(500)
        assert day.is_archived
        day.jails._limits = SandboxLimits(workspace_bytes=1_000_000)
        with pytest.raises(SandboxUnavailable, match="cannot be restored right now"):
            await day.jails.open("thread", fence=2)
        assert day.is_archived
        day.jails._limits = SandboxLimits()
        assert len(await content(await day.jails.open("thread", fence=2), "file")) == 3_000_000


async def test_what_cannot_be_packed_stays_and_is_not_tried_for_ever() -> None:
    async with a_day(SandboxLimits(workspace_bytes=100_000)) as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(os.urandom(900_000)))
        await sandbox.close()
        await day.passes(500)
        assert day.jails.lifecycle._failed_at == {"thread": 1_000_000_000}
        assert sorted(path.name for path in day.home.iterdir() if path.is_dir()) == ["workspace"]
        assert day.jails.lifecycle._due_thread_ids() == []
        assert len(await content(await day.jails.open("thread", fence=2), "file")) == 900_000
