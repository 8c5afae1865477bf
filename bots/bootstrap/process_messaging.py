"""Builds the run queue, event bus and stop signals: over Redis if it is configured, otherwise in memory."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy.engine import make_url

from bots.delivery.rate_limiter import MemoryRateBudget, RateBudget
from bots.observability.logs import add_log_secrets
from bots.settings import Settings
from core.domain.errors import ConfigurationError
from core.ports import EventBus, RunQueue, StopSignals
from storage.memory.event_bus import MemoryEventBus
from storage.memory.run_queue import MemoryRunQueue, MemoryStopSignals

SHARED_SERVERS_REQUIRED = (
    "Separate workers need servers that all processes share: set THREADHAND_REDIS_URL, and THREADHAND_DATABASE_URL "
    "to a PostgreSQL database; or run `threadhand up`, which does all the work in one process."
)
MODAL_WORKER_REQUIREMENTS = (
    "Functions at Modal execute the runs (THREADHAND_MODAL_WORKER_APP) and need servers that they can reach: set "
    "THREADHAND_DATABASE_URL to a PostgreSQL database, THREADHAND_REDIS_URL, and THREADHAND_SANDBOX to modal or none; "
    "or remove that setting."
)
MODAL_WORKER_CONFLICT = (
    "Functions at Modal execute the runs (THREADHAND_MODAL_WORKER_APP), so a worker would get none: start only "
    "`threadhand up --no-worker`, or remove that setting."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messaging:
    """Notifies other parts of the program about changes.

    Lost messages do no harm, because the database is the source of truth. `ping` raises if the Redis server does not
    respond. It is None if messages stay in this process."""

    bus: EventBus = field(default_factory=MemoryEventBus)
    queue: RunQueue = field(default_factory=MemoryRunQueue)
    signals: StopSignals = field(default_factory=MemoryStopSignals)
    rates: RateBudget = field(default_factory=MemoryRateBudget)
    ping: Callable[[], Awaitable[object]] | None = None


def require_shared_servers(settings: Settings) -> None:
    """Raises ConfigurationError unless the settings name a database and Redis server that processes can share."""
    if not _has_shared_servers(settings):
        raise ConfigurationError(MODAL_WORKER_REQUIREMENTS if settings.modal_worker_app else SHARED_SERVERS_REQUIRED)


def check_worker_settings(settings: Settings, *, with_worker: bool) -> None:
    """Raises ConfigurationError if Modal functions should execute the runs but cannot, or would compete with a worker.

    `with_worker`: this process executes runs."""
    if not settings.modal_worker_app:
        return
    if with_worker:
        raise ConfigurationError(MODAL_WORKER_CONFLICT)
    if not _has_shared_servers(settings) or settings.sandbox not in ("modal", "none"):
        raise ConfigurationError(MODAL_WORKER_REQUIREMENTS)


def _has_shared_servers(settings: Settings) -> bool:
    backend = make_url(settings.storage_url).get_backend_name()
    return bool(settings.redis_url) and backend != "sqlite"


@asynccontextmanager
async def open_messaging(settings: Settings, queue: RunQueue | None = None) -> AsyncGenerator[Messaging, None]:
    """Context manager: yields messaging that is connected inside the block.

    `queue` replaces the queue from the settings. Raises ConfigurationError if Redis does not respond."""
    if not settings.redis_url:
        yield Messaging(queue=queue or MemoryRunQueue())
        return
    # imported only if Redis is configured, because the import takes 5 MB and 0.15 s
    from redis.exceptions import RedisError

    from storage.redis.event_bus import RedisEventBus
    from storage.redis.rate_budget import RedisRateBudget
    from storage.redis.run_queue import RedisRunQueue, RedisStopSignals
    from storage.redis.streams import READ_SECONDS_MAX, RedisBreaker, RedisStreams, create_redis_client

    async with AsyncExitStack() as stack:
        client = create_redis_client(settings.redis_url)
        stack.push_async_callback(client.aclose)
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                await client.ping()  # pyright: ignore[reportGeneralTypeIssues, reportUnknownMemberType] - typed as both kinds
        except (RedisError, OSError) as error:
            raise ConfigurationError(
                f"Redis does not answer ({type(error).__name__}): start it, or correct THREADHAND_REDIS_URL."
            ) from error
        breaker = RedisBreaker()
        streams = RedisStreams(client, breaker)
        stack.push_async_callback(streams.close)
        signals = RedisStopSignals(client, streams, breaker)
        await stack.enter_async_context(signals.listen())
        rates = RedisRateBudget(client, streams, MemoryRateBudget(), breaker)
        await stack.enter_async_context(rates.listen())
        if queue is None and settings.modal_worker_app:
            from sandbox.modal.account import ModalAccount
            from sandbox.modal.run_queue import open_modal_run_queue
            from storage.redis.run_queue import RedisHandovers

            account = ModalAccount(settings.modal_worker_app)
            add_log_secrets(account.secrets)
            queue = await stack.enter_async_context(open_modal_run_queue(account, RedisHandovers(client, breaker)))
        yield Messaging(
            bus=RedisEventBus(client, streams, breaker),
            queue=queue or RedisRunQueue(client, breaker),
            signals=signals,
            rates=rates,
            ping=client.ping,  # pyright: ignore[reportUnknownMemberType, reportArgumentType] - typed as both kinds
        )
