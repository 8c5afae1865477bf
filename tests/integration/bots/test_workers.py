"""Workers that are dead for certain are told from those that live, by the locks that the kernel keeps."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from core.run.worker_liveness import new_worker_id, register_worker
from tests.paths import REPOSITORY
from tests.unit.core.run.test_worker_liveness import RecordedClaims

LIVE = """
import asyncio, sys
from pathlib import Path
from core.run.worker_liveness import register_worker
from tests.unit.core.run.test_worker_liveness import RecordedClaims

async def main():
    async with register_worker(Path(sys.argv[1]), sys.argv[2], RecordedClaims()):
        print("in", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


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
