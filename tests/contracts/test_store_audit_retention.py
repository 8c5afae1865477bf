"""How long the audit log is kept, on each database."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.domain.audit import AuditEntry
from storage.sql.stores.audit import SWEPT_AT_ONCE_MAX, insert_entry
from tests.contracts.stores import ADDRESS, ALICE, TEST, Stores
from tests.contracts.sweeps import swept_by

NOW = AuditEntry(action="run_requested", actor=ALICE, address=ADDRESS, happened_at=datetime.now(UTC))


def aged(days: float) -> AuditEntry:
    return replace(NOW, happened_at=NOW.happened_at - timedelta(days=days))


async def recorded(stores: Stores, entries: Sequence[AuditEntry]) -> None:
    await stores.database.write(TEST, lambda c: [insert_entry(c, entry) for entry in entries])


async def test_entries_older_than_they_are_kept_go_and_younger_ones_stay(stores: Stores) -> None:
    await recorded(stores, [aged(400), aged(366), aged(364), NOW])
    assert await stores.audit.delete_old_entries(older_than_days=365) == 2
    assert await stores.audit.delete_old_entries(older_than_days=365) == 0
    assert await stores.audit.newest_entries(limit=9) == (NOW, aged(364))


async def test_sweeps_of_several_processes_take_each_entry_once(stores: Stores) -> None:
    old = SWEPT_AT_ONCE_MAX * 3
    await recorded(stores, [aged(400)] * old + [NOW])
    assert await swept_by(processes=4, sweep=lambda: stores.audit.delete_old_entries(older_than_days=365)) == old
    assert await stores.audit.newest_entries(limit=9) == (NOW,)
