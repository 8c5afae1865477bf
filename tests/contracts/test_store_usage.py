"""What was spent by whom and where, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from core.domain.budget import NO_LIMIT, Budget, Limit, PlannedCall, Reservation, Spending, Spent
from core.domain.threads import APP_PREFIX, Address, Lease, Usage
from core.stores import JournalEntry, UsageEntry
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores
from tests.support.narrow import require

LONG_AGO = date(2020, 1, 1)
LARGE = Limit(usd=1_000)
LIMITED = Budget(run=LARGE, person=LARGE, channel=LARGE, workspace=LARGE)
NOTHING = Spent()
MOST = Spent(cost_usd=1.0, tokens=100_000)
OF_PERSON = Budget(person=Limit(tokens=150_000))


async def _reserve(stores: Stores, lease: Lease, most: Spent, budget: Budget) -> Reservation:
    return await stores.ledger.reserve(lease.run_id, PlannedCall(most, budget, LONG_AGO))


async def _spending(stores: Stores, lease: Lease, since: date = LONG_AGO) -> Spending:
    call = PlannedCall(NOTHING, LIMITED, since)
    return (await stores.ledger.reserve(lease.run_id, call)).spending


async def _spend(stores: Stores, lease: Lease, cost: float) -> None:
    usage = Usage(input_tokens=10, cached_tokens=5, output_tokens=2, cost_usd=cost, estimated_usd=cost / 2)
    entry = UsageEntry(turn_id="t", model="m", usage=usage)
    await stores.journal.write(lease, JournalEntry(usage=(entry,)))


async def _started(stores: Stores, **changes: object) -> Lease:
    receipt = await stores.say("go", **changes)
    return require(await stores.claims.claim(receipt.run_id or "", "w1"))


async def _spread(stores: Stores) -> Lease:
    """Alice has spent 1 here and 4 in another channel, Bob 2 here, another workspace 8; answers Alice's run here."""
    first = await _started(stores)
    of_bob = await _started(stores, address=replace(ADDRESS, thread_key="200.1"), person=BOB)
    elsewhere = await _started(stores, address=replace(ADDRESS, channel_id="C2"))
    other_team = await _started(stores, address=replace(ADDRESS, workspace_id="T2"))
    for lease, cost in ((first, 1), (of_bob, 2), (elsewhere, 4), (other_team, 8)):
        await _spend(stores, lease, cost)
    return first


async def test_spending_is_summed_by_run_person_channel_and_workspace(stores: Stores) -> None:
    first = await _spread(stores)
    spent = await _spending(stores, first)
    costs = (spent.run, spent.person, spent.channel, spent.workspace)
    assert [one.cost_usd for one in costs] == [1, 5, 3, 7]
    assert spent.channel == Spent(cost_usd=3, tokens=16)


async def test_tokens_without_a_cost_are_summed_apart(stores: Stores) -> None:
    lease = await _started(stores)
    await _spend(stores, lease, 1)
    await _spend(stores, lease, 0)
    spent = await _spending(stores, lease)
    assert spent.run == spent.workspace == Spent(cost_usd=1, tokens=16, unpriced_tokens=8)


async def test_changed_limits_hold_for_their_workspace_until_the_default_is_restored(stores: Stores) -> None:
    lease, change = await _started(stores), stores.ledger.change_limit

    async def changed(place: Address = ADDRESS) -> object:
        spent = await stores.ledger.spending_by(ALICE, place, since=LONG_AGO)
        return spent.changed_limits

    await change("run", Limit(usd=5), at=ADDRESS, by=ALICE)
    await change("run", Limit(tokens=7), at=ADDRESS, by=BOB)
    await change("person", NO_LIMIT, at=ADDRESS, by=ALICE)
    limits = {"run": Limit(tokens=7), "person": NO_LIMIT}
    assert await changed() == limits
    assert (await _spending(stores, lease)).changed_limits == limits
    assert await changed(replace(ADDRESS, workspace_id="T2")) == {}
    await change("run", None, at=ADDRESS, by=ALICE)
    assert await changed() == {"person": NO_LIMIT}
    newest = (await stores.audit.newest_entries(limit=4))[::-1]
    assert [(one.action, one.actor.name, one.subject) for one in newest] == [
        ("budget_changed", "alice", "run: 5.00 US dollars"),
        ("budget_changed", "bob", "run: 7 tokens"),
        ("budget_changed", "alice", "person: no limit"),
        ("budget_changed", "alice", "run: default"),
    ]


async def test_what_was_spent_before_counts_for_the_run_alone(stores: Stores) -> None:
    lease = await _started(stores)
    await _spend(stores, lease, 1)
    later = datetime.now(UTC).date() + timedelta(days=2)
    spent = await _spending(stores, lease, later)
    assert (spent.run.cost_usd, spent.person, spent.workspace) == (1, Spent(), Spent())


async def test_forgetting_a_thread_leaves_what_it_cost(stores: Stores) -> None:
    forgotten = await _started(stores)
    await _spend(stores, forgotten, 3)
    await stores.conversations.delete_thread(forgotten.thread_id)
    lease = await _started(stores)
    spent = await _spending(stores, lease)
    assert (spent.run.cost_usd, spent.person.cost_usd, spent.workspace.cost_usd) == (0, 3, 3)


async def test_the_sums_of_a_day_outlive_the_person_who_is_erased(stores: Stores) -> None:
    await _spread(stores)
    other = Address(platform="slack", workspace_id="T2", channel_id="C1", thread_key="")
    await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    spent = await stores.ledger.spending_by(ALICE, ADDRESS, since=LONG_AGO)
    assert [one.cost_usd for one in (spent.person, spent.channel, spent.workspace)] == [0, 3, 7]
    elsewhere = await stores.ledger.spending_by(ALICE, other, since=LONG_AGO)
    assert (elsewhere.person.cost_usd, elsewhere.workspace.cost_usd) == (8, 8)
    used = Usage(input_tokens=1, cost_usd=1)
    await stores.ledger.book_usage([("e", used)], thread_id=None, at=ADDRESS, by=ALICE)
    again = await stores.ledger.spending_by(ALICE, ADDRESS, since=LONG_AGO)
    assert (again.person.cost_usd, again.workspace.cost_usd) == (1, 8)


async def test_what_is_booked_beside_runs_counts_for_the_days_and_for_no_run(stores: Stores) -> None:
    lease = await _started(stores)
    used = Usage(input_tokens=100, cost_usd=0.5, estimated_usd=0.5)
    book = stores.ledger.book_usage
    await book([("e", used), ("e", used)], thread_id=lease.thread_id, at=ADDRESS, by=ALICE)
    await book([("e", used)], thread_id=lease.thread_id, at=ADDRESS, by=BOB)
    spent = await _spending(stores, lease)
    assert [one.cost_usd for one in (spent.person, spent.channel, spent.workspace)] == [1, 1.5, 1.5]
    assert spent.run == Spent()
    of_thread = await stores.conversations.usage(thread_id=lease.thread_id)
    assert of_thread.input_tokens == 300


async def test_what_is_booked_for_a_conversation_that_was_deleted_counts_as_well(stores: Stores) -> None:
    lease = await _started(stores)
    await stores.conversations.delete_thread(lease.thread_id)
    used = Usage(input_tokens=100, cost_usd=0.5)
    await stores.ledger.book_usage([("e", used)], thread_id=lease.thread_id, at=ADDRESS, by=ALICE)
    spent = await stores.ledger.spending_by(ALICE, ADDRESS, since=LONG_AGO)
    assert (spent.person.cost_usd, spent.workspace.cost_usd) == (0.5, 0.5)


async def test_an_app_has_a_budget_of_its_own(stores: Stores) -> None:
    app = replace(ALICE, person_id=f"{APP_PREFIX}A1")
    used = Usage(input_tokens=100, cost_usd=0.5)
    await stores.ledger.book_usage([("e", used)], thread_id=None, at=ADDRESS, by=app)
    spent = await stores.ledger.spending_by(app, ADDRESS, since=LONG_AGO)
    assert (spent.app.cost_usd, spent.person, spent.workspace.cost_usd) == (0.5, Spent(), 0.5)
    assert (await stores.ledger.spending_by(ALICE, ADDRESS, since=LONG_AGO)).app == Spent()


async def test_calls_at_the_same_time_do_not_pass_a_limit_together(stores: Stores) -> None:
    leases = [await _started(stores, address=replace(ADDRESS, thread_key=f"{n}.1")) for n in range(6)]
    asked = [_reserve(stores, one, MOST, OF_PERSON) for one in leases]
    granted = [one.is_granted for one in await asyncio.gather(*asked)]
    assert granted.count(True) == 2  # the second may begin, because the limit is not reached yet
    assert [
        one.spending.person for one in await asyncio.gather(*(_reserve(stores, one, MOST, OF_PERSON) for one in leases))
    ] == [Spent()] * 6


async def test_a_reservation_ends_with_the_usage_of_its_call_and_with_its_run(stores: Stores) -> None:
    first, second, third = [await _started(stores, address=replace(ADDRESS, thread_key=f"{n}.1")) for n in range(3)]
    budget = Budget(person=Limit(tokens=100_000))

    async def is_granted(lease: Lease) -> bool:
        found = await _reserve(stores, lease, MOST, budget)
        return found.is_granted

    assert await is_granted(first)
    assert await is_granted(first)  # its own call is over
    assert not await is_granted(second)
    await _spend(stores, first, 1)
    assert await is_granted(second)
    assert not await is_granted(third)
    assert await stores.finish(second)
    assert await is_granted(third)


async def test_a_run_that_is_refused_gives_back_what_its_dead_call_had_reserved(stores: Stores) -> None:
    first, second, third = [await _started(stores, address=replace(ADDRESS, thread_key=f"{n}.1")) for n in range(3)]
    assert (await _reserve(stores, first, MOST, Budget(person=Limit(tokens=300_000)))).is_granted
    assert (await _reserve(stores, second, MOST, Budget(person=Limit(tokens=300_000)))).is_granted
    assert not (await _reserve(stores, first, MOST, Budget(person=Limit(tokens=100_000)))).is_granted
    assert (await _reserve(stores, third, MOST, OF_PERSON)).is_granted


async def test_a_reservation_is_of_its_workspace_channel_and_person(stores: Stores) -> None:
    first = await _started(stores)
    of_bob = await _started(stores, address=replace(ADDRESS, thread_key="200.1"), person=BOB)
    elsewhere = await _started(stores, address=replace(ADDRESS, channel_id="C2"), person=BOB)
    other_team = await _started(stores, address=replace(ADDRESS, workspace_id="T2"))
    everywhere = Budget(person=Limit(usd=1), channel=Limit(usd=1), workspace=Limit(usd=1), run=Limit(usd=1))
    for budget, admitted in (
        (Budget(person=Limit(usd=1)), [True, True, True]),
        (Budget(channel=Limit(usd=1)), [False, True, True]),
        (Budget(workspace=Limit(usd=1)), [False, False, True]),
        (everywhere, [False, False, True]),
    ):
        await _reserve(stores, first, MOST, budget)
        found = [await _reserve(stores, one, NOTHING, budget) for one in (of_bob, elsewhere, other_team)]
        assert [one.is_granted for one in found] == admitted, budget


async def test_a_turn_begins_with_what_was_said_spent_and_reserved(stores: Stores) -> None:
    lease = await _started(stores)
    other = await _started(stores, address=replace(ADDRESS, thread_key="200.1"))
    said = await stores.journal.read_inputs(lease)
    usage = Usage(input_tokens=10, output_tokens=2, cost_usd=1)
    entry = JournalEntry(usage=(UsageEntry(turn_id="t", model="m", usage=usage),))
    call = PlannedCall(MOST, Budget(person=Limit(tokens=100_000)), LONG_AGO)
    inputs, reservation = await stores.journal.begin_turn(lease, entry, call)
    assert inputs == said
    assert reservation.is_granted
    assert reservation.spending.run == Spent(cost_usd=1, tokens=12)  # the entry is counted
    assert not (await stores.ledger.reserve(other.run_id, call)).is_granted
    _, again = await stores.journal.begin_turn(lease, JournalEntry(), call)
    assert again.is_granted  # its own call is over


async def test_without_limits_nothing_is_reserved(stores: Stores) -> None:
    first = await _started(stores)
    other = await _started(stores, address=replace(ADDRESS, thread_key="200.1"))
    for lease in (first, replace(first, run_id="gone")):
        found = await _reserve(stores, lease, MOST, Budget())
        assert found == Reservation(Spending(), is_granted=True)
    assert (await _reserve(stores, other, MOST, Budget(person=Limit(usd=1)))).is_granted
    await stores.ledger.change_limit("person", Limit(usd=1), at=ADDRESS, by=ALICE)
    assert not (await _reserve(stores, first, MOST, Budget())).is_granted
