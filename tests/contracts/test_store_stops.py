"""What a stop covers, which messages show how a run ended, and the order that many clocks make, on each database."""

import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from core.domain import ids
from core.domain.threads import Accept, Attention, StopRun
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, COMPLETED, STOPPED, Stores, asking, deciding, message
from tests.contracts.test_store_asks import APPROVAL
from tests.support.narrow import require

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


async def stop(stores: Stores, seconds: float) -> None:
    wish = replace(message("stop", key=f"stop {seconds}", kind="answer"), message_ref="")
    await stores.inbox.accept_action(replace(wish, sent_at=at(seconds)), deciding(StopRun(until=at(seconds))))


async def unread(stores: Stores, thread_id: str) -> list[str]:
    return [one.text for one in await stores.conversations.unread_inputs(thread_id)]


@pytest.mark.parametrize("is_late", [False, True], ids=["in order", "the stop comes last"])
async def test_what_is_sent_after_a_stop_starts_another_run(stores: Stores, *, is_late: bool) -> None:
    said = await stores.say("a", sent_at=at(0))
    await stores.say("b", sent_at=at(1))
    if not is_late:
        await stop(stores, 2)
    await stores.say("c", sent_at=at(3))
    if is_late:
        await stop(stores, 2)
    runs = await stores.conversations.runs(said.thread_id or "")
    assert [one.status for one in runs] == ["stopped", "queued"]
    assert await unread(stores, said.thread_id or "") == ["c"]


async def test_a_deleted_request_is_kept_nowhere_and_takes_no_later_one_along(stores: Stores) -> None:
    said = await stores.say("the password is x", key="m1", sent_at=at(0))
    await stores.say("my own request", key="m2", sent_at=at(10))
    gone = replace(message("", key="gone", kind="delete"), message_ref="m1", sent_at=at(5))
    await stores.inbox.accept_action(gone, deciding(StopRun(until=at(5))))
    thread_id = said.thread_id or ""
    assert await stores.conversations.llm_messages(thread_id) == ()
    assert await unread(stores, thread_id) == ["my own request"]
    runs = await stores.conversations.runs(thread_id)
    assert [one.status for one in runs] == ["stopped", "queued"]


async def test_a_stop_of_unknown_time_covers_what_has_come_so_far(stores: Stores) -> None:
    said = await stores.say("a", sent_at=at(0))
    await stores.say("b", sent_at=at(9))
    assert await stores.stops.request_stop(said.run_id or "")
    assert await unread(stores, said.thread_id or "") == []
    assert len(await stores.conversations.runs(said.thread_id or "")) == 1


async def test_a_message_after_a_stop_counts_although_one_before_it_was_deleted(stores: Stores) -> None:
    said = await stores.say("a", key="m1", sent_at=at(0))
    lease = require(await stores.claims.claim(said.run_id or "", "w1"))
    (first,) = await stores.journal.read_inputs(lease)
    await stores.journal.write(lease, JournalEntry(taken_input_ids=(first.input_id,)))
    await stores.say("b", key="m2", sent_at=at(1))
    await stop(stores, 2)
    gone = message("", key="gone", kind="delete")
    await stores.inbox.accept_action(replace(gone, message_ref="m2", sent_at=at(3)), deciding(Accept()))
    await stores.say("c", key="m3", sent_at=at(4))
    assert require(await stores.conversations.run(lease.run_id)).stopped_until == at(2)
    await stores.finish(lease, STOPPED, takes=False)
    runs = await stores.conversations.runs(lease.thread_id)
    assert [one.status for one in runs] == ["stopped", "queued"]


@pytest.mark.parametrize(("attention", "shown"), [("addressed", ("m1", "m2")), ("unsure", ("m1",))])
async def test_the_request_and_what_was_read_show_how_a_run_ended(
    stores: Stores, attention: Attention, shown: tuple[str, ...]
) -> None:
    said = await stores.say("a", key="m1")
    await stores.say("b", key="m2", decide=deciding(Accept(attention=attention)))
    lease = require(await stores.claims.claim(said.run_id or "", "w1"))
    await stores.finish(lease)
    assert await stores.conversations.message_refs_to_mark(lease.run_id) == shown


async def test_a_message_shows_the_end_of_its_newest_run(stores: Stores) -> None:
    said = await stores.say("a", key="m1")
    await stores.say("b", key="m2")
    lease = require(await stores.claims.claim(said.run_id or "", "w1"))
    await stores.finish(lease, replace(COMPLETED, status="failed", finish_reason=None))
    again = await stores.stops.retry_run(lease.run_id, "click", continues=False) or ""
    assert await stores.conversations.message_refs_to_mark(lease.run_id) == ("m2",)
    assert await stores.conversations.message_refs_to_mark(again) == ("m1",)


@pytest.fixture(autouse=True)
def ids_that_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when each machine that writes has a clock three seconds behind the one before."""
    count = 0

    def uuid7() -> uuid.UUID:
        nonlocal count
        count += 1
        milliseconds = int(time.time() * 1000) - 3_000 * count
        return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | count)

    monkeypatch.setattr(ids, "uuid_utils", SimpleNamespace(uuid7=uuid7))


async def test_the_run_under_way_is_the_one_that_began_last(stores: Stores) -> None:
    first = await stores.started()
    assert await stores.finish(first)
    second = await stores.started("and now?", "w2")
    assert second.run_id < first.run_id
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert require(snapshot.active_run).run_id == second.run_id
    assert (await stores.say("a third message")).run_id == second.run_id
    assert [run.run_id for run in await stores.conversations.runs(first.thread_id)] == [first.run_id, second.run_id]
    await stores.inbox.accept_action(message("", key="stop"), deciding(StopRun()))
    run = require(await stores.conversations.run(second.run_id))
    assert run.stop_requested


async def test_a_stop_button_and_a_retry_reach_the_newest_run(stores: Stores) -> None:
    first = await stores.started()
    assert await stores.finish(first)
    second = await stores.started("and now?", "w2")
    assert not await stores.stops.request_stop(first.run_id)
    assert await stores.stops.request_stop(second.run_id)
    assert await stores.finish(second, STOPPED)
    assert await stores.stops.retry_run(first.run_id, "click-1", continues=False) is None
    assert await stores.stops.retry_run(second.run_id, "click-2", continues=False)


async def test_answers_are_posted_in_the_order_of_their_runs(stores: Stores) -> None:
    first = await stores.started()
    assert await stores.finish(first)
    second = await stores.started("and now?", "w2")
    assert await stores.deliveries.has_earlier(second.run_id)
    assert not await stores.deliveries.has_earlier(first.run_id)


async def test_the_newest_question_of_a_run_is_the_one_asked_last(stores: Stores) -> None:
    lease = await stores.started()
    asked = list[str]()
    for number in range(2):
        await stores.journal.suspend_run(lease, JournalEntry(), APPROVAL)
        ask = require(await stores.journal.find_approval(lease.run_id))
        asked.append(ask.ask_id)
        await stores.say("go on")
        again = require(await stores.claims.claim(lease.run_id, f"w{number}"))
        lease = again
    assert len(set(asked)) == 2
    assert await stores.finish(lease, asking("Which one?"))
    newest = require(await stores.asks.ask_of_run(lease.run_id))
    assert (newest.kind, newest.state) == ("question", "open")
