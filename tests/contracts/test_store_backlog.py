"""The contract of `core.observability.Backlogs`, on each database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from core.domain.approval import Approval, CallToApprove
from core.stores import JournalEntry
from storage.sql.database import Database
from storage.sql.stores.run_claims import SqlBacklogs
from storage.sql.tables import runs
from tests.contracts.stores import ADDRESS, TEST, Stores
from tests.support.narrow import require


async def test_a_queued_run_grows_old_until_it_is_taken_up(database: Database, stores: Stores) -> None:
    receipt = await stores.say("hello")
    then = update(runs).values(created_at=datetime.now(UTC) - timedelta(seconds=90))
    await database.write(TEST, lambda c: c.execute(then).close())
    found = await SqlBacklogs(database).backlog()
    assert found.runs == {"queued": 1, "running": 0, "waiting": 0}
    assert found.oldest_queued_seconds == pytest.approx(90, abs=30)
    assert found.open_deliveries == 1
    require(await stores.claims.claim(receipt.run_id or "", "w1"))
    found = await SqlBacklogs(database).backlog()
    assert found.runs == {"queued": 0, "running": 1, "waiting": 0}
    assert found.oldest_queued_seconds == 0


async def test_a_run_that_is_handed_back_waits_from_then_on(database: Database, stores: Stores) -> None:
    lease = await stores.started()
    await made_long_ago(database)
    await stores.claims.release(lease)
    assert await oldest(database) < 300


async def test_a_run_that_goes_on_with_an_answer_waits_from_then_on(database: Database, stores: Stores) -> None:
    lease = await stores.started()
    await made_long_ago(database)
    call = CallToApprove(index=0, tool="echo", headline="Say it?", arguments={})
    approval = Approval(turn_id="t", calls=(call,))
    await stores.journal.suspend_run(lease, JournalEntry(), approval)
    assert await oldest(database) == 0
    await stores.say("rather not")
    found = await SqlBacklogs(database).backlog()
    assert found.runs["queued"] == 1
    assert found.oldest_queued_seconds < 300


async def test_of_several_the_one_that_waits_longest_is_told(database: Database, stores: Stores) -> None:
    lease = await stores.started()
    await stores.say("hello", address=replace(ADDRESS, thread_key="200.1"))
    await made_long_ago(database)
    await stores.claims.release(lease)
    assert await oldest(database) == pytest.approx(3600, abs=300)


async def made_long_ago(database: Database) -> None:
    """All runs so far, an hour ago."""
    then = update(runs).values(created_at=datetime.now(UTC) - timedelta(hours=1))
    await database.write(TEST, lambda c: c.execute(then).close())


async def oldest(database: Database) -> float:
    return (await SqlBacklogs(database).backlog()).oldest_queued_seconds


async def test_only_processes_whose_hearts_beat_are_counted(database: Database, stores: Stores) -> None:
    await stores.claims.heartbeat("w1")
    await stores.claims.heartbeat("w2")
    await stores.silence("w2")
    found = await SqlBacklogs(database).backlog()
    assert found.processes_alive == 1
    assert 0 <= found.oldest_heartbeat_seconds <= 4
