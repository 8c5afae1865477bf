"""Which part keeps a process from being of use."""

import asyncio
from dataclasses import dataclass, field

from bots.bootstrap.observability import messaging_checks, worker_check
from bots.bootstrap.platforms import connection_check
from bots.bootstrap.process_messaging import Messaging, open_messaging
from bots.inbound.actions import Outcome, UserAction
from bots.settings import load_settings
from bots.slack.app import SlackApp
from core.domain.errors import StorageUnavailable
from core.run.worker import HEARTBEAT_LATE_SECONDS, Worker
from storage.memory.run_queue import MemoryRunQueue
from tests.integration.bots.test_workers import RecordedClaims
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world  # a fixture is found by name
from tests.servers import redis


class BrokenQueue(MemoryRunQueue):
    async def get(self) -> str:
        raise RuntimeError("broken")


async def receive(_: UserAction) -> Outcome:
    return Outcome()


@dataclass
class Claims(RecordedClaims):
    """A database that stops to take heartbeats."""

    beats: asyncio.Event = field(default_factory=asyncio.Event)

    async def heartbeat(self, worker_id: str) -> None:
        if self.is_away:
            raise StorageUnavailable("away")
        self.beats.set()


async def test_a_worker_without_a_heartbeat_says_so(world: World) -> None:
    world.with_deps(claims=Claims(is_away=True))
    worker = Worker(world.deps, MemoryRunQueue())
    worker.start()
    try:
        assert HEARTBEAT_LATE_SECONDS >= 1
        assert await worker_check(worker)() == "Its heartbeat does not reach the database."
    finally:
        await worker.close()


async def test_slack_is_connected_once_its_socket_is() -> None:
    by_socket = SlackApp(bot_token="xoxb-1", app_token="xapp-1", receive=receive)
    assert await connection_check(by_socket)() == "It is not connected just now."
    by_http = SlackApp(bot_token="xoxb-1", signing_secret="s", receive=receive)
    assert await connection_check(by_http)() == ""


async def test_redis_is_asked_where_there_is_one() -> None:
    assert messaging_checks(Messaging()) == {}
    with redis() as url:
        async with open_messaging(load_settings({"THREADHAND_REDIS_URL": url}, None)) as connected:
            assert await messaging_checks(connected)["redis"]() == ""


async def test_a_worker_that_can_take_nothing_up_says_so(world: World) -> None:
    claims = Claims()
    world.with_deps(claims=claims)
    worker = Worker(world.deps, BrokenQueue())
    worker.start()
    try:
        async with asyncio.timeout(30):
            await claims.beats.wait()
            while await worker_check(worker)() == "":
                await asyncio.sleep(0)
        assert await worker_check(worker)() == "It takes up no runs."
    finally:
        await worker.close()
