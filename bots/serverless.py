"""What the functions at Modal do: execute one run, and look after the sandboxes that are left."""

import asyncio
import logging

from bots.bootstrap import running
from bots.logs import configure
from bots.machines import machines
from bots.settings import Settings, load_process, secret_values
from core.errors import ConfigurationError
from sandbox.modal_sandboxes import ModalSandboxes
from storage.conversations import SqlConversations
from storage.opening import open_database
from storage.sandboxes import SqlSandboxRecords

LOOK_SECONDS = 0.5
UNENDED = ("queued", "running")
SHARED = (
    "Functions at Modal need a database that others reach too: set THREADHAND_DATABASE_URL to a PostgreSQL "
    "in the Secret named threadhand."
)

log = logging.getLogger(__name__)


async def execute_run(run_id: str, settings: Settings | None = None) -> None:
    """A worker of its own until that run has ended, or waits for people. What else it took meanwhile is handed back.

    Raises ConfigurationError.
    """
    settings = settings or _shared()
    database = await open_database(settings.storage_url)
    try:
        conversations = SqlConversations(database)
        if not await _is_unended(conversations, run_id):
            return
        async with running(settings, with_front=False):
            await _ended(conversations, run_id)
    finally:
        await database.close()


async def tidy(settings: Settings | None = None) -> None:
    """One round over the sandboxes of this database. Raises ConfigurationError."""
    settings = settings or _shared()
    database = await open_database(settings.storage_url)
    try:
        found = await machines(settings, SqlSandboxRecords(database))
        if not isinstance(found.provider, ModalSandboxes):
            raise ConfigurationError("The janitor is for Modal: set THREADHAND_SANDBOX=modal.")
        try:
            await found.provider.rounds.make()
            ended = await found.provider.sweep()
        finally:
            await found.provider.close()
        log.info("the janitor ended %d sandboxes that nobody remembered", ended)
    finally:
        await database.close()


async def _ended(conversations: SqlConversations, run_id: str) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not await _is_unended(conversations, run_id):
            return


async def _is_unended(conversations: SqlConversations, run_id: str) -> bool:
    run = await conversations.run(run_id)
    return run is not None and run.status in UNENDED


def _shared() -> Settings:
    settings = load_process()
    configure(settings.log_level, secret_values(settings), settings.log_format)
    if not settings.database_url.startswith("postgres"):
        raise ConfigurationError(SHARED)
    return settings
