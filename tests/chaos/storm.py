"""Storm tests: random failures in a running deployment, chosen by a seed, after which nothing may be lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from bots.demo.thread_reader import buttons_of, messages_of
from core.tasks import cancel, spawn
from tests.chaos import processes
from tests.chaos.actions import BOT_PLACES, JUMPS_SECONDS, KINDS, WORKER_PLACES, Action, actions, failpoint, fault
from tests.chaos.clocks import Clock, clocks_that_jump
from tests.chaos.cluster import CHOICE, NO_WORKER, WORKER, Cluster, SentMessage, open_cluster
from tests.chaos.harness import PERSON, PlatformName
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import Outage, full_redis, servers
from tests.chaos.program import Program
from tests.contracts.redis_servers import redis_client
from tests.servers import server_folder

SETTLE_SECONDS = 240.0
COULD_NOT_START = 2
"""The exit code of a program that cannot reach a server at its start. Its supervisor restarts it."""
CLICK_SECONDS = 3.0
ARMED_SECONDS = (10.0, 25.0)
"""How long a process may take to reach its failpoint: at the end of the storm, and before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The deployment and servers that a storm disturbs. `clocks` is empty if the machine has no libfaketime."""

    cluster: Cluster
    database: Outage[Callable[[str], str]]
    cache: Outage[str]
    clocks: tuple[Clock, ...]


class Storm:
    """Disturbs a cluster. Tracks the messages sent, the background tasks, and the processes that ended unexpectedly."""

    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self._world = world
        self._cluster = world.cluster
        self._say = say
        self._start = time.monotonic()
        self._seconds = 0.0
        self._count = 0
        self._sent: list[SentMessage] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._armed: list[bool] = []
        self._ended: list[str] = []

    async def run(self, seed: int, seconds: float) -> None:
        """Performs actions for `seconds`, then ends all failures and checks the invariants."""
        self._seconds = seconds
        supervisor = spawn(self._supervise(), name="supervisor")
        self._tasks.add(supervisor)
        for action in actions(seed):
            if time.monotonic() - self._start > seconds:
                break
            self._note(str(action))
            self._tasks.add(spawn(self._do(action), name=action.name))
            await asyncio.sleep(action.pause_seconds)
        for task in self._tasks - {supervisor}:
            await task
        self._cluster.stage.platform.misbehave("none")
        self._note(f"{len(self._cluster.sent)} messages were sent; now all runs have to end")
        await settle_and_check(self._cluster, seconds=SETTLE_SECONDS)
        assert not self._ended, "\n".join([*self._ended, self._cluster.report()])
        self._note(f"{sum(self._armed)} of {len(self._armed)} armed processes reached their failpoint")
        self._note("nothing was lost")

    async def close(self) -> None:
        for task in self._tasks:
            await cancel(task)

    def _note(self, sentence: str) -> None:
        self._say(f"{time.monotonic() - self._start:6.1f} s  {sentence}")

    def _do(self, action: Action) -> Awaitable[None]:
        which, seconds = action.which, action.seconds
        worker = self._cluster.workers[which % len(self._cluster.workers)]
        bot = self._cluster.bots[which % len(self._cluster.bots)]
        bot_places = BOT_PLACES[self._cluster.stage.name]
        cache, database = self._world.cache, self._world.database
        operations: dict[str, Callable[[], Awaitable[None]]] = {
            "say": lambda: self._send(which),
            "follow": lambda: self._follow(which),
            "kill worker": lambda: self._run_alone(worker, processes.killed(worker, WORKER, seconds)),
            "kill bot": lambda: self._run_alone(bot, processes.killed(bot, NO_WORKER, seconds)),
            "freeze worker": lambda: self._run_alone(worker, processes.frozen(worker, seconds)),
            "freeze bot": lambda: self._run_alone(bot, processes.frozen(bot, seconds)),
            "end worker": lambda: self._run_alone(worker, processes.ended(worker, WORKER, seconds)),
            "arm worker": lambda: self._arm(worker, WORKER, WORKER_PLACES, action),
            "arm bot": lambda: self._arm(bot, NO_WORKER, bot_places, action),
            "platform": lambda: self._disturb_platform(which),
            "jump clock": lambda: self._jump_clock(action),
            "empty redis": self._empty_redis,
            "fill redis": lambda: self._fill_redis(seconds),
            "restart redis": lambda: self._restart("redis", cache, seconds / 2),
            "restart postgresql": lambda: self._restart("postgresql", database, seconds / 4),
            "break connections": self._break_connections,
        }
        return operations[action.name]()

    async def _send(self, which: int, thread_id: str = "") -> None:
        self._count += 1
        kind = KINDS[which % len(KINDS)]
        request = await self._cluster.say(kind, f"w{self._count}x", thread_id=thread_id)
        self._sent.append(request)
        if request.is_question:
            await self._answer(request)

    async def _answer(self, request: SentMessage) -> None:
        """Presses the choice until the message is answered, as people do if the app does not respond."""
        platform, channel_id = self._cluster.stage.platform, self._cluster.stage.channel_id
        deadline = time.monotonic() + SETTLE_SECONDS
        while not self._cluster.has_ended(request.token):
            assert time.monotonic() < deadline, f"{request} gets no further\n{self._cluster.report()}"
            for message in messages_of(self._cluster.stage.view(), request.thread_id):
                for button in buttons_of(message):
                    if message.is_bot and button.label == CHOICE and not button.is_disabled:
                        with suppress(TimeoutError, ValueError):
                            await platform.press(PERSON, channel_id, message.message_id, button.control_id)
            await asyncio.sleep(CLICK_SECONDS)

    async def _follow(self, which: int) -> None:
        """Sends another message in a thread, once all earlier ones are answered."""
        threads = sorted({one.thread_id for one in self._sent})
        if not threads:
            return
        thread_id = threads[which % len(threads)]
        async with self._lock(thread_id):
            tokens = [one.token for one in self._sent if one.thread_id == thread_id]
            await self._cluster.until(
                lambda: all(self._cluster.has_ended(token) for token in tokens),
                f"all of {tokens} are answered, with no button left",
                seconds=SETTLE_SECONDS,
            )
            await self._send(which // len(KINDS), thread_id)

    async def _run_alone(self, program: Program, operation: Awaitable[None]) -> None:
        async with self._lock(program.log_path.name):
            await operation

    async def _arm(self, program: Program, arguments: tuple[str, ...], places: tuple[str, ...], action: Action) -> None:
        place = failpoint(places, action.chance)
        async with self._lock(program.log_path.name):
            left = self._start + self._seconds - time.monotonic()
            if left < 0:
                return  # the storm sends no more messages
            is_up = asyncio.Event()
            work = spawn(self._send_work(is_up, action.which), name="something to do for it")
            self._tasks.add(work)
            try:
                reached = await processes.armed(
                    program,
                    arguments,
                    place,
                    action.seconds,
                    patience_seconds=min(max(left, ARMED_SECONDS[0]), ARMED_SECONDS[1]),
                    is_up=is_up,
                )
            finally:
                is_up.set()
        self._armed.append(reached)
        await work
        self._note(f"{program.log_path.stem} {'reached' if reached else 'did not reach'} {place}")

    async def _send_work(self, is_up: asyncio.Event, which: int) -> None:
        """Sends a Work message, which passes most failpoints, and a message of any kind."""
        await is_up.wait()
        await asyncio.gather(self._send(KINDS.index("Work")), self._send(which))

    async def _disturb_platform(self, which: int) -> None:
        kind, settings = fault(self._cluster.stage.name, which)
        self._cluster.stage.platform.misbehave(kind, **settings)

    async def _jump_clock(self, action: Action) -> None:
        if self._world.clocks:
            clock = self._world.clocks[action.which % len(self._world.clocks)]
            clock.jump(JUMPS_SECONDS[action.chance % len(JUMPS_SECONDS)])

    async def _empty_redis(self) -> None:
        async with self._lock("redis"), redis_client(self._world.cache.answer):
            pass  # entering the context empties Redis

    async def _fill_redis(self, seconds: float) -> None:
        async with self._lock("redis"), full_redis(self._world.cache.answer):
            await asyncio.sleep(seconds)

    async def _restart(self, name: str, server: Outage[str] | Outage[Callable[[str], str]], seconds: float) -> None:
        async with self._lock(name):
            await server.begin()
            await asyncio.sleep(seconds)
            await server.end()

    async def _break_connections(self) -> None:
        async with self._lock("postgresql"):
            await self._cluster.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    async def _supervise(self) -> None:
        """Restarts processes that ended. Records those that ended for another reason than an unreachable server."""
        while True:
            await asyncio.sleep(0.5)
            for program in self._cluster.programs():
                if program.is_running or self._lock(program.log_path.name).locked():
                    continue
                said = program.log_of_this_start().strip().splitlines()[-1:]
                ending = f"{program.log_path.stem} ended with {program.returncode}: {said}"[:1000]
                self._note(ending)
                if program.returncode != COULD_NOT_START:
                    self._ended.append(ending)
                program.start(arguments=NO_WORKER if program in self._cluster.bots else WORKER)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


async def storm(seed: int, seconds: float, platform: PlatformName, say: Callable[[str], None]) -> None:
    """Runs a storm on two bots and three workers. Raises AssertionError if an invariant is violated at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(server_folder("thclock-"))
        clocks = clocks_that_jump(folder, 6)
        if not clocks:
            say("NOT TRIED: clocks that jump, since there is no libfaketime (Debian: faketime)")
        of_database = clocks[0].environment if clocks else {}
        database, cache, url = await stack.enter_async_context(servers(clock=of_database))
        cluster = await stack.enter_async_context(
            open_cluster(platform, url, cache.answer, bots=2, workers=3, drain_seconds="3")
        )
        for program, clock in zip(cluster.programs(), clocks[1:], strict=False):
            program.environment |= clock.environment
        await cluster.start()
        storm_run = Storm(World(cluster=cluster, database=database, cache=cache, clocks=clocks), say)
        stack.push_async_callback(storm_run.close)
        await storm_run.run(seed, seconds)
