"""Random trouble for a crew at work: the same seed brings the same actions, and in the end nothing may be lost."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from core.tasks import cancel, spawn
from tests.chaos.crew import NO_WORKER, WORKER, Crew, Told, crew
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import Outage, servers
from tests.chaos.program import Program
from tests.contracts.redis_servers import redis_client

SETTLE_SECONDS = 240.0
KINDS = ("Hello", "Work", "Stream")
FAULTS: tuple[tuple[str, dict[str, str | float | int]], ...] = (
    ("duplicate", {"times": 3}),
    ("reorder", {"seconds": 0.5}),
    ("rate_limit", {"times": 4, "seconds": 1}),
    ("error_after", {"method": "chat.postMessage", "times": 1}),
    ("timeout_after", {"method": "chat.postMessage", "times": 1}),
    ("server_error", {"times": 3}),
    ("drop_connection", {}),
    ("reconnect", {}),
)
WEIGHTS = {
    "say": 10,
    "follow": 5,
    "kill worker": 3,
    "kill bot": 2,
    "freeze worker": 3,
    "freeze bot": 1,
    "end worker": 2,
    "platform": 5,
    "empty redis": 1,
    "restart redis": 1,
    "restart postgresql": 1,
    "break connections": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`which` and `seconds` mean what the action makes of them: a process, a thread, a fault; how long."""

    name: str
    which: int
    seconds: float
    pause_seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.which}, {self.seconds:.1f} s"


def actions(seed: int) -> Iterator[Action]:
    """Without an end; the same ones for the same seed."""
    chance = random.Random(seed)
    while True:
        yield Action(
            name=chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0],
            which=chance.randrange(1000),
            seconds=chance.uniform(0.5, 7.0),
            pause_seconds=chance.uniform(0.3, 2.5),
        )


class Storm:
    """A crew in trouble. State: what was said, and what still goes on in the background."""

    def __init__(
        self,
        told: Crew,
        database: Outage[Callable[[str], str]],
        cache: Outage[str],
        say: Callable[[str], None],
    ) -> None:
        self._told = told
        self._database = database
        self._cache = cache
        self._say = say
        self._began = time.monotonic()
        self._words = 0
        self._said: list[Told] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: dict[str, asyncio.Lock] = {}

    async def rage(self, seed: int, seconds: float) -> None:
        """So long; then everything is given back, and what must hold is checked."""
        for action in actions(seed):
            if time.monotonic() - self._began > seconds:
                break
            self._note(str(action))
            task = spawn(self._do(action), name=action.name)
            self._under_way.add(task)
            await asyncio.sleep(action.pause_seconds)
        for task in self._under_way:
            await task
        self._told.stage.platform.misbehave("none")
        self._note(f"{len(self._told.told)} words were said; now it has to come to rest")
        await settle_and_check(self._told, seconds=SETTLE_SECONDS)
        self._note("nothing was lost")

    async def close(self) -> None:
        for task in self._under_way:
            await cancel(task)

    def _note(self, sentence: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {sentence}")

    def _do(self, action: Action) -> Awaitable[None]:
        told, which, seconds = self._told, action.which, action.seconds
        worker = told.workers[which % len(told.workers)]
        bot = told.bots[which % len(told.bots)]
        deeds: dict[str, Callable[[], Awaitable[None]]] = {
            "say": lambda: self._speak(which),
            "follow": lambda: self._follow(which),
            "kill worker": lambda: self._killed(worker, WORKER, seconds),
            "kill bot": lambda: self._killed(bot, NO_WORKER, seconds),
            "freeze worker": lambda: self._frozen(worker, seconds),
            "freeze bot": lambda: self._frozen(bot, seconds),
            "end worker": lambda: self._ended(worker, seconds),
            "platform": lambda: self._disturbed(which),
            "empty redis": self._emptied,
            "restart redis": lambda: self._restarted(self._cache, seconds / 2),
            "restart postgresql": lambda: self._restarted(self._database, seconds / 4),
            "break connections": self._broken,
        }
        return deeds[action.name]()

    async def _speak(self, which: int, thread_id: str = "") -> None:
        self._words += 1
        kind = KINDS[which % len(KINDS)]
        self._said.append(await self._told.say(kind, f"w{self._words}x", thread_id=thread_id))

    async def _follow(self, which: int) -> None:
        """Goes on in a thread once its last word is answered."""
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
            await self._speak(which, thread_id)

    async def _killed(self, program: Program, arguments: tuple[str, ...], seconds: float) -> None:
        async with self._alone(str(program.log_path)):
            program.kill()
            await asyncio.sleep(seconds)
            program.start(arguments=arguments)

    async def _frozen(self, program: Program, seconds: float) -> None:
        async with self._alone(str(program.log_path)):
            program.pause()
            await asyncio.sleep(seconds)
            program.resume()

    async def _ended(self, program: Program, seconds: float) -> None:
        async with self._alone(str(program.log_path)):
            program.terminate()
            await program.ended(60)
            await asyncio.sleep(seconds)
            program.start(arguments=WORKER)

    async def _disturbed(self, which: int) -> None:
        fault, settings = FAULTS[which % len(FAULTS)]
        self._told.stage.platform.misbehave(fault, **settings)

    async def _emptied(self) -> None:
        async with self._alone("redis"), redis_client(self._cache.answer):
            pass  # which empties it

    async def _restarted(
        self, server: Outage[str] | Outage[Callable[[str], str]], seconds: float
    ) -> None:
        async with self._alone("redis" if server is self._cache else "postgresql"):
            await server.begin()
            await asyncio.sleep(seconds)
            await server.end()

    async def _broken(self) -> None:
        async with self._alone("postgresql"):
            await self._told.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def _alone(self, name: str) -> asyncio.Lock:
        return self._busy.setdefault(name, asyncio.Lock())


async def storm(seed: int, seconds: float, say: Callable[[str], None]) -> None:
    """Two bots and three workers in Slack. Raises AssertionError where something does not hold in the end."""
    async with AsyncExitStack() as stack:
        database, cache, url = await stack.enter_async_context(servers())
        told = await stack.enter_async_context(
            crew("slack", url, cache.answer, bots=2, workers=3, drain_seconds="3")
        )
        await told.start()
        raging = Storm(told, database, cache, say)
        stack.push_async_callback(raging.close)
        await raging.rage(seed, seconds)
