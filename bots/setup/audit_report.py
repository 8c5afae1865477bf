"""`threadhand audit`: the last entries of the audit log, for whoever runs the program."""

from bots.inbound.commands.admin import line_of
from bots.settings import Settings
from storage.sql.database import open_database
from storage.sql.stores.audit import SqlAuditLog


async def report(settings: Settings, *, limit: int) -> list[str]:
    """One line for each of the last entries, the oldest first. Raises ConfigurationError, StorageUnavailable."""
    database = await open_database(settings.storage_url)
    try:
        found = await SqlAuditLog(database).newest(limit=limit)
    finally:
        await database.close()
    return [line_of(entry) for entry in reversed(found)]
