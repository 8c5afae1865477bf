"""`threadhand audit`: the last entries of the audit log, for whoever runs the program."""

from bots.audit import line_of
from bots.settings import Settings
from storage.audit import SqlAuditLog
from storage.opening import open_database


async def report(settings: Settings, *, limit: int) -> list[str]:
    """One line for each of the last entries, the oldest first. Raises ConfigurationError, StorageUnavailable."""
    database = await open_database(settings.storage_url)
    try:
        found = await SqlAuditLog(database).newest(limit=limit)
    finally:
        await database.close()
    return [line_of(entry) for entry in reversed(found)]
