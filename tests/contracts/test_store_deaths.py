"""The contract of a lease's `deaths`, on each database: workers in a row that died over a run."""

import pytest

from core.approval import Approval
from core.events import AgentEvent, MessageAdded, TurnFinished
from core.stores import JournalEntry
from core.threads import Lease
from tests.contracts.stores import ALICE, FAILED, Stores, event, told


async def taken_over(stores: Stores, run_id: str, worker: str) -> Lease:
    lease = await stores.claims.claim(run_id, worker)
    assert lease is not None
    return lease


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
    if is_mended:
        said.metadata["is_mended"] = True
    facts: tuple[AgentEvent, ...] = (MessageAdded(message=said), TurnFinished(turn_id="t"))
    events = tuple(event(lease, n, fact) for n, fact in enumerate(facts, start=1))
    return JournalEntry(messages=(said,), events=events)


async def test_deaths_in_a_row_add_up(stores: Stores) -> None:
    lease = await died(stores, 3)

    assert (lease.deaths, lease.attempt) == (3, 4)
    assert await stores.claims.held("w3") == (lease,)


async def test_a_worker_that_is_buried_has_died(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    assert lease.deaths == 0
    await stores.claims.bury("w1")

    assert (await taken_over(stores, lease.run_id, "w2")).deaths == 1


async def test_a_run_that_is_handed_back_has_lost_no_worker(stores: Stores) -> None:
    lease = await died(stores, 2)
    for _ in range(3):
        await stores.claims.release(lease)
        lease = await taken_over(stores, lease.run_id, "next")

    assert (lease.deaths, lease.attempt) == (2, 6)


async def test_a_finished_turn_starts_the_count_anew(stores: Stores) -> None:
    lease = await died(stores, 2)
    await stores.journal.write(lease, turn(lease))

    assert await deaths_after(stores, lease) == 1


async def test_a_turn_that_is_stored_as_inputs_are_read_starts_the_count_anew(
    stores: Stores,
) -> None:
    lease = await died(stores, 2)
    await stores.journal.inputs(lease, turn(lease))

    assert await deaths_after(stores, lease) == 1


@pytest.mark.parametrize("what", ["mended", "message", "input", "nothing"])
async def test_what_is_no_finished_turn_leaves_the_count(stores: Stores, what: str) -> None:
    lease = await died(stores, 2)
    said = told(lease, "half")
    taken = tuple(one.input_id for one in await stores.journal.inputs(lease))
    entries = {
        "mended": turn(lease, is_mended=True),
        "message": JournalEntry(
            messages=(said,), events=(event(lease, 1, MessageAdded(message=said)),)
        ),
        "input": JournalEntry(taken_input_ids=taken),
        "nothing": JournalEntry(),
    }
    await stores.journal.write(lease, entries[what])

    assert await deaths_after(stores, lease) == 3


async def test_an_answer_to_an_ask_starts_the_count_anew(stores: Stores) -> None:
    lease = await died(stores, 2)
    approval = Approval(turn_id="t", tools=("echo",), reasons=("Say it?",))
    await stores.journal.suspend(lease, JournalEntry(), approval)
    assert await stores.claims.claim(lease.run_id, "w9") is None
    assert await stores.stops.request_stop(lease.run_id, by=ALICE)

    assert (await taken_over(stores, lease.run_id, "w9")).deaths == 0


async def test_a_retried_run_starts_without_deaths(stores: Stores) -> None:
    lease = await died(stores, 3)
    assert await stores.finish(lease, FAILED)
    again = await stores.stops.retry(lease.run_id, "click", continues=False)

    assert (await taken_over(stores, again or "", "w9")).deaths == 0
