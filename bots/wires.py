"""What carries wake-ups and live events between the parts of the program: memory, or Redis where there are many."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy.engine import make_url

from bots.rate_budget import RateBudget
from bots.rate_memory import MemoryRateBudget
from bots.settings import Settings
from core.errors import ConfigurationError
from core.ports import EventBus, RunQueue, StopSignals
from storage.memory_bus import MemoryEventBus
from storage.memory_queue import MemoryRunQueue, MemoryStopSignals

NEEDS_SERVERS = (
    "Workers of their own need servers that all processes share: set THREADHAND_REDIS_URL, and THREADHAND_DATABASE_URL "
    "to a PostgreSQL database; or run `threadhand up`, which does all the work in one process."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """None of them is the truth: what is lost on them is found again in the database. `ping` raises where the
    server between them does not answer; None: they need none."""

    bus: EventBus = field(default_factory=MemoryEventBus)
    queue: RunQueue = field(default_factory=MemoryRunQueue)
    signals: StopSignals = field(default_factory=MemoryStopSignals)
    rates: RateBudget = field(default_factory=MemoryRateBudget)
    ping: Callable[[], Awaitable[object]] | None = None


def require_servers(settings: Settings) -> None:
    """Raises ConfigurationError where several processes could not work on the same runs."""
    backend = make_url(settings.storage_url).get_backend_name()
    if not settings.redis_url or backend == "sqlite":
        raise ConfigurationError(NEEDS_SERVERS)


@asynccontextmanager
async def wires(settings: Settings) -> AsyncGenerator[Wires, None]:
    """Raises ConfigurationError where the Redis of the settings does not answer."""
    if not settings.redis_url:
        yield Wires()
        return
    # only where it is set: its import costs 5 MB and 0.15 s
    from redis.exceptions import RedisError

    from storage.redis_bus import RedisEventBus
    from storage.redis_queue import RedisRunQueue, RedisStopSignals
    from storage.redis_rates import RedisRateBudget
    from storage.redis_streams import RedisStreams, answering, connect

    async with AsyncExitStack() as stack:
        client = connect(settings.redis_url)
        stack.push_async_callback(client.aclose)
        try:
            async with answering():
                await client.ping()  # pyright: ignore[reportGeneralTypeIssues, reportUnknownMemberType] - typed as both kinds
        except (RedisError, OSError) as error:
            raise ConfigurationError(
                f"Redis does not answer ({type(error).__name__}): start it, or correct THREADHAND_REDIS_URL."
            ) from error
        streams = RedisStreams(client)
        stack.push_async_callback(streams.close)
        signals = RedisStopSignals(client, streams)
        await stack.enter_async_context(signals.listening())
        rates = RedisRateBudget(client, streams, MemoryRateBudget())
        await stack.enter_async_context(rates.listening())
        yield Wires(
            bus=RedisEventBus(client, streams),
            queue=RedisRunQueue(client),
            signals=signals,
            rates=rates,
            ping=client.ping,  # pyright: ignore[reportUnknownMemberType, reportArgumentType] - typed as both kinds
        )
