"""What was spent by whom and where, on each database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.domain.budget import Spending
from core.domain.threads import Lease, Usage
from core.stores import JournalEntry, UsageEntry
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def _spend(stores: Stores, lease: Lease, cost: float) -> None:
    usage = Usage(
        input_tokens=10, cached_tokens=5, output_tokens=2, cost_usd=cost, estimated_usd=cost / 2
    )
    entry = UsageEntry(turn_id="t", model="m", usage=usage)
    await stores.journal.write(lease, JournalEntry(usage=(entry,)))


async def _started(stores: Stores, **changes: object) -> Lease:
    receipt = await stores.say("go", **changes)
    lease = await stores.claims.claim(receipt.run_id or "", "w1")
    assert lease is not None
    return lease


async def _spread(stores: Stores) -> Lease:
    """Alice has spent 1 here and 4 in another channel, Bob 2 here, another workspace 8; answers Alice's run here."""
    first = await _started(stores)
    of_bob = await _started(stores, address=replace(ADDRESS, thread_key="200.1"), author=BOB)
    elsewhere = await _started(stores, address=replace(ADDRESS, channel_id="C2"))
    other_team = await _started(stores, address=replace(ADDRESS, workspace_id="T2"))
    for lease, cost in ((first, 1), (of_bob, 2), (elsewhere, 4), (other_team, 8)):
        await _spend(stores, lease, cost)
    return first


async def test_spending_is_summed_by_run_person_channel_and_workspace(stores: Stores) -> None:
    first = await _spread(stores)

    spent = await stores.ledger.spending(first.run_id, since=LONG_AGO)

    costs = (spent.run, spent.person_day, spent.channel_day, spent.workspace_day)
    assert [one.cost_usd for one in costs] == [1, 5, 3, 7]
    assert spent.channel_day == Usage(
        input_tokens=20, cached_tokens=10, output_tokens=4, cost_usd=3, estimated_usd=1.5
    )


async def test_what_was_spent_before_counts_for_the_run_alone(stores: Stores) -> None:
    lease = await _started(stores)
    await _spend(stores, lease, 1)
    later = datetime.now(UTC) + timedelta(minutes=1)

    spent = await stores.ledger.spending(lease.run_id, since=later)

    assert (spent.run.cost_usd, spent.person_day, spent.workspace_day) == (1, Usage(), Usage())


async def test_nothing_spent_is_nothing(stores: Stores) -> None:
    lease = await _started(stores)
    spent = await stores.ledger.spending(lease.run_id, since=LONG_AGO)
    assert (spent.run, spent.workspace_day) == (Usage(), Usage())


async def test_forgetting_a_thread_leaves_what_it_cost(stores: Stores) -> None:
    forgotten = await _started(stores)
    await _spend(stores, forgotten, 3)
    await stores.conversations.forget(forgotten.thread_id)
    lease = await _started(stores)

    spent = await stores.ledger.spending(lease.run_id, since=LONG_AGO)

    assert (spent.run.cost_usd, spent.person_day.cost_usd, spent.workspace_day.cost_usd) == (
        0,
        3,
        3,
    )


async def test_spending_beside_runs_is_summed_by_person_channel_and_workspace(
    stores: Stores,
) -> None:
    await _spread(stores)

    spent = await stores.ledger.spending_by(ALICE, ADDRESS, since=LONG_AGO)
    costs = (spent.run, spent.person_day, spent.channel_day, spent.workspace_day)
    assert [one.cost_usd for one in costs] == [0, 5, 3, 7]

    later = datetime.now(UTC) + timedelta(minutes=1)
    assert await stores.ledger.spending_by(ALICE, ADDRESS, since=later) == Spending()


async def test_what_is_booked_beside_runs_counts_for_the_days_and_for_no_run(
    stores: Stores,
) -> None:
    lease = await _started(stores)
    used = Usage(input_tokens=100, cost_usd=0.5, estimated_usd=0.5)
    book = stores.ledger.book
    await book([("e", used), ("e", used)], thread_id=lease.thread_id, at=ADDRESS, by=ALICE)
    await book([("e", used)], thread_id=lease.thread_id, at=ADDRESS, by=BOB)

    spent = await stores.ledger.spending(lease.run_id, since=LONG_AGO)
    assert [one.cost_usd for one in (spent.person_day, spent.channel_day, spent.workspace_day)] == [
        1,
        1.5,
        1.5,
    ]
    assert spent.run == Usage()
    of_thread = await stores.conversations.usage(thread_id=lease.thread_id)
    assert of_thread.input_tokens == 300
