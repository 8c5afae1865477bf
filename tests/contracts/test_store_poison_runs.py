"""The contract of a lease's `deaths`, on each database: workers in a row that died over a run."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.approval import Approval, CallToApprove
from core.domain.events import AgentEvent, MessageAdded, TurnFinished
from core.domain.threads import Lease
from core.stores import JournalEntry
from storage.sql.stores.run_claims import SUSPECT_DEATHS_MIN
from tests.contracts.stores import ADDRESS, ALICE, FAILED, Stores, event, told
from tests.support.narrow import require


async def taken_over(stores: Stores, run_id: str, worker: str) -> Lease:
    return require(await stores.claims.claim(run_id, worker))


async def died(stores: Stores, times: int) -> Lease:
    """The lease on a run that so many workers have died over."""
    lease = await stores.started(worker="w0")
    for number in range(1, times + 1):
        await stores.silence(lease.worker_id)
        lease = await taken_over(stores, lease.run_id, f"w{number}")
    return lease


async def deaths_after(stores: Stores, lease: Lease) -> int:
    """What the next worker is told once this one has died, too."""
    await stores.silence(lease.worker_id)
    return (await taken_over(stores, lease.run_id, "after")).deaths


def turn(lease: Lease, *, is_mended: bool = False) -> JournalEntry:
    """What a turn leaves when it ends."""
    said = told(lease, "so far")
    end = TurnFinished(turn_id="t", is_mended=is_mended)
    facts: tuple[AgentEvent, ...] = (MessageAdded(message=said), end)
    events = tuple(event(lease, n, fact) for n, fact in enumerate(facts, start=1))
    return JournalEntry(messages=(said,), events=events)


async def test_deaths_in_a_row_add_up(stores: Stores) -> None:
    lease = await died(stores, 3)
    assert (lease.deaths, lease.attempt) == (3, 4)
    assert await stores.claims.held_leases("w3") == (lease,)


async def test_a_run_that_is_handed_back_has_lost_no_worker(stores: Stores) -> None:
    lease = await died(stores, 2)
    for _ in range(3):
        await stores.claims.release(lease)
        lease = await taken_over(stores, lease.run_id, "next")
    assert (lease.deaths, lease.attempt) == (2, 6)


@pytest.mark.parametrize("method", ["write", "read_inputs"])
async def test_a_finished_turn_starts_the_count_anew(stores: Stores, method: str) -> None:
    lease = await died(stores, 2)
    await getattr(stores.journal, method)(lease, turn(lease))
    assert await deaths_after(stores, lease) == 1


@pytest.mark.parametrize("what", ["mended", "ended", "message", "input", "nothing"])
async def test_what_is_no_finished_turn_leaves_the_count(stores: Stores, what: str) -> None:
    lease = await died(stores, 2)
    said = told(lease, "half")
    taken = tuple(one.input_id for one in await stores.journal.read_inputs(lease))
    entries = {
        "mended": turn(lease, is_mended=True),
        "ended": JournalEntry(events=(event(lease, 1, TurnFinished(turn_id="t", is_mended=True)),)),
        "message": JournalEntry(messages=(said,), events=(event(lease, 1, MessageAdded(message=said)),)),
        "input": JournalEntry(taken_input_ids=taken),
        "nothing": JournalEntry(),
    }
    await stores.journal.write(lease, entries[what])
    assert await deaths_after(stores, lease) == 3


async def test_an_answer_to_an_ask_starts_the_count_anew(stores: Stores) -> None:
    lease = await died(stores, 2)
    call = CallToApprove(index=0, tool="echo", headline="Say it?", arguments={})
    approval = Approval(turn_id="t", calls=(call,))
    await stores.journal.suspend_run(lease, JournalEntry(), approval)
    assert await stores.claims.claim(lease.run_id, "w9") is None
    assert await stores.stops.request_stop(lease.run_id, by=ALICE)
    assert (await taken_over(stores, lease.run_id, "w9")).deaths == 0


async def test_a_retried_run_starts_without_deaths(stores: Stores) -> None:
    lease = await died(stores, 3)
    assert await stores.finish(lease, FAILED)
    again = await stores.stops.retry_run(lease.run_id, "click", continues=False)
    assert (await taken_over(stores, again or "", "w9")).deaths == 0


async def suspects(stores: Stores, number: int) -> tuple[str, ...]:
    """Runs that were together at workers which died, so that nobody can say which of them has killed those."""
    for n in range(number):
        await stores.say("hello", address=replace(ADDRESS, thread_key=str(n)))
    found = await stores.claims.claimable_runs()
    for death in range(SUSPECT_DEATHS_MIN):
        for run_id in found:
            await taken_over(stores, run_id, f"dead{death}")
        await stores.claims.remove_worker(f"dead{death}")
    return found


async def test_of_runs_that_may_be_deadly_a_worker_tries_one_at_a_time(stores: Stores) -> None:
    found = await suspects(stores, 3)
    leases = await asyncio.gather(*(stores.claims.claim(run_id, "w1") for run_id in found))
    (lease,) = [one for one in leases if one]
    assert lease.deaths == SUSPECT_DEATHS_MIN
    assert set(await stores.claims.claimable_runs()) == {*found} - {lease.run_id}


async def test_a_run_that_turns_out_harmless_makes_way_for_the_next(stores: Stores) -> None:
    first, second = await suspects(stores, 2)
    lease = await taken_over(stores, first, "w1")
    assert await stores.claims.claim(second, "w1") is None
    await stores.journal.write(lease, turn(lease))
    assert (await taken_over(stores, second, "w1")).deaths == SUSPECT_DEATHS_MIN


async def test_the_deadly_one_takes_no_other_suspect_with_it(stores: Stores) -> None:
    first, second = await suspects(stores, 2)
    await taken_over(stores, first, "w1")
    assert await stores.claims.claim(second, "w1") is None
    await stores.claims.remove_worker("w1")
    assert (await taken_over(stores, second, "w2")).deaths == SUSPECT_DEATHS_MIN
    assert (await taken_over(stores, first, "w3")).deaths == SUSPECT_DEATHS_MIN + 1


async def test_other_work_goes_on_beside_a_run_that_may_be_deadly(stores: Stores) -> None:
    (deadly,) = await suspects(stores, 1)
    await taken_over(stores, deadly, "w1")
    receipt = await stores.say("hello", address=replace(ADDRESS, thread_key="fresh"))
    assert await stores.claims.claim(receipt.run_id or "", "w1") is not None
