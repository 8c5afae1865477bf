"""Several machines create ids, each by its own clock: the order in a thread does not depend on them."""

import time
import uuid
from types import SimpleNamespace

import pytest

from core.domain import ids
from core.domain.threads import StopRun
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, STOPPED, Stores, asking, deciding, message
from tests.contracts.test_store_approvals import APPROVAL
from tests.support.narrow import require


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
    assert snapshot.active_run is not None
    assert snapshot.active_run.run_id == second.run_id
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
