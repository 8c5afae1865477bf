"""How often jails are checked: at once where a new one is used, and no more often because one is used a lot."""

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

USES = 200


class QuietConnection:
    is_busy = False

    async def call(self, _operation: str, **_arguments: object) -> None:
        return


@dataclass(frozen=True, eq=False)
class IdleJail:
    workspace_path: Path
    connection: Connection = field(default_factory=lambda: cast("Connection", QuietConnection()))
    pid: int = 0
    init_pid: int = 0
    has_cgroup: bool = True


@dataclass
class Watched:
    """The watchdog over `jails`. `checks` counts how often it has looked."""

    jails: list[MonitoredJail]
    dog: Watchdog
    folder: Path
    checks: int = 0

    def open(self) -> None:
        self.jails.append(IdleJail(self.folder))
        self.dog.wake()

    async def until_checked(self, checks: int) -> None:
        async with asyncio.timeout(30):
            while self.checks < checks:
                await asyncio.sleep(0)


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
        watched.dog.wake()
        await asyncio.sleep(0)
    assert watched.checks == 2


async def test_a_jail_that_was_idle_is_checked_when_it_is_used(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.open()
    await watched.until_checked(2)
    monkeypatch.setattr(watchdog, "PAUSE_SECONDS_MAX", 0.5)  # as if the next check were that of an idle jail
    watched.dog.wake()
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
