"""Workers that are dead for certain are told from those that live, by the locks that the kernel keeps."""

import asyncio
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.domain.threads import Lease
from core.run.worker_liveness import new_worker_id, register_worker
from core.tasks import spawn
from tests.paths import REPOSITORY

LIVE = """
import asyncio, sys
from pathlib import Path
from core.run.worker_liveness import register_worker
from tests.integration.bots.test_workers import RecordedClaims

async def main():
    async with register_worker(Path(sys.argv[1]), sys.argv[2], RecordedClaims()):
        print("in", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@dataclass
class RecordedClaims:
    """`core.stores.RunClaims` of a machine without runs. `is_away`: the database cannot be reached."""

    removed: list[str] = field(default_factory=list[str])
    is_away: bool = False

    async def claim(self, run_id: str, worker_id: str) -> Lease | None:
        return None

    async def release(self, lease: Lease) -> None: ...

    async def heartbeat(self, worker_id: str) -> None: ...

    async def claimable_runs(self) -> tuple[str, ...]:
        return ()

    async def stopped_runs(self) -> tuple[str, ...]:
        return ()

    async def held(self, worker_id: str) -> tuple[Lease, ...]:
        return ()

    async def remove_worker(self, worker_id: str) -> None:
        if self.is_away:
            raise StorageUnavailable("away")
        self.removed.append(worker_id)


@contextmanager
def worker_process(folder: Path, worker_id: str) -> Generator[subprocess.Popen[str]]:
    """A worker in a process of its own, enlisted."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVE, str(folder), worker_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "in\n"
            yield worker
        finally:
            worker.kill()


def test_no_two_workers_have_one_name_and_those_of_a_machine_are_alike() -> None:
    first, second = new_worker_id(), new_worker_id()
    assert first != second
    assert first.rpartition("-")[0] == second.rpartition("-")[0]
    assert f"-{os.getpid()}-" in first
    assert re.fullmatch(r"[\w.-]+", first)


async def test_a_worker_that_was_killed_is_buried_by_the_next(tmp_path: Path) -> None:
    dead, claims = new_worker_id(), RecordedClaims()
    with worker_process(tmp_path, dead) as worker:
        worker.kill()
        worker.wait()
        async with register_worker(tmp_path, new_worker_id(), claims):
            assert claims.removed == [dead]
    assert list(tmp_path.iterdir()) == []


async def test_a_worker_that_lives_is_left_alone(tmp_path: Path) -> None:
    alive, me, claims = new_worker_id(), new_worker_id(), RecordedClaims()
    with worker_process(tmp_path, alive):
        async with register_worker(tmp_path, me, claims):
            assert claims.removed == []
            assert {one.name for one in tmp_path.iterdir()} == {alive, me}
        assert claims.removed == [me]
        assert [one.name for one in tmp_path.iterdir()] == [alive]


async def test_two_workers_of_one_process_do_not_bury_each_other(tmp_path: Path) -> None:
    first, second, claims = new_worker_id(), new_worker_id(), RecordedClaims()
    async with register_worker(tmp_path, first, claims), register_worker(tmp_path, second, claims):
        assert claims.removed == []
    assert claims.removed == [second, first]


async def test_workers_of_other_machines_and_boots_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "elsewhere-0a1b2c3d-17-abcdef").touch()
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        assert claims.removed == []
    assert [one.name for one in tmp_path.iterdir()] == ["elsewhere-0a1b2c3d-17-abcdef"]


async def test_the_dead_stay_on_the_list_until_they_are_buried(tmp_path: Path) -> None:
    dead = new_worker_id()
    (tmp_path / dead).touch()
    with pytest.raises(ConfigurationError, match="The database cannot be used: away"):
        async with register_worker(tmp_path, new_worker_id(), RecordedClaims(is_away=True)):
            raise AssertionError("it must not start")
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        assert claims.removed == [dead]


async def test_an_end_that_cannot_be_put_on_record_is_an_end_all_the_same(tmp_path: Path) -> None:
    claims = RecordedClaims()
    async with register_worker(tmp_path, new_worker_id(), claims):
        claims.is_away = True
    assert list(tmp_path.iterdir()) == []


async def test_without_a_folder_to_lock_in_the_worker_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    me, claims = new_worker_id(), RecordedClaims()
    async with register_worker(tmp_path / "file", me, claims):
        assert claims.removed == []
    assert claims.removed == [me]


async def test_a_lock_that_another_process_holds_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    """As while another process, which has found the file not locked yet, removes its worker."""
    me = new_worker_id()
    other = os.open(tmp_path / me, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)

    async def register() -> None:
        async with register_worker(tmp_path, me, RecordedClaims()):
            pass

    registering = spawn(register(), name="worker")
    await asyncio.sleep(0.1)  # would never end
    assert not registering.done()
    os.close(other)
    await registering
