"""The functions at Modal: one executes a run, one deletes forgotten sandboxes."""

import asyncio
import importlib
import logging

from bots.bootstrap.program import run_program
from bots.bootstrap.sandboxes import build_sandboxes
from bots.observability.logs import configure_logging
from bots.settings import Settings, load_process_settings, load_settings, process_environment, settings_secrets
from core.domain.errors import ConfigurationError
from sandbox.modal.provider import ModalSandboxProvider
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.database import Database, opened_database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.sandboxes import SqlSandboxRecords

POLL_SECONDS = 0.5
UNFINISHED = ("queued", "running")
SHARED_DATABASE_REQUIRED = (
    "Functions at Modal need a database that other processes share: set THREADHAND_DATABASE_URL to a PostgreSQL "
    "in the Secret named threadhand."
)

log = logging.getLogger(__name__)


def import_configured_clients() -> None:
    """Imports what each start of the program needs besides this module, for a snapshot of the memory."""
    try:
        settings = load_settings(process_environment(), None)
        clients = (
            ("storage.sql.postgresql", settings.database_url.startswith("postgres")),
            ("storage.redis.event_bus", settings.redis_url),
            ("bots.slack.app", settings.slack_mode != "off"),
            ("bots.discord.app", settings.discord_token.get_secret_value()),
        )
    except ConfigurationError:
        return  # each call raises it
    for module, is_configured in clients:
        if is_configured:
            importlib.import_module(module)


async def execute_run(run_id: str, settings: Settings | None = None) -> None:
    """Runs a worker for this run only, until the run ends, waits for people, or belongs to another worker. Its sandbox
    is saved and goes on: the bot reads files from it, the next run uses it, and the janitor stops it.

    Raises ConfigurationError."""
    settings = settings or _load_settings()
    async with opened_database(settings.storage_url) as database:
        record = _RunRecord(database, run_id)
        if await record.is_not_for(""):
            return
        async with run_program(settings, with_chat=False, queue=SingleRunQueue(run_id)) as program:
            while not await record.is_not_for(program.worker_id):
                await record.wait_until_not_for(program.worker_id)
                # end the handover early, because a user may answer the run's question within a minute
                if settings.redis_url:
                    # imported only if it is used, because importing the client takes 0.1 s
                    from storage.redis.run_queue import RedisHandovers
                    from storage.redis.streams import create_redis_client

                    client = create_redis_client(settings.redis_url)
                    try:
                        await RedisHandovers(client).end(run_id)
                    finally:
                        await client.aclose()


async def sweep_sandboxes(settings: Settings | None = None) -> None:
    """Stops idle sandboxes of this database once, and deletes those that no record names. Raises ConfigurationError."""
    settings = settings or _load_settings()
    async with opened_database(settings.storage_url) as database:
        found = await build_sandboxes(settings, SqlSandboxRecords(database))
        if not isinstance(found.provider, ModalSandboxProvider):
            raise ConfigurationError("The janitor is for Modal: set THREADHAND_SANDBOX=modal.")
        try:
            await found.provider.background_jobs.run_once()
            ended = await found.provider.terminate_orphans()
        finally:
            await found.provider.close()
        log.info("the janitor ended %d sandboxes without a record", ended)


class SingleRunQueue(MemoryRunQueue):
    """The queue inside a function. It ignores every run except the run of that function."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id

    async def put(self, run_id: str) -> None:
        if run_id == self._run_id:
            await super().put(run_id)


class _RunRecord:
    """Reads a run's status from the database."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._conversations = SqlConversations(database)
        self._claims = SqlRunClaims(database)
        self._run_id = run_id

    async def wait_until_not_for(self, worker_id: str) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await self.is_not_for(worker_id):
                return

    async def is_not_for(self, worker_id: str) -> bool:
        """Whether this worker must leave the run: it ended, waits for people, or belongs to another live worker."""
        run = await self._conversations.run(self._run_id)
        if run is None or run.status not in UNFINISHED:
            return True
        if run.status == "queued" or self._run_id in await self._claims.claimable_runs():
            return False
        return self._run_id not in {lease.run_id for lease in await self._claims.held_leases(worker_id)}


def _load_settings() -> Settings:
    settings = load_process_settings()
    configure_logging(settings.log_level, settings_secrets(settings), settings.log_format)
    if not settings.database_url.startswith("postgres"):
        raise ConfigurationError(SHARED_DATABASE_REQUIRED)
    return settings
