"""A run that is shown on a platform in memory, for the tests of delivery."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bots.delivery.content import Content
from bots.delivery.poster import DeliveryDeps
from bots.delivery.run_delivery import RunDelivery
from core.domain.threads import Address
from core.run.execute import execute
from core.stores import Deliveries
from core.tasks import spawn
from sandbox.unsafe_process import UnsafeProcessProvider
from storage.memory.event_bus import MemoryEventBus
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.run_transitions import SqlAsks
from tests.fakes.surface import FakeSurface, Posted
from tests.integration.core.conftest import World
from tests.support.waiting import until

PATIENCE_SECONDS = 60.0


class Stage:
    """A world whose thread lives on the fake platform, and a delivery that shows it."""

    def __init__(self, world: World, sandboxes: UnsafeProcessProvider) -> None:
        self.world = world
        self.surface = FakeSurface()
        self.sandboxes = sandboxes
        self.status_after_seconds = 0.0
        self.links_to = "https://links.test/"
        self.delivery = self.new_delivery("worker-1")

    def new_delivery(self, worker_id: str, deliveries: Deliveries | None = None) -> RunDelivery:
        return RunDelivery(
            DeliveryDeps(
                worker_id=worker_id,
                surfaces={"slack": self.surface},
                deliveries=deliveries or SqlDeliveries(self.world.database),
                conversations=self.world.deps.stores.conversations,
                asks=SqlAsks(self.world.database),
                bus=self.world.deps.messaging.bus,
                sandboxes=self.sandboxes,
                link_for=lambda _, path: f"{self.links_to}{path}" if self.links_to else None,
                stop_run=self.world.stop,
                status_after_seconds=self.status_after_seconds,
            )
        )

    async def use_status_after(self, seconds: float) -> None:
        """Replaces the delivery by one with another delay."""
        await self.delivery.close()
        self.status_after_seconds = seconds
        self.delivery = self.new_delivery("worker-1")
        self.delivery.start()

    async def start_followed(self, words: str = "go") -> tuple[str, asyncio.Task[object]]:
        """Starts a run once delivery follows its events, because text that streams earlier is not shown."""
        run_id = await self.world.say(words)
        await self.followed(run_id)
        return run_id, spawn(execute(run_id, self.world.deps), name="run")

    async def followed(self, run_id: str) -> None:
        """Wakes the delivery of a run, and waits until it follows the run's events."""
        self.delivery.wake(run_id)
        bus = self.world.deps.messaging.bus
        assert isinstance(bus, MemoryEventBus)
        await until(lambda: run_id in bus._readers)

    async def begin(self, words: str = "go") -> tuple[str, asyncio.Future[Any]]:
        """Starts the execution of a run, of which the delivery knows."""
        run_id, running = await self.world.begin(words)
        self.delivery.wake(run_id)
        return run_id, running

    async def execute(self, words: str = "go") -> str:
        """Executes a run, and does not wait until it is shown."""
        run_id, running = await self.begin(words)
        await running
        return run_id

    async def run(self, words: str = "go") -> str:
        run_id = await self.execute(words)
        await self.shown()
        return run_id

    async def shown(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await SqlDeliveries(self.world.database).open_runs():
                await asyncio.sleep(0.01)

    def of(self, kind: type[Content]) -> list[Posted]:
        return [one for one in self.surface.posted if one.contents and isinstance(one.newest, kind)]

    async def put_file(self, run_id: str, path: str, content: bytes) -> None:
        run = await self.world.read_run(run_id)
        sandbox = await self.sandboxes.open(run.thread_id, fence=0)

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        await sandbox.files.write(path, pieces())


@pytest.fixture
async def stage(world: World, tmp_path: Path) -> AsyncIterator[Stage]:
    world.address = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    sandboxes = UnsafeProcessProvider(tmp_path / "sandboxes")
    made = Stage(world, sandboxes)
    await world.deps.stores.claims.heartbeat("worker-1")
    made.delivery.start()
    yield made
    await made.delivery.close()
    await sandboxes.close()
