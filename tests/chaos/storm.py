"""Storm tests: random failures in a running deployment, chosen by a seed, after which nothing may be lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from bots.demo.thread_reader import buttons_of, messages_of
from core.tasks import cancel, spawn
from tests.chaos import processes
from tests.chaos.actions import (
    BOT_PLACES,
    JUMPS_SECONDS,
    KINDS,
    WORKER_PLACES,
    Action,
    actions,
    failpoint,
    fault,
)
from tests.chaos.clocks import Clock, clocks_that_jump
from tests.chaos.crew import CHOICE, NO_WORKER, WORKER, Crew, Told, crew
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

    told: Crew
    database: Outage[Callable[[str], str]]
    cache: Outage[str]
    clocks: tuple[Clock, ...]


class Storm:
    """Disturbs a crew. Tracks the messages sent, the background tasks, and the processes that ended unexpectedly."""

    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self._world = world
        self._told = world.told
        self._say = say
        self._began = time.monotonic()
        self._seconds = 0.0
        self._words = 0
        self._said: list[Told] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: dict[str, asyncio.Lock] = {}
        self._armed: list[bool] = []
        self._ended: list[str] = []

    async def rage(self, seed: int, seconds: float) -> None:
        """Performs actions for `seconds`, then ends all failures and checks the invariants."""
        self._seconds = seconds
        supervisor = spawn(self._supervise(), name="supervisor")
        self._under_way.add(supervisor)
        for action in actions(seed):
            if time.monotonic() - self._began > seconds:
                break
            self._note(str(action))
            self._under_way.add(spawn(self._do(action), name=action.name))
            await asyncio.sleep(action.pause_seconds)
        for task in self._under_way - {supervisor}:
            await task
        self._told.stage.platform.misbehave("none")
        self._note(f"{len(self._told.told)} words were said; now it has to come to rest")
        await settle_and_check(self._told, seconds=SETTLE_SECONDS)
        assert not self._ended, "\n".join([*self._ended, self._told.report()])
        self._note(f"{sum(self._armed)} of {len(self._armed)} armed processes came by their place")
        self._note("nothing was lost")

    async def close(self) -> None:
        for task in self._under_way:
            await cancel(task)

    def _note(self, sentence: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {sentence}")

    def _do(self, action: Action) -> Awaitable[None]:
        which, seconds = action.which, action.seconds
        worker = self._told.workers[which % len(self._told.workers)]
        bot = self._told.bots[which % len(self._told.bots)]
        bot_places = BOT_PLACES[self._told.stage.name]
        cache, database = self._world.cache, self._world.database
        deeds: dict[str, Callable[[], Awaitable[None]]] = {
            "say": lambda: self._speak(which),
            "follow": lambda: self._follow(which),
            "kill worker": lambda: self._befalls(worker, processes.killed(worker, WORKER, seconds)),
            "kill bot": lambda: self._befalls(bot, processes.killed(bot, NO_WORKER, seconds)),
            "freeze worker": lambda: self._befalls(worker, processes.frozen(worker, seconds)),
            "freeze bot": lambda: self._befalls(bot, processes.frozen(bot, seconds)),
            "end worker": lambda: self._befalls(worker, processes.ended(worker, WORKER, seconds)),
            "arm worker": lambda: self._is_armed(worker, WORKER, WORKER_PLACES, action),
            "arm bot": lambda: self._is_armed(bot, NO_WORKER, bot_places, action),
            "platform": lambda: self._disturbed(which),
            "jump clock": lambda: self._jumped(action),
            "empty redis": self._emptied,
            "fill redis": lambda: self._filled(seconds),
            "restart redis": lambda: self._restarted("redis", cache, seconds / 2),
            "restart postgresql": lambda: self._restarted("postgresql", database, seconds / 4),
            "break connections": self._broken,
        }
        return deeds[action.name]()

    async def _speak(self, which: int, thread_id: str = "") -> None:
        self._words += 1
        kind = KINDS[which % len(KINDS)]
        told = await self._told.say(kind, f"w{self._words}x", thread_id=thread_id)
        self._said.append(told)
        if told.is_question:
            await self._answered(told)

    async def _answered(self, told: Told) -> None:
        """Presses the choice until the message is answered, as people do if the app does not respond."""
        platform, channel_id = self._told.stage.platform, self._told.stage.channel_id
        deadline = time.monotonic() + SETTLE_SECONDS
        while not self._told.has_ended(told.token):
            assert time.monotonic() < deadline, f"{told} gets no further\n{self._told.report()}"
            for message in messages_of(self._told.stage.view(), told.thread_id):
                for button in buttons_of(message):
                    if message.is_bot and button.label == CHOICE and not button.is_disabled:
                        with suppress(TimeoutError, ValueError):
                            await platform.press(
                                PERSON, channel_id, message.message_id, button.control_id
                            )
            await asyncio.sleep(CLICK_SECONDS)

    async def _follow(self, which: int) -> None:
        """Sends another message in a thread, once all earlier ones are answered."""
        threads = sorted({one.thread_id for one in self._said})
        if not threads:
            return
        thread_id = threads[which % len(threads)]
        async with self._alone(thread_id):
            tokens = [one.token for one in self._said if one.thread_id == thread_id]
            await self._told.until(
                lambda: all(self._told.has_ended(token) for token in tokens),
                f"all of {tokens} are answered, with no button left",
                seconds=SETTLE_SECONDS,
            )
            await self._speak(which // len(KINDS), thread_id)

    async def _befalls(self, program: Program, deed: Awaitable[None]) -> None:
        async with self._alone(program.log_path.name):
            await deed

    async def _is_armed(
        self, program: Program, arguments: tuple[str, ...], places: tuple[str, ...], action: Action
    ) -> None:
        place = failpoint(places, action.chance)
        async with self._alone(program.log_path.name):
            left = self._began + self._seconds - time.monotonic()
            if left < 0:
                return  # the storm sends no more messages
            is_up = asyncio.Event()
            work = spawn(self._employ(is_up, action.which), name="something to do for it")
            self._under_way.add(work)
            try:
                came_by = await processes.armed(
                    program,
                    arguments,
                    place,
                    action.seconds,
                    patience_seconds=min(max(left, ARMED_SECONDS[0]), ARMED_SECONDS[1]),
                    is_up=is_up,
                )
            finally:
                is_up.set()
        self._armed.append(came_by)
        await work
        self._note(f"{program.log_path.stem} {'came' if came_by else 'did not come'} by {place}")

    async def _employ(self, is_up: asyncio.Event, which: int) -> None:
        """Sends a Work message, which passes most failpoints, and a message of any kind."""
        await is_up.wait()
        await asyncio.gather(self._speak(KINDS.index("Work")), self._speak(which))

    async def _disturbed(self, which: int) -> None:
        kind, settings = fault(self._told.stage.name, which)
        self._told.stage.platform.misbehave(kind, **settings)

    async def _jumped(self, action: Action) -> None:
        if self._world.clocks:
            clock = self._world.clocks[action.which % len(self._world.clocks)]
            clock.jump(JUMPS_SECONDS[action.chance % len(JUMPS_SECONDS)])

    async def _emptied(self) -> None:
        async with self._alone("redis"), redis_client(self._world.cache.answer):
            pass  # entering the context empties Redis

    async def _filled(self, seconds: float) -> None:
        async with self._alone("redis"), full_redis(self._world.cache.answer):
            await asyncio.sleep(seconds)

    async def _restarted(
        self, name: str, server: Outage[str] | Outage[Callable[[str], str]], seconds: float
    ) -> None:
        async with self._alone(name):
            await server.begin()
            await asyncio.sleep(seconds)
            await server.end()

    async def _broken(self) -> None:
        async with self._alone("postgresql"):
            await self._told.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    async def _supervise(self) -> None:
        """Restarts processes that ended. Records those that ended for another reason than an unreachable server."""
        while True:
            await asyncio.sleep(0.5)
            for program in self._told.programs():
                if program.is_running or self._alone(program.log_path.name).locked():
                    continue
                said = program.log_of_this_start().strip().splitlines()[-1:]
                ending = f"{program.log_path.stem} ended with {program.returncode}: {said}"[:1000]
                self._note(ending)
                if program.returncode != COULD_NOT_START:
                    self._ended.append(ending)
                program.start(arguments=NO_WORKER if program in self._told.bots else WORKER)

    def _alone(self, name: str) -> asyncio.Lock:
        return self._busy.setdefault(name, asyncio.Lock())


async def storm(
    seed: int, seconds: float, platform: PlatformName, say: Callable[[str], None]
) -> None:
    """Runs a storm on two bots and three workers. Raises AssertionError if an invariant is violated at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(server_folder("thclock-"))
        clocks = clocks_that_jump(folder, 6)
        if not clocks:
            say("NOT TRIED: clocks that jump, since there is no libfaketime (Debian: faketime)")
        of_database = clocks[0].environment if clocks else {}
        database, cache, url = await stack.enter_async_context(servers(clock=of_database))
        told = await stack.enter_async_context(
            crew(platform, url, cache.answer, bots=2, workers=3, drain_seconds="3")
        )
        for program, clock in zip(told.programs(), clocks[1:], strict=False):
            program.environment |= clock.environment
        await told.start()
        raging = Storm(World(told=told, database=database, cache=cache, clocks=clocks), say)
        stack.push_async_callback(raging.close)
        await raging.rage(seed, seconds)
