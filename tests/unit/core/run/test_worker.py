"""Which runs a worker executes and when, over claims and runs in memory."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from core.domain.errors import StorageUnavailable
from core.run import worker as worker_module
from core.run.worker import HEARTBEAT_LATE_SECONDS, Worker
from storage.memory.run_queue import MemoryRunQueue
from tests.histories.virtual_time import in_virtual_time
from tests.support.waiting import until


@dataclass
class Runs:
    """The stored runs, and those that were begun, each of which ends at its gate."""

    claimable: list[str] = field(default_factory=list[str])
    stopped: list[str] = field(default_factory=list[str])
    leases: list[str] = field(default_factory=list[str])
    followers: dict[str, str] = field(default_factory=dict[str, str])
    released: list[str] = field(default_factory=list[str])
    begun: list[str] = field(default_factory=list[str])
    gates: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    ended: list[str] = field(default_factory=list[str])
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    is_web_closed: bool = False
    sweeps: int = 0
    beats: int = 0
    error: Exception | None = None

    def gate(self, run_id: str) -> asyncio.Event:
        return self.gates.setdefault(run_id, asyncio.Event())

    async def execute(self, run_id: str, _deps: object) -> Any:
        if run_id not in self.begun:
            self.begun.append(run_id)
            try:
                await self.gate(run_id).wait()
            except asyncio.CancelledError:
                assert self.draining.is_set()
                assert is_beating()
                self.ended.append(run_id)
                raise
        return SimpleNamespace(follower_id=self.followers.pop(run_id, None))

    async def close(self) -> None:
        self.is_web_closed = True

    async def claimable_runs(self) -> tuple[str, ...]:
        self.sweeps += 1
        return tuple(self.claimable)

    async def stopped_runs(self) -> tuple[str, ...]:
        return tuple(self.stopped)

    async def held_leases(self, _worker_id: str) -> list[Any]:
        return [SimpleNamespace(run_id=run_id) for run_id in self.leases]

    async def release(self, lease: Any) -> None:
        self.leases.remove(lease.run_id)
        self.released.append(lease.run_id)

    async def heartbeat(self, _worker_id: str) -> None:
        self.beats += 1
        if self.error:
            raise self.error


class FailingQueue(MemoryRunQueue):
    async def get(self) -> str:
        raise StorageUnavailable("away")


class ForgetfulQueue(MemoryRunQueue):
    has_failed = False

    async def get(self) -> str:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("the entry does not exist")
        return await super().get()


def is_beating() -> bool:
    return "heartbeat" in [task.get_name() for task in asyncio.all_tasks() if not task.done()]


@asynccontextmanager
async def at_work(
    runs: Runs, queue: MemoryRunQueue, *queued: str, slots: int = 1, quiet_sweep_seconds: float = 0
) -> AsyncGenerator[Worker, None]:
    deps = SimpleNamespace(stores=SimpleNamespace(claims=runs), web=runs, worker_id="w", draining=runs.draining)
    for run_id in queued:
        await queue.put(run_id)
    worker = Worker(deps, queue, runs_at_once_max=slots, quiet_sweep_seconds=quiet_sweep_seconds)
    worker.start()
    try:
        yield worker
    finally:
        await worker.close()
        assert runs.is_web_closed
        assert not is_beating()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(worker_module, "execute", made.execute)
    for name in ("SWEEP_SECONDS", "HEARTBEAT_SECONDS"):
        monkeypatch.setattr(worker_module, name, 0.001)
    return made


async def test_after_a_run_comes_the_one_whose_turn_it_is_and_not_the_next_of_the_queue(runs: Runs) -> None:
    runs.claimable = ["first", "quiet", "busy"]
    async with at_work(runs, MemoryRunQueue(), "first", "busy", "quiet"):
        for number, run_id in enumerate(("first", "quiet", "busy"), 1):
            await until(lambda count=number: len(runs.begun) == count)
            assert runs.begun[-1] == run_id
            runs.claimable = [waiting for waiting in runs.claimable if waiting != run_id]
            runs.gate(run_id).set()


async def test_a_run_that_nobody_has_queued_is_found_and_its_follower_begins(runs: Runs) -> None:
    runs.claimable, runs.followers = ["a"], {"a": "b"}
    async with at_work(runs, MemoryRunQueue(), slots=2):
        await until(lambda: runs.begun == ["a"])
        runs.claimable.clear()
        runs.gate("a").set()
        await until(lambda: runs.begun == ["a", "b"])
        runs.gate("b").set()


async def test_a_worker_goes_on_after_its_queue_has_failed(runs: Runs) -> None:
    async with at_work(runs, ForgetfulQueue(), "a"):
        await until(lambda: runs.begun == ["a"])
        runs.gate("a").set()


async def test_a_stopped_run_needs_no_slot(runs: Runs) -> None:
    runs.stopped = ["stopped"]
    async with at_work(runs, MemoryRunQueue(), "long") as worker:
        await until(lambda: runs.begun == ["long", "stopped"])
        assert worker.is_busy
        runs.stopped.clear()
        runs.gate("stopped").set()
        runs.gate("long").set()


async def test_only_a_lease_that_is_held_and_not_executed_is_given_back(runs: Runs) -> None:
    runs.leases = ["a", "lost"]
    async with at_work(runs, MemoryRunQueue(), "a"):
        await until(lambda: runs.begun == ["a"])
        await until(lambda: "lost" in runs.released)
        runs.released.clear()
        beats = runs.beats
        await until(lambda: runs.beats > beats)
        assert runs.released == []
        runs.gate("a").set()


class LateQueue(MemoryRunQueue):
    """Takes back only runs that have ended."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self.runs = runs

    async def put(self, run_id: str) -> None:
        assert not self.runs.draining.is_set() or run_id in self.runs.ended
        await super().put(run_id)


async def test_a_worker_that_closes_queues_what_it_has_not_finished(runs: Runs) -> None:
    queue = LateQueue(runs)
    async with at_work(runs, queue, "a", slots=2):
        await until(lambda: runs.begun == ["a"])
        for run_id in ("a", "b"):
            await queue.put(run_id)
        await until(lambda: runs.begun == ["a", "b"])
        runs.gate("b").set()
        await until(lambda: "run b" not in [task.get_name() for task in asyncio.all_tasks()])
    assert (await queue.get(), runs.ended) == ("a", ["a"])


async def test_a_worker_that_closes_gives_its_runs_time_to_end_their_turn(runs: Runs) -> None:
    async with at_work(runs, MemoryRunQueue(), "a") as worker:
        await until(lambda: runs.begun == ["a"])
        closing = asyncio.ensure_future(worker.close(drain_seconds=60))
        await runs.draining.wait()
        runs.gate("a").set()
        await closing
    assert runs.ended == []


@pytest.mark.parametrize(("quiet_sweep_seconds", "sweeps"), [(0, 300), (60, 15)])
@in_virtual_time
async def test_a_worker_without_work_looks_less_often(
    monkeypatch: pytest.MonkeyPatch, quiet_sweep_seconds: float, sweeps: int
) -> None:
    runs = Runs()
    monkeypatch.setattr(worker_module, "execute", runs.execute)
    async with at_work(runs, MemoryRunQueue(), quiet_sweep_seconds=quiet_sweep_seconds):
        await asyncio.sleep(299.5)
        assert (runs.sweeps, runs.beats) == (sweeps, 300)


async def test_its_health_is_that_of_its_queue_and_its_heartbeat(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Worker(SimpleNamespace(), MemoryRunQueue())
    assert idle.health_problem() == "It takes up no runs."
    async with at_work(runs, FailingQueue()) as failing:
        await until(lambda: runs.beats)
        monkeypatch.setattr(worker_module, "SWEEP_SECONDS", 30.0)
        assert failing.health_problem() == "It takes up no runs."
    now = 100.0
    monkeypatch.setattr(worker_module, "boot_seconds", lambda: now)
    async with at_work(runs, MemoryRunQueue()) as worker:
        beats = runs.beats
        await until(lambda: runs.beats > beats)
        assert worker.health_problem() == ""
        runs.error = StorageUnavailable("away")
        now += HEARTBEAT_LATE_SECONDS
        assert worker.health_problem() == "Its heartbeat does not reach the database."
    async with at_work(runs, MemoryRunQueue()) as worker:
        assert worker.health_problem() == "Its heartbeat does not reach the database."
