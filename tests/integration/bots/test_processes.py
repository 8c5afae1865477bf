"""The processes of the program: which are of use, which are dead, what they share, and how they end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from bots.bootstrap.observability import messaging_checks, worker_check
from bots.bootstrap.platforms import connection_check
from bots.bootstrap.process_messaging import Messaging, open_messaging
from bots.bootstrap.stores import DELIVERY_TRANSACTIONS_MAX, Stores
from bots.delivery.rate_limiter import RateLimit
from bots.inbound.actions import Outcome, UserAction
from bots.settings import load_settings
from bots.slack.app import SlackApp
from core.domain.errors import StorageUnavailable
from core.run.worker import HEARTBEAT_LATE_SECONDS, Worker
from core.run.worker_liveness import new_worker_id, register_worker
from core.tasks import cancel, spawn
from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig, parse_egress_policy
from sandbox.local.process_table import is_alive, process_tree
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.database import open_database
from tests.integration.core.conftest import World
from tests.paths import REPOSITORY
from tests.servers import redis
from tests.support.narrow import require
from tests.support.sandboxes import local_jails, run
from tests.support.settings import settings
from tests.support.waiting import until
from tests.unit.core.run.test_worker_liveness import RecordedClaims


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
            assert require(worker.stdout).readline() == "in\n"
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


STUCK = """
import asyncio, time
from bots.__main__ import _run

async def work():
    print("working", flush=True)
    try:
        await asyncio.sleep(1000)
    finally:
        time.sleep(1000)

_run(work(), exit_seconds=0.3)
"""


def test_a_program_that_cannot_end_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as program:
        assert require(program.stdout).readline() == "working\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=30) == 1


async def test_many_jails_that_refuse_to_end_are_gone_within_seconds() -> None:
    egress = EgressConfig(policy=parse_egress_policy("on"))
    async with local_jails(SandboxLimits(), egress=egress) as jails:
        for number in range(12):
            sandbox = await jails.open(f"thread-{number}", fence=1)
            await run(sandbox, "trap '' TERM HUP INT; (exec 3<>/dev/tcp/127.0.0.1/3128; sleep 999) &")
            await run(sandbox, "sleep 999", session="busy", seconds=0.01)
        (frozen, *_) = jails._jails()
        os.kill(process_tree(frozen.pid)[2], signal.SIGSTOP)
        members = [pid for jail in jails._jails() for pid in process_tree(jail.pid)]
        started = time.monotonic()
        await jails.close()
        assert time.monotonic() - started < 30
        assert list(filter(is_alive, members)) == []


EDIT = RateLimit(owner="slack:digest", name="chat.update", interval_seconds=100)


async def test_processes_on_one_redis_hear_what_one_of_them_was_refused(redis_url: str) -> None:
    both = settings(REDIS_URL=redis_url)
    async with open_messaging(both) as one, open_messaging(both) as other, open_messaging(settings()) as alone:
        await one.rates.record_refusal([EDIT], seconds=70)
        await until(lambda: other.rates.is_blocked(EDIT))
        assert await other.rates.reserve(EDIT, wait_seconds_max=0) > 10
        assert await alone.rates.reserve(EDIT, wait_seconds_max=0) == 0


BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
PATIENCE_SECONDS = 30.0


async def test_a_message_is_stored_while_every_delivery_waits_for_the_database(postgresql_url: str) -> None:
    database = await open_database(postgresql_url)
    stores = Stores(database, Messaging())
    other = await asyncpg.connect(postgresql_url)
    waiting: list[asyncio.Task[bool]] = []
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with other.transaction():
                await other.execute("LOCK TABLE rendering IN ACCESS EXCLUSIVE MODE")
                waiting = [
                    spawn(stores.deliveries.has_earlier(f"r{number}"), name="a delivery") for number in range(30)
                ]
                while await other.fetchval(BLOCKED) < DELIVERY_TRANSACTIONS_MAX:
                    await asyncio.sleep(0.01)
                assert not await stores.inbox.is_key_claimed("a message")
                assert not any(one.done() for one in waiting)
            assert await asyncio.gather(*waiting) == [False] * 30
    finally:
        for one in waiting:
            await cancel(one)
        await other.close()
        await database.close()
