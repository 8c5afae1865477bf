"""Folders that are made to be hard to measure and to delete: deep, unreadable, moved during the walk."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from sandbox.client.connection import Connection
from sandbox.limits import MEBIBYTE, SandboxLimits
from sandbox.local import folder_trees
from sandbox.local.folder_trees import HELD_LEVELS, FolderSize, delete_folder, measure_folder
from sandbox.local.process_table import MAPS_BYTES_MAX, JailUsage
from sandbox.local.watchdog import MonitoredJail, Watchdog
from tests.fakes.busy_threads import busy_threads
from tests.support.sandboxes import reachable_folder

DEPTH = 3000  # more than Python's calls, open files and the length of a path allow


def make_deep(folder: Path, depth: int = DEPTH, *, name: str = "a folder", size: int = 0) -> None:
    """Makes folders in each other, as a program does that changes into each of them."""
    current = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=current)
        inner = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=current)
    os.write(file, bytes(size))
    os.close(file)
    os.close(current)


@contextmanager
def count_open_files() -> Iterator[list[int]]:
    """Yields a list that has the largest number of files that were open in addition at its end."""
    descriptors = Path("/proc/self/fd")
    before, most = sum(1 for _ in descriptors.iterdir()), [0]
    has_ended = threading.Event()

    def count() -> None:
        while not has_ended.wait(0.001):
            most[0] = max(most[0], sum(1 for _ in descriptors.iterdir()) - before)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield most
    finally:
        has_ended.set()
        thread.join()


def test_a_deep_folder_is_measured_and_deleted_with_few_open_files(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make_deep(workspace, size=3 * MEBIBYTE)
    with count_open_files() as most:
        size = measure_folder(workspace)
        assert size.unread == 0
        assert size.named_bytes >= 3 * MEBIBYTE + DEPTH * 4096
        delete_folder(workspace)
    assert most[0] < 20
    assert not list(tmp_path.iterdir())


def test_every_branch_of_a_deep_tree_is_measured_once(tmp_path: Path) -> None:
    for first in "abc":
        (tmp_path / first).mkdir()
        for second in "de":
            make_deep(tmp_path / first, HELD_LEVELS + 7, name=second, size=MEBIBYTE)
    size = measure_folder(tmp_path)
    entries = 3 + 6 * (HELD_LEVELS + 7)
    assert entries * 4096 + 6 * MEBIBYTE <= size.named_bytes < (entries + 50) * 4096 + 6 * MEBIBYTE
    delete_folder(tmp_path)
    assert not tmp_path.exists()


def test_no_link_leads_a_walk_out_of_the_folder(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "kept").write_bytes(bytes(MEBIBYTE))
    (inside / "link").symlink_to(outside)
    assert measure_folder(inside).named_bytes < MEBIBYTE
    delete_folder(inside)
    assert (outside / "kept").exists()
    (tmp_path / "inside").symlink_to(outside)
    with pytest.raises(OSError):
        measure_folder(inside)


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
async def test_permissions_of_the_own_user_hide_nothing(mode: int) -> None:
    async with reachable_folder() as folder:
        os.chown(folder, 12345, 12345)
        with acting_as(12345):
            hidden = folder / "outer" / "hidden"
            hidden.mkdir(parents=True)
            make_deep(hidden, 20, size=MEBIBYTE)
            hidden.chmod(mode)
            hidden.parent.chmod(mode)
            assert measure_folder(folder).named_bytes >= MEBIBYTE
            assert hidden.parent.stat().st_mode & 0o777 == mode
            delete_folder(folder / "outer")
            assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_a_folder_that_cannot_be_read_is_reported() -> None:
    async with reachable_folder() as folder:
        (folder / "private").mkdir(mode=0o700)
        folder.chmod(0o755)
        with acting_as(12345):
            assert measure_folder(folder) == FolderSize(named_bytes=4096, unread=1)
            with pytest.raises(PermissionError):
                delete_folder(folder)
        assert (folder / "private").exists()


def interrupt(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None], *, levels_left: int) -> None:
    """Lets a program change something while a walk returns from its deepest folder."""
    open_parent, left = folder_trees._open_parent, [levels_left]

    def open_parent_after_change(descriptor: int) -> int:
        left[0] -= 1
        if left[0] == 0:
            change()
        return open_parent(descriptor)

    monkeypatch.setattr(folder_trees, "_open_parent", open_parent_after_change)


def test_a_folder_that_moves_during_the_walk_leads_it_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, other = tmp_path / "workspace", tmp_path / "other"
    workspace.mkdir()
    other.mkdir()
    (other / "large").write_bytes(bytes(4 * MEBIBYTE))
    make_deep(workspace, 40, name="d", size=MEBIBYTE)
    inner = workspace.joinpath(*["d"] * 30)
    (inner.parent / "e").mkdir()
    (inner.parent / "e" / "file").write_bytes(bytes(MEBIBYTE))
    # the walk is in `inner`, which is moved next to folders that are not to be measured
    interrupt(monkeypatch, lambda: inner.rename(tmp_path / "moved"), levels_left=11)
    size = measure_folder(workspace)
    assert 2 * MEBIBYTE <= size.named_bytes < 4 * MEBIBYTE
    assert size.unread == 0


@pytest.fixture
def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of which a program moves two parts away while the walk is in the inner of them."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make_deep(workspace, 40, name="d", size=MEBIBYTE)

    def move_twice() -> None:
        workspace.joinpath(*["d"] * 30).rename(tmp_path / "moved")
        workspace.joinpath(*["d"] * 20).rename(tmp_path / "moved too")

    interrupt(monkeypatch, move_twice, levels_left=11)
    return workspace


def test_a_folder_that_the_walk_does_not_find_again_is_reported(moving: Path) -> None:
    size = measure_folder(moving)
    assert size.unread == 1
    assert size.named_bytes >= MEBIBYTE


def test_a_deletion_that_does_not_find_its_way_deletes_nothing_else(moving: Path) -> None:
    (moving.parent / "d").mkdir()
    with pytest.raises(OSError, match="moved"):
        delete_folder(moving)
    assert (moving.parent / "d").exists()
    delete_folder(moving)
    assert not moving.exists()


class QuietConnection:
    is_busy = False

    async def call(self, _operation: str, **_arguments: object) -> None:
        return


@dataclass(frozen=True)
class IdleJail:
    workspace_path: Path
    connection: Connection = field(default_factory=lambda: cast("Connection", QuietConnection()))
    pid: int = 0
    init_pid: int = 1
    has_cgroup: bool = True


@pytest.fixture
def ended() -> list[Path]:
    return []


def watch(jails: list[MonitoredJail], ended: list[Path]) -> Watchdog:
    async def end(jail: MonitoredJail, _sentence: str) -> None:
        jails.remove(jail)
        ended.append(jail.workspace_path)

    return Watchdog(lambda: jails, SandboxLimits(workspace_bytes=MEBIBYTE), Path("/"), end)


async def check_often(watchdog: Watchdog) -> None:
    for _ in range(3):
        await watchdog.check()
        if watchdog._walking is not None:
            await watchdog._walking


async def test_jails_are_measured_while_all_shared_threads_are_busy(tmp_path: Path, ended: list[Path]) -> None:
    jails: list[MonitoredJail] = [IdleJail(tmp_path)]
    with busy_threads():
        async with asyncio.timeout(30):
            await watch(jails, ended).check()


@pytest.mark.parametrize("part", ["measure_folder", "measure_jail"])
async def test_a_jail_that_cannot_be_measured_keeps_no_other_from_it(
    part: str, tmp_path: Path, ended: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise RecursionError("deep")

    jails: list[MonitoredJail] = []
    for name in ("broken", "large"):
        (tmp_path / name).mkdir()
        jails.append(IdleJail(tmp_path / name))
    watchdog, (broken, large) = watch(jails, ended), jails
    with monkeypatch.context() as patches:
        patches.setattr(f"sandbox.local.watchdog.{part}", fail)
        await check_often(watchdog)
    assert len(caplog.messages) == 2  # one line for each jail
    assert watchdog._states[broken].next_walk > 0
    (tmp_path / "large" / "file").write_bytes(bytes(2 * MEBIBYTE))
    for state in watchdog._states.values():
        state.next_walk = state.walked_at = 0
    await check_often(watchdog)
    assert ended == [large.workspace_path] or watchdog._states[large].named_bytes >= 2 * MEBIBYTE


async def test_a_jail_does_not_become_smaller_by_what_cannot_be_read(
    tmp_path: Path, ended: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jail = IdleJail(tmp_path)
    watchdog = watch([jail], ended)
    for size in (FolderSize(named_bytes=900_000), FolderSize(named_bytes=5, unread=1)):
        monkeypatch.setattr("sandbox.local.watchdog.measure_folder", lambda _folder, found=size: found)
        await check_often(watchdog)
        assert watchdog._states[jail].named_bytes == 900_000
        watchdog._states[jail].walked_at = watchdog._states[jail].next_walk = 0
    assert len(caplog.messages) == 1


async def test_a_jail_whose_mappings_take_too_long_to_read_ends(
    tmp_path: Path, ended: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = JailUsage(memory_bytes=0, deleted_bytes=0, descriptors=0, written={}, maps_bytes=MAPS_BYTES_MAX + 1)
    monkeypatch.setattr("sandbox.local.watchdog.measure_jail", lambda *_arguments: usage)
    await check_often(watch([IdleJail(tmp_path)], ended))
    assert ended == [tmp_path]


async def test_below_the_reserve_of_the_disk_the_jail_that_writes_ends(
    tmp_path: Path, ended: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    jails: list[MonitoredJail] = []
    for number, name in enumerate(("quiet", "writing"), start=1):
        (tmp_path / name).mkdir()
        jails.append(IdleJail(tmp_path / name, init_pid=number))
    written = 0

    def measure(init_pid: int, _folders: object) -> JailUsage:
        counted = {init_pid: written if init_pid == 2 else 0}
        return JailUsage(memory_bytes=0, deleted_bytes=0, descriptors=0, written=counted, maps_bytes=0)

    monkeypatch.setattr("sandbox.local.watchdog.measure_jail", measure)
    free = SandboxLimits().disk_free_bytes_min - MEBIBYTE
    monkeypatch.setattr("sandbox.local.watchdog.free_disk_bytes", lambda _folder: free)
    watchdog = watch(jails, ended)
    await watchdog.check()
    written = 100 * MEBIBYTE
    await watchdog.check()
    assert ended == [tmp_path / "writing"]
