"""What the functions at Modal do: execute one run, and look after the sandboxes that are left."""

import asyncio
import logging

from bots.bootstrap.modal_queue import SingleRunQueue
from bots.bootstrap.program import run_program
from bots.bootstrap.sandboxes import build_sandboxes
from bots.observability.logs import configure_logging
from bots.settings import Settings, load_process_settings, secret_values
from core.domain.errors import ConfigurationError
from sandbox.modal.provider import ModalSandboxProvider
from storage.redis.run_queue import RedisHandovers
from storage.redis.streams import create_redis_client
from storage.sql.database import Database, open_database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.sandboxes import SqlSandboxRecords

LOOK_SECONDS = 0.5
SHOWN_SECONDS_MAX = 60.0
UNENDED = ("queued", "running")
SHARED = (
    "Functions at Modal need a database that others reach too: set THREADHAND_DATABASE_URL to a PostgreSQL "
    "in the Secret named threadhand."
)

log = logging.getLogger(__name__)


async def execute_run(run_id: str, settings: Settings | None = None) -> None:
    """A worker for that run alone, until it has ended, or waits for people, or another worker has it.

    Raises ConfigurationError.
    """
    settings = settings or _shared()
    database = await open_database(settings.storage_url)
    try:
        book = _RunRecord(database, run_id)
        if await book.is_of_others(""):
            return
        async with run_program(settings, with_front=False, queue=SingleRunQueue(run_id)) as program:
            while not await book.is_of_others(program.worker_id):
                await book.until_of_others(program.worker_id)
                await _end_handover(settings, run_id)
                await book.until_shown(program.worker_id)
    finally:
        await database.close()


async def sweep_sandboxes(settings: Settings | None = None) -> None:
    """One round over the sandboxes of this database. Raises ConfigurationError."""
    settings = settings or _shared()
    database = await open_database(settings.storage_url)
    try:
        found = await build_sandboxes(settings, SqlSandboxRecords(database))
        if not isinstance(found.provider, ModalSandboxProvider):
            raise ConfigurationError("The janitor is for Modal: set THREADHAND_SANDBOX=modal.")
        try:
            await found.provider.rounds.make()
            ended = await found.provider.sweep()
        finally:
            await found.provider.close()
        log.info("the janitor ended %d sandboxes that nobody remembered", ended)
    finally:
        await database.close()


class _RunRecord:
    """What is on record of a run."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._conversations = SqlConversations(database)
        self._claims = SqlRunClaims(database)
        self._deliveries = SqlDeliveries(database)
        self._run_id = run_id

    async def until_of_others(self, worker_id: str) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await self.is_of_others(worker_id):
                return

    async def is_of_others(self, worker_id: str) -> bool:
        """Whether there is nothing to do for that worker: the run has ended, waits for people, or has a living one."""
        run = await self._conversations.run(self._run_id)
        if run is None or run.status not in UNENDED:
            return True
        if run.status == "queued" or self._run_id in await self._claims.claimable_runs():
            return False
        return self._run_id not in {lease.run_id for lease in await self._claims.held(worker_id)}

    async def until_shown(self, worker_id: str) -> None:
        """The bot takes the files that it shows out of the sandbox, which ends with the function."""
        for _ in range(int(SHOWN_SECONDS_MAX / LOOK_SECONDS)):
            unseen = await self._deliveries.open_runs(for_worker=worker_id)
            if self._run_id in unseen or self._run_id not in await self._deliveries.open_runs():
                return
            await asyncio.sleep(LOOK_SECONDS)


async def _end_handover(settings: Settings, run_id: str) -> None:
    """A person may answer what the run asks before a minute is over."""
    if settings.redis_url:
        client = create_redis_client(settings.redis_url)
        try:
            await RedisHandovers(client).end(run_id)
        finally:
            await client.aclose()


def _shared() -> Settings:
    settings = load_process_settings()
    configure_logging(settings.log_level, secret_values(settings), settings.log_format)
    if not settings.database_url.startswith("postgres"):
        raise ConfigurationError(SHARED)
    return settings
