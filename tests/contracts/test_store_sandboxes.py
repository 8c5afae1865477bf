"""What is remembered of sandboxes: in memory and on each database the same."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.domain.sandbox_records import SandboxRecord, SandboxRecords
from sandbox.memory_records import MemorySandboxRecords
from storage.sql.stores.sandboxes import SqlSandboxRecords
from tests.contracts.stores import Stores

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
Kept = tuple[SandboxRecords, str]


@pytest.fixture(params=["memory", "database"])
async def kept(request: pytest.FixtureRequest, stores: Stores) -> Kept:
    """Records, and a thread to keep one for."""
    if request.param == "memory":
        return MemorySandboxRecords(), "thread"
    lease = await stores.started()
    return SqlSandboxRecords(stores.database), lease.thread_id


def record(thread_id: str, **changes: object) -> SandboxRecord:
    fresh = SandboxRecord(
        thread_id=thread_id, provider="modal", provider_ref="sb-1", state="started", snapshot_ref=None, last_used_at=NOW
    )
    return replace(fresh, **changes)


async def test_a_record_comes_back_as_it_was_stored(kept: Kept) -> None:
    records, thread_id = kept
    assert await records.find("modal", thread_id) is None
    first = record(thread_id, snapshot_ref="im-1")
    assert await records.replace(first, expected=None)
    assert await records.find("modal", thread_id) == first
    assert await records.find("local", thread_id) is None


async def test_who_comes_second_changes_nothing(kept: Kept) -> None:
    records, thread_id = kept
    first = record(thread_id)
    assert await records.replace(first, expected=None)
    assert not await records.replace(record(thread_id, provider_ref="sb-2"), expected=None)
    saved = record(thread_id, snapshot_ref="im-1")
    assert await records.replace(saved, expected=first)
    assert not await records.replace(record(thread_id, snapshot_ref="im-2"), expected=first)
    assert await records.find("modal", thread_id) == saved


async def test_use_by_another_process_is_no_change(kept: Kept) -> None:
    records, thread_id = kept
    first = record(thread_id)
    later = record(thread_id, last_used_at=NOW + timedelta(minutes=1))
    assert await records.replace(first, expected=None)
    assert await records.replace(later, expected=first)
    assert await records.replace(record(thread_id, state="stopped"), expected=first)


async def test_a_removed_record_is_gone(kept: Kept) -> None:
    records, thread_id = kept
    await records.remove("modal", thread_id)
    assert await records.replace(record(thread_id), expected=None)
    await records.remove("modal", thread_id)
    assert await records.find("modal", thread_id) is None
    assert not await records.replace(record(thread_id), expected=record(thread_id))


async def test_those_that_nobody_used_are_found(kept: Kept) -> None:
    records, thread_id = kept
    await records.replace(record(thread_id, state="stopped"), expected=None)
    later = NOW + timedelta(seconds=1)
    found = await records.list_unused("modal", states=["stopped"], unused_since=later)
    assert [one.thread_id for one in found] == [thread_id]
    assert not await records.list_unused("modal", states=["stopped"], unused_since=NOW)
    assert not await records.list_unused("modal", states=["started"], unused_since=later)
    assert not await records.list_unused("local", states=["stopped"], unused_since=later)


async def test_a_thread_that_is_gone_keeps_no_record(stores: Stores) -> None:
    lease = await stores.started()
    records = SqlSandboxRecords(stores.database)
    assert await records.replace(record(lease.thread_id), expected=None)
    await stores.conversations.delete_thread(lease.thread_id)
    assert await records.find("modal", lease.thread_id) is None
    assert not await records.replace(record(lease.thread_id), expected=None)
