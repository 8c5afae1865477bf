"""Attacks on the limits that the watchdog holds by counting: disk space and memory that no name shows.

Each attack runs in the background of a jail, in a session of its own, after the command that started it has ended.
"""

import asyncio
import mmap
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from core.domain.errors import SandboxUnavailable, ToolError
from core.ports import Sandbox
from core.tasks import spawn
from sandbox.limits import MEBIBYTE, SandboxLimits
from sandbox.local import process_table
from sandbox.local.jail import Jail
from sandbox.local.process_table import _add_mapped_files, _page_table_bytes
from sandbox.local.provider import LocalSandboxProvider
from tests.support.sandboxes import local_jails, pieces, run
from tests.support.waiting import until

LIMITS = SandboxLimits(memory_bytes=256 * MEBIBYTE, workspace_bytes=64 * MEBIBYTE)
WRITE = """
import os, time
file = os.open("{name}", os.O_RDWR | os.O_CREAT)
{before}
while True:
    os.write(file, bytes(1 << 20))
    time.sleep({pause})
"""
UNLINKED = WRITE.format(name="gone", before='os.unlink("gone")', pause=0.002)
NAMED = WRITE.format(name="kept", before="", pause=0.002)

MAPPED = """
import ctypes, os, time
library = ctypes.CDLL(None)
library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
while True:
    file = os.open("gone", os.O_RDWR | os.O_CREAT)
    os.unlink("gone")
    os.write(file, bytes(8 << 20))
    library.mmap(None, 8 << 20, 1, 1, file, 0)
    os.close(file)
    time.sleep(0.02)
"""
BEHIND_AN_ENDED_THREAD = f"""
import ctypes, threading
threading.Thread(target=exec, args=({UNLINKED!r}, {{}})).start()
ctypes.CDLL(None).syscall({60 if os.uname().machine == "x86_64" else 93}, 0)  # ends only this thread
"""


@pytest.fixture
async def jails() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails(LIMITS) as provider:
        yield provider


@dataclass(frozen=True)
class Attack:
    pid: int
    log: Path

    def has_ended(self) -> bool:
        return not Path(f"/proc/{self.pid}").exists()

    def was_refused(self) -> bool:
        return self.log.exists() and b"refused" in self.log.read_bytes()


async def start_in_background(jails: LocalSandboxProvider, code: str) -> Attack:
    sandbox = await jails.open("thread", fence=1)
    jail = next(one for one in jails._jails() if one.workspace_path.parent.name == "thread")
    await sandbox.files.write("attack.py", pieces(code.encode()))
    with suppress(SandboxUnavailable):  # the attack may be over before the answer
        await run(sandbox, "setsid nohup python3 -u attack.py > log 2>&1 & disown")
    return Attack(jail.pid, jail.workspace_path / "log")


async def expect_notice(jails: LocalSandboxProvider, sentence: str) -> None:
    """The next run is told once why the sandbox was stopped, and works again."""
    with pytest.raises(SandboxUnavailable, match=sentence):
        await jails.open("thread", fence=2)
    fresh = await jails.open("thread", fence=2)
    assert (await run(fresh, "echo on")).output == "on\n"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (UNLINKED, "deleted files"),
        (NAMED, "Delete what is not needed"),
        (MAPPED, "deleted files"),
        (BEHIND_AN_ENDED_THREAD, "deleted files"),
    ],
    ids=["deleted", "named", "mapped", "behind an ended thread"],
)
async def test_a_background_job_that_fills_the_disk_ends_with_its_jail(
    jails: LocalSandboxProvider, code: str, sentence: str
) -> None:
    attack = await start_in_background(jails, code)
    await until(attack.has_ended)
    await expect_notice(jails, sentence)


async def test_a_new_message_gives_no_new_time_to_a_jail_that_fills_the_disk(jails: LocalSandboxProvider) -> None:
    attack = await start_in_background(jails, UNLINKED)
    with pytest.raises(SandboxUnavailable, match="deleted files"):
        await send_messages(jails)
    await until(attack.has_ended)


async def send_messages(jails: LocalSandboxProvider) -> None:
    for fence in range(2, 200):
        await run(await jails.open("thread", fence=fence), "sleep 0.1")


async def test_a_jail_that_ends_while_a_run_opens_it_is_told_to_that_run(jails: LocalSandboxProvider) -> None:
    await jails.open("thread", fence=1)
    (jail,) = jails._jails()
    assert isinstance(jail, Jail)
    for process in psutil.Process(jail.pid).children(recursive=True):
        process.suspend()
    opening = spawn(jails.open("thread", fence=2), name="a later run")
    await until(lambda: jail.connection.is_busy)
    await jails._end_over_limit(jail, "The sandbox was stopped because of its files.")
    with pytest.raises(SandboxUnavailable, match="because of its files"):
        await opening
    assert (await run(await jails.open("thread", fence=2), "echo on")).output == "on\n"


async def test_a_workspace_above_its_limit_can_be_cleaned_up_but_not_filled(jails: LocalSandboxProvider) -> None:
    sandbox = await jails.open("thread", fence=1)
    folder = jails._jails()[0].workspace_path
    await sandbox.files.write("attack.py", pieces(NAMED.encode()))
    await sandbox.close()
    with (folder / "large").open("wb") as large:
        large.write(bytes(100 * MEBIBYTE))
    sandbox = await jails.open("thread", fence=1)
    with pytest.raises(ToolError, match="delete something first"):
        await write_often(sandbox)
    await run(sandbox, "setsid nohup python3 attack.py > log 2>&1 & disown")
    await until(lambda: not jails._jails())


async def write_often(sandbox: Sandbox) -> None:
    for _ in range(100):
        await sandbox.files.write("more", pieces(b"x"))
        await asyncio.sleep(0.1)


async def test_a_jail_that_nobody_can_talk_to_any_more_ends(jails: LocalSandboxProvider) -> None:
    attack = await start_in_background(jails, "import time; time.sleep(1000)")
    (jail,) = jails._jails()
    jail.connection.mark_lost("no answer")
    await until(attack.has_ended)


HOLD = """
import time
kept = []
try:
    while len(kept) < 400:
        kept.append(hold(1 << 20))
    print("held")
except OSError as error:
    print("refused", error)
while True: time.sleep(100)
"""
MEMORY_ATTACKS = {
    "heap": "def hold(size): return bytearray(size)",
    "anonymous files": """
import os
file = os.memfd_create("x")
def hold(size): return os.write(file, bytes(size))
""",
    "devices": """
def hold(size):
    with open("/dev/file", "ab") as file: return file.write(bytes(size))
""",
    "shared memory": """
import mmap
def hold(size):
    shared = mmap.mmap(-1, size)
    shared.write(bytes(size))
    return shared
""",
    "page tables": """
import ctypes
library = ctypes.CDLL(None)
library.mmap.restype = ctypes.c_void_p
library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def hold(size):
    reach = size << 9
    start = library.mmap(None, reach, 1, 0x4022, -1, 0)
    library.madvise(start, reach, 15)
    for place in range(start, start + reach, 2 << 20):
        ctypes.c_byte.from_address(place).value
""",
    "deleted files in memory": """
import os
files = [os.open(f"{folder}/gone", os.O_RDWR | os.O_CREAT) for folder in ("/tmp", "/dev/shm")]
for folder in ("/tmp", "/dev/shm"): os.unlink(f"{folder}/gone")
def hold(size): return [os.write(file, bytes(size)) for file in files]
""",
}


@pytest.mark.parametrize("name", MEMORY_ATTACKS)
async def test_without_a_control_group_a_jail_over_its_memory_limit_ends(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.local.provider.find_cgroups", lambda limits: None)
    async with local_jails(LIMITS) as jails:
        attack = await start_in_background(jails, MEMORY_ATTACKS[name] + HOLD)
        await until(lambda: attack.has_ended() or attack.was_refused())
        if attack.has_ended() and (jails._folder / "threads" / "thread" / "notice").exists():
            await expect_notice(jails, "of memory; 256 MB are allowed")


SIZE = 4 << 20


def map_deleted_file(path: Path) -> tuple[tuple[int, int], mmap.mmap]:
    with path.open("w+b") as file:
        file.write(b"x" * SIZE)
        file.flush()
        facts = os.fstat(file.fileno())
        mapped = mmap.mmap(file.fileno(), SIZE // 2, prot=mmap.PROT_READ)
    path.unlink()
    return (facts.st_dev, facts.st_ino), mapped


def test_a_deleted_file_that_is_only_mapped_counts_whole(tmp_path: Path) -> None:
    key, mapped = map_deleted_file(tmp_path / "gone")
    found: dict[tuple[int, int], int] = {}
    assert _add_mapped_files("/proc/self", found, 1 << 30) > 0
    assert found[key] >= SIZE
    mapped.close()
    found.clear()
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert key not in found


def test_without_the_right_to_follow_links_the_mapped_bytes_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, mapped = map_deleted_file(tmp_path / "gone")
    stat = os.stat

    def refusing(path: str) -> os.stat_result:
        if "map_files" in str(path):
            raise PermissionError
        return stat(path)

    monkeypatch.setattr(process_table.os, "stat", refusing)
    found: dict[tuple[int, int], int] = {}
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert found[key] == SIZE // 2
    found = {key: 7}  # counted before through a descriptor
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert found[key] == 7
    mapped.close()


def test_a_file_with_another_name_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "other").hardlink_to(tmp_path / "file")
    key, mapped = map_deleted_file(tmp_path / "file")
    found: dict[tuple[int, int], int] = {}
    _add_mapped_files("/proc/self", found, 1 << 30)
    assert key not in found
    mapped.close()


def test_the_lists_of_mappings_are_read_up_to_a_limit() -> None:
    assert 100 < _add_mapped_files("/proc/self", {}, 100) < 1000


def test_page_tables_count() -> None:
    before = _page_table_bytes("/proc/self")
    mapped = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(15)  # MADV_NOHUGEPAGE
    for place in range(0, 1 << 30, 2 << 20):
        mapped[place]
    assert _page_table_bytes("/proc/self") >= before + 400 * 4096
    mapped.close()
    assert _page_table_bytes("/proc/no") == 0
