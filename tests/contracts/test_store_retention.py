"""How long the audit log, the events of a run and the keys of what came in are kept, on each database."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from core.domain.audit import AuditEntry
from storage.sql.stores import audit, inbox
from storage.sql.stores.audit import insert_entry
from storage.sql.tables import claimed_keys
from tests.contracts.stores import ADDRESS, ALICE, TEST, Stores, added
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
    old = audit.SWEPT_AT_ONCE_MAX * 3
    await recorded(stores, [aged(400)] * old + [NOW])
    assert await swept_by(processes=4, sweep=lambda: stores.audit.delete_old_entries(older_than_days=365)) == old
    assert await stores.audit.newest_entries(limit=9) == (NOW,)


async def test_events_are_swept_some_time_after_the_end(stores: Stores) -> None:
    lease = await stores.started()
    await stores.journal.write(lease, added(lease, 1, "hello"))
    assert await stores.journal.sweep_events(older_than_hours=0) == 0
    await stores.finish(lease)
    assert await stores.journal.sweep_events(older_than_hours=-1) == 0, "they are still to be shown"
    await stores.show_all()
    assert await stores.journal.sweep_events(older_than_hours=24) == 0
    assert await stores.journal.sweep_events(older_than_hours=-1) == 1
    assert await stores.conversations.events(lease.run_id) == ()
    assert len(await stores.conversations.messages(lease.thread_id)) == 1


async def claimed(stores: Stores, count: int, *, days: float) -> None:
    rows = [
        {"dedupe_key": f"{days:g} days, {number}", "claimed_at": datetime.now(UTC) - timedelta(days=days)}
        for number in range(count)
    ]
    await stores.database.write(TEST, lambda c: c.execute(claimed_keys.insert(), rows).close())


async def count(stores: Stores) -> int:
    counting = select(func.count()).select_from(claimed_keys)
    return await stores.database.read(lambda c: c.execute(counting).scalar_one())


async def test_keys_older_than_they_are_kept_go_and_younger_ones_stay(stores: Stores) -> None:
    await claimed(stores, 3, days=31)
    await claimed(stores, 2, days=29)
    await stores.say("hello", key="m1")
    assert await stores.inbox.delete_old_keys(older_than_days=30) == 3
    assert await stores.inbox.delete_old_keys(older_than_days=30) == 0
    assert await count(stores) == 3
    assert await stores.inbox.is_key_claimed("m1")


async def test_sweeps_of_several_processes_take_each_key_once(stores: Stores) -> None:
    old = 2 * inbox.SWEPT_AT_ONCE_MAX + 1
    await claimed(stores, old, days=31)
    assert await swept_by(processes=3, sweep=lambda: stores.inbox.delete_old_keys(older_than_days=30)) == old
    assert await count(stores) == 0
