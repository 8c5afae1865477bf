"""When jails are checked and which of them are measured: a new one at once, one that is used a lot no more often, and
one that is not used only if something has shrunk."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from core.tasks import cancel, spawn
from sandbox.client.connection import Connection
from sandbox.limits import SandboxLimits
from sandbox.local import watchdog
from sandbox.local.watchdog import MonitoredJail, Watchdog
from tests.support.waiting import until

USES = 200
ENDED_PID = 1 << 22  # no process has this id: the jail is measured as one that holds nothing


class QuietConnection:
    is_busy = False

    async def call(self, _operation: str, **_arguments: object) -> None:
        return


@dataclass(frozen=True, eq=False)
class IdleJail:
    """Counts how often it is measured, in `measurements`."""

    workspace_path: Path
    connection: Connection = field(default_factory=lambda: cast("Connection", QuietConnection()))
    pid: int = 0
    has_cgroup: bool = True
    measurements: list[int] = field(default_factory=list[int])

    @property
    def init_pid(self) -> int:
        self.measurements.append(ENDED_PID)
        return ENDED_PID


@dataclass
class Watched:
    """The watchdog over `jails`. `checks` counts how often it has looked."""

    jails: list[MonitoredJail]
    dog: Watchdog
    folder: Path
    checks: int = 0

    def open(self) -> None:
        self.jails.append(IdleJail(self.folder))
        self.dog.wake(self.jails[-1])

    async def until_checked(self, checks: int) -> None:
        await until(lambda: self.checks >= checks)


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    for name in ("PAUSE_SECONDS_MIN", "PAUSE_SECONDS_MAX"):
        monkeypatch.setattr(watchdog, name, 300.0)
    monkeypatch.setattr(watchdog, "IDLE_PAUSE_SECONDS", 1200.0)
    jails: list[MonitoredJail] = []

    async def end(_jail: MonitoredJail, sentence: str) -> None:
        raise AssertionError(sentence)

    dog = Watchdog(lambda: jails, SandboxLimits(), tmp_path, end)
    found = Watched(jails, dog, tmp_path)
    check = dog.check

    async def counted() -> float | None:
        seconds = await check()
        found.checks += 1
        return seconds

    monkeypatch.setattr(dog, "check", counted)
    running = spawn(dog.run(), name="watchdog")
    await found.until_checked(1)
    yield found
    await cancel(running)


async def test_each_new_jail_is_checked_at_once(watched: Watched) -> None:
    watched.open()
    await watched.until_checked(2)
    watched.open()
    await watched.until_checked(3)


async def test_a_jail_that_is_used_a_lot_is_checked_no_more_often(watched: Watched) -> None:
    watched.open()
    await watched.until_checked(2)
    for _ in range(USES):
        watched.dog.wake(watched.jails[0])
        await asyncio.sleep(0)
    assert watched.checks == 2


async def test_a_jail_that_was_idle_is_checked_when_it_is_used(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.open()
    await watched.until_checked(2)
    monkeypatch.setattr(watchdog, "PAUSE_SECONDS_MAX", 0.5)  # as if the next check were that of an idle jail
    watched.dog.wake(watched.jails[0])
    await watched.until_checked(3)


class StoppedConnection(QuietConnection):
    async def call(self, _operation: str, **_arguments: object) -> None:
        await asyncio.Event().wait()


async def test_a_program_inside_that_is_stopped_holds_up_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = cast("Connection", StoppedConnection())
    jails: list[MonitoredJail] = [IdleJail(tmp_path, stopped), IdleJail(tmp_path)]

    async def end(_jail: MonitoredJail, sentence: str) -> None:
        raise AssertionError(sentence)

    limits = SandboxLimits()
    monkeypatch.setattr(watchdog, "free_disk_bytes", lambda _: limits.disk_free_bytes_min - 1)
    dog = Watchdog(lambda: jails, limits, tmp_path, end)
    async with asyncio.timeout(30):
        await dog.check()  # tells both that the disk is nearly full


@dataclass
class Counted:
    """A watchdog over two jails that have been measured, on a machine whose free bytes only the test changes."""

    jails: list[IdleJail]
    dog: Watchdog
    disk_bytes: int = 8 << 30
    memory_bytes: int = 8 << 30

    async def check(self, *, used: int | None = None) -> list[int]:
        """Returns how often each jail has been measured since the last check."""
        if used is not None:
            self.dog.wake(self.jails[used])
        for jail in self.jails:
            jail.measurements.clear()
        await self.dog.check()
        return [len(jail.measurements) for jail in self.jails]


@pytest.fixture
async def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    jails = [IdleJail(tmp_path, has_cgroup=False), IdleJail(tmp_path, has_cgroup=False)]

    async def end(_jail: MonitoredJail, sentence: str) -> None:
        raise AssertionError(sentence)

    limits = SandboxLimits(memory_bytes=200 << 20, workspace_bytes=100 << 20)
    found = Counted(jails, Watchdog(lambda: list(jails), limits, tmp_path, end))
    monkeypatch.setattr(watchdog, "available_memory_bytes", lambda: found.memory_bytes)
    monkeypatch.setattr(watchdog, "free_disk_bytes", lambda _: found.disk_bytes)
    monkeypatch.setattr(watchdog, "IDLE_PAUSE_SECONDS", 0.0)  # a jail is idle once it was measured after its last use
    await found.dog.check()
    return found


async def test_a_new_jail_is_measured_alone(counted: Counted, tmp_path: Path) -> None:
    counted.jails.append(IdleJail(tmp_path))
    assert await counted.check(used=2) == [0, 0, 1]


async def test_a_jail_that_is_not_used_is_measured_rarely(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MEASURE_SECONDS", 0.0)
    assert await counted.check(used=0) == [1, 0]
    assert await counted.check() == [0, 0]
    monkeypatch.setattr(watchdog, "IDLE_MEASURE_SECONDS", 0.0)
    assert await counted.check() == [1, 1]


@pytest.mark.parametrize(
    ("free", "changes_mebibytes", "measurements"),
    [
        ("memory_bytes", [-99, 99, -99], [[1, 0], [1, 0], [1, 0]]),
        ("memory_bytes", [-101], [[1, 1]]),
        ("memory_bytes", [-60, -60], [[1, 0], [1, 1]]),  # a measurement of one jail says nothing about the other
        ("disk_bytes", [-40, -9, -2], [[1, 0], [1, 0], [1, 1]]),
    ],
)
async def test_a_jail_that_may_have_taken_half_of_what_its_limits_leave_is_measured(
    counted: Counted,
    monkeypatch: pytest.MonkeyPatch,
    free: str,
    changes_mebibytes: list[int],
    measurements: list[list[int]],
) -> None:
    monkeypatch.setattr(watchdog, "MEASURE_SECONDS", 0.0)
    found: list[list[int]] = []
    for change in changes_mebibytes:
        setattr(counted, free, getattr(counted, free) + (change << 20))
        found.append(await counted.check(used=0))
    assert found == measurements
