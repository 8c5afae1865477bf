"""How long it is known what came in already, on each database."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from storage.sql.stores.inbox import SWEPT_AT_ONCE_MAX
from storage.sql.tables import claimed_keys
from tests.contracts.stores import TEST, Stores
from tests.contracts.sweeps import swept_by


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
    old = 2 * SWEPT_AT_ONCE_MAX + 1
    await claimed(stores, old, days=31)
    assert await swept_by(processes=3, sweep=lambda: stores.inbox.delete_old_keys(older_than_days=30)) == old
    assert await count(stores) == 0
