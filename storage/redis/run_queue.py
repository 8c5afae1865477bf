"""Run queue, stop signals and handovers of many processes: a sorted set, a stream, and keys that expire."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.failpoints import Failpoint
from core.tasks import spawn
from storage.memory.run_queue import MemoryStopSignals
from storage.redis.streams import Fields, RedisBreaker, RedisStreams, StreamListener

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
GRACE_SECONDS = 1.0
"""An entry that arrives later than this is lost, and the sweep finds its run."""
KEPT_MAX = 1_000
_STOPS = "threadhand:stops"
_STOPS_LENGTH_MAX = 1_000
_PUT = Failpoint("redis.put")
_SEND = Failpoint("redis.send_stop")


_ENQUEUE = "return redis.call('ZADD', KEYS[1], 'NX', redis.call('INCR', KEYS[2]), ARGV[1])"
"""Adds a run behind all others, unless it is queued already."""


class RedisRunQueue:
    """`core.ports.RunQueue`: a sorted set of runs, by the order of their arrival.

    Claiming an entry removes it. After that, the lease in the database determines who has the run, and the workers'
    sweep finds runs of dead workers. Entries that Redis does not accept are kept for claims of this process. The sweep
    finds every run, so without Redis runs start late but are not lost."""

    def __init__(self, client: Redis, breaker: RedisBreaker | None = None, *, name: str = "threadhand:runs") -> None:
        self._client = client
        self._breaker = breaker or RedisBreaker()
        self._name = name
        self._enqueue = client.register_script(_ENQUEUE)
        self._kept: deque[str] = deque(maxlen=KEPT_MAX)
        self._unsent: deque[str] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def put(self, run_id: str) -> None:
        """Does not wait for Redis, because users wait for the caller."""
        if run_id in self._unsent:
            return
        self._unsent.append(run_id)
        if self._sending is None or self._sending.done():
            self._sending = spawn(self._send(), name="run queue")

    async def _send(self) -> None:
        while self._unsent:
            run_id = self._unsent.popleft()
            try:
                with _PUT:
                    async with self._breaker.call():
                        await self._enqueue(keys=[self._name, f"{self._name}:count"], args=[run_id])
            except (RedisError, OSError) as error:
                log.debug("redis did not accept run %s: %s", run_id, error)
                if run_id not in self._kept:
                    self._kept.append(run_id)

    async def get(self) -> str:
        while True:
            if self._kept:
                return self._kept.popleft()
            try:
                async with asyncio.timeout(WAIT_SECONDS + GRACE_SECONDS):
                    entry = await self._client.bzpopmin(self._name, timeout=WAIT_SECONDS)
            except (RedisError, OSError) as error:
                log.warning("the run queue does not answer: %s", error)
                await asyncio.sleep(WAIT_SECONDS)
                continue
            if entry is not None:
                return entry[1].decode()


class RedisStopSignals:
    """`core.ports.StopSignals`: wakes the worker that runs it, in any process. The request itself is in the
    database."""

    def __init__(self, client: Redis, streams: RedisStreams, breaker: RedisBreaker | None = None) -> None:
        self._client = client
        self._streams = streams
        self._breaker = breaker or RedisBreaker()
        self._here = MemoryStopSignals()

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[None, None]:
        """Context manager: inside the block, this process receives stop signals of others."""

        def on_entry(fields: Fields) -> None:
            self._here.wake(fields.get(b"run", b"").decode(errors="replace"))

        async with self._streams.listen(_STOPS, StreamListener(on_entry, self._here.wake_all)):
            yield

    async def send(self, run_id: str) -> None:
        """Does not wait for Redis."""
        self._here.wake(run_id)
        spawn(self._send(run_id), name=f"stop signal for {run_id}")

    async def _send(self, run_id: str) -> None:
        try:
            with _SEND:
                async with self._breaker.call():
                    await self._client.xadd(_STOPS, {"run": run_id}, maxlen=_STOPS_LENGTH_MAX)
        except (RedisError, OSError) as error:
            log.debug("the stop signal for run %s reached only this process: %s", run_id, error)

    async def wait(self, run_id: str) -> None:
        await self._here.wait(run_id)


HANDOVER_SECONDS = 60
HANDOVERS_KEPT_MAX = 10_000
_BEGIN = Failpoint("redis.begin_handover")
_END = Failpoint("redis.end_handover")


class RedisHandovers:
    """Makes sure that only one process hands a run over to a Modal function. A handover is open for a minute, or until
    the function is done with the run. Without Redis, each process can check only its own handovers."""

    def __init__(self, client: Redis, breaker: RedisBreaker | None = None) -> None:
        self._client = client
        self._breaker = breaker or RedisBreaker()
        self._begun: dict[str, float] = {}

    async def begin(self, run_id: str) -> bool:
        """Returns True if the caller should hand the run over, because no process has within a minute."""
        try:
            with _BEGIN:
                async with self._breaker.call():
                    is_first = await self._client.set(_key(run_id), b"1", nx=True, ex=HANDOVER_SECONDS)
        except (RedisError, OSError) as error:
            log.debug("the handover of run %s is known only to this process: %s", run_id, error)
            begun_at = self._begun.get(run_id)
            is_first = not (begun_at is not None and time.monotonic() - begun_at < HANDOVER_SECONDS)
        if is_first:
            self._begun.pop(run_id, None)
            self._begun[run_id] = time.monotonic()
            while len(self._begun) > HANDOVERS_KEPT_MAX:
                self._begun.pop(next(iter(self._begun)))
        return bool(is_first)

    async def end(self, run_id: str) -> None:
        """Allows the run to be handed over again."""
        self._begun.pop(run_id, None)
        try:
            with _END:
                async with self._breaker.call():
                    await self._client.delete(_key(run_id))
        except (RedisError, OSError) as error:
            log.warning("run %s can be handed over again only in a minute: %s", run_id, error)


def _key(run_id: str) -> str:
    return f"threadhand:handover:{run_id}"
