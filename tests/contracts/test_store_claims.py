"""The contract of `core.stores.RunClaims` and `RunRequests`, on each database."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.approval import Approval, CallToApprove
from core.domain.errors import LeaseLost
from core.domain.events import AgentEvent, MessageAdded, TurnFinished
from core.domain.ids import new_id
from core.domain.threads import Lease, Person
from core.stores import JournalEntry
from storage.sql.stores.run_claims import SUSPECT_DEATHS_MIN, SqlBacklogs, SqlRunClaims
from tests.contracts.stores import ADDRESS, ALICE, BOB, FAILED, STOPPED, Stores, added, event, told
from tests.support.narrow import require


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["new", "of a worker that is gone"])
async def test_of_many_workers_exactly_one_gets_the_run(stores: Stores, *, is_taken_over: bool) -> None:
    run_id = (await stores.say("hello")).run_id or ""
    if is_taken_over:
        require(await stores.claims.claim(run_id, "gone"))
        await stores.silence("gone")
    leases = await asyncio.gather(*(stores.claims.claim(run_id, f"w{n}") for n in range(10)))
    assert sum(lease is not None for lease in leases) == 1


async def test_a_finished_run_is_neither_claimed_nor_written_to_and_the_next_has_a_higher_fence(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease)
    assert await stores.claims.claim(lease.run_id, "w2") is None
    assert await stores.claims.claim(new_id(), "w2") is None
    with pytest.raises(LeaseLost):
        await stores.journal.write(lease, added(lease, 1, "late"))
    assert await stores.claims.claimable_runs() == ()
    assert (await stores.started("again")).fence > lease.fence


async def test_stopped_runs_are_those_that_no_worker_executes(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    await stores.say("more")
    assert await stores.stops.request_stop(lease.run_id)
    assert await stores.claims.stopped_runs() == ()
    await stores.silence("w1")
    assert await stores.claims.stopped_runs() == (lease.run_id,)
    again = require(await stores.claims.claim(lease.run_id, "w2"))
    await stores.finish(again, STOPPED)
    assert await stores.claims.stopped_runs() == ()


async def test_a_run_whose_worker_is_gone_is_taken_over(stores: Stores) -> None:
    old = await stores.started(worker="w1")
    assert await stores.claims.claimable_runs() == ()
    await stores.silence("w1")
    assert await stores.claims.claimable_runs() == (old.run_id,)
    new = require(await stores.claims.claim(old.run_id, "w2"))
    assert new.fence > old.fence
    assert new.attempt == 2


async def test_a_worker_is_gone_between_two_and_five_seconds(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    await stores.silence("w1")
    await stores.claims.heartbeat("w1")
    earlier = "UPDATE worker SET heartbeat_at = heartbeat_at - :seconds"
    await stores.execute(earlier, seconds=2.0)
    assert await stores.claims.claim(lease.run_id, "w2") is None
    await stores.execute(earlier, seconds=3.0)
    assert await stores.claims.claim(lease.run_id, "w3") is not None


async def test_a_clock_that_was_set_back_does_not_keep_the_dead_alive(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    await stores.execute("UPDATE worker SET heartbeat_at = heartbeat_at + 3600")
    assert await stores.claims.claimable_runs() == (lease.run_id,)
    assert (await SqlBacklogs(stores.database).backlog()).processes_alive == 0
    assert await stores.claims.claim(lease.run_id, "w2") is not None


async def test_what_a_buried_worker_held_is_free_at_once(stores: Stores) -> None:
    old = await stores.started(worker="w1")
    await stores.claims.remove_worker("w1")
    assert await stores.claims.claimable_runs() == (old.run_id,)
    new = require(await stores.claims.claim(old.run_id, "w2"))
    assert (new.attempt, new.fence) == (2, old.fence + 1)
    with pytest.raises(LeaseLost):
        await stores.journal.write(old, added(old, 1, "from the grave"))


async def test_burying_one_worker_takes_nothing_from_another(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    await stores.claims.heartbeat("w2")
    await stores.claims.remove_worker("w2")
    await stores.claims.remove_worker("nobody")
    assert await stores.claims.claimable_runs() == ()
    assert await stores.claims.claim(lease.run_id, "w3") is None


async def test_a_worker_that_was_buried_alive_is_back_with_its_next_heartbeat(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    await stores.claims.remove_worker("w1")
    await stores.claims.heartbeat("w1")
    assert await stores.claims.claimable_runs() == ()
    assert await stores.claims.claim(lease.run_id, "w2") is None
    await stores.journal.write(lease, added(lease, 1, "still here"))


async def test_what_a_worker_holds_is_told_until_it_ends_or_is_released(stores: Stores) -> None:
    lease = await stores.started(worker="w1")
    assert await stores.claims.held_leases("w1") == (lease,)
    assert await stores.claims.held_leases("w2") == ()
    await stores.claims.release(lease)
    assert await stores.claims.held_leases("w1") == ()
    again = require(await stores.claims.claim(lease.run_id, "w1"))
    assert await stores.claims.held_leases("w1") == (again,)
    await stores.finish(again)
    assert await stores.claims.held_leases("w1") == ()


async def test_a_stop_request_marks_active_runs_only(stores: Stores) -> None:
    lease = await stores.started()
    assert await stores.stops.request_stop(lease.run_id)
    assert require(await stores.conversations.run(lease.run_id)).stop_requested
    await stores.finish(lease)
    assert not await stores.stops.request_stop(lease.run_id)
    assert not await stores.stops.request_stop(new_id())


async def test_a_failed_run_is_retried_once_per_key(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease, FAILED)
    runs = await asyncio.gather(*(stores.stops.retry_run(lease.run_id, "click", continues=False) for _ in range(6)))
    (new,) = [run_id for run_id in runs if run_id]
    run = require(await stores.conversations.run(new))
    assert (run.status, run.requester) == ("queued", ALICE)
    assert require(await stores.conversations.find(ADDRESS)).thread.state == "running"
    assert await stores.journal.read_inputs(require(await stores.claims.claim(new, "w1"))) == ()


async def test_a_run_of_a_conversation_that_was_let_go_is_not_retried(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease, FAILED)
    assert await stores.conversations.unbind(ADDRESS)
    assert await stores.stops.retry_run(lease.run_id, "click", continues=False) is None
    assert (await stores.say("a new conversation")).is_new_run


async def test_two_clicks_at_once_make_one_run(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease, FAILED)
    runs = await asyncio.gather(*(stores.stops.retry_run(lease.run_id, f"click{n}", continues=False) for n in range(6)))
    assert sum(run_id is not None for run_id in runs) == 1
    assert await stores.count("run") == 2


async def test_a_continued_run_finds_an_input_that_says_so(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease)
    new = await stores.stops.retry_run(lease.run_id, "click", continues=True)
    fresh = require(await stores.claims.claim(new or "", "w1"))
    (said,) = await stores.journal.read_inputs(fresh)
    assert (said.text, said.author) == ("Continue.", ALICE)


async def test_only_the_newest_run_at_rest_is_retried(stores: Stores) -> None:
    first = await stores.started()
    assert await stores.stops.retry_run(first.run_id, "c1", continues=False) is None
    await stores.finish(first, FAILED)
    second = await stores.started("again")
    await stores.finish(second, FAILED)
    assert await stores.stops.retry_run(first.run_id, "c2", continues=False) is None
    assert await stores.stops.retry_run(new_id(), "c3", continues=False) is None
    assert await stores.stops.retry_run(second.run_id, "c1", continues=False) is not None


async def test_of_a_long_line_the_oldest_runs_are_found_until_they_are_taken(stores: Stores) -> None:
    claims = SqlRunClaims(stores.database, found_max=2)
    line: list[str] = []
    for n in range(3):
        receipt = await stores.say("hello", address=replace(ADDRESS, thread_key=str(n)))
        line.append(receipt.run_id or "")
    assert await claims.claimable_runs() == tuple(line[:2])
    assert await claims.claim(line[0], "w1") is not None
    assert await claims.claimable_runs() == tuple(line[1:])


async def _queued(stores: Stores, channel: str, person: Person, workspace: str = "T1") -> str:
    address = replace(ADDRESS, workspace_id=workspace, channel_id=channel, thread_key=new_id())
    receipt = await stores.say("hello", address=address, person=person)
    return receipt.run_id or ""


@pytest.mark.parametrize("busy_in", ["channel", "workspace", "person"])
async def test_whoever_is_busy_lets_the_others_have_their_turn(stores: Stores, busy_in: str) -> None:
    people = [ALICE if busy_in == "person" else Person(person_id=f"P{n}", name=f"p{n}") for n in range(6)]
    busy = [await _queued(stores, "C" if busy_in == "channel" else f"C{n}", one) for n, one in enumerate(people)]
    quiet = await _queued(stores, "quiet", BOB, workspace="T2" if busy_in == "workspace" else "T1")
    assert await stores.claims.claimable_runs() == (busy[0], quiet, *busy[1:])


async def test_what_a_channel_has_under_way_counts(stores: Stores) -> None:
    first = await _queued(stores, "C1", ALICE)
    people = [Person(person_id=f"P{n}", name=f"p{n}") for n in range(3)]
    more = [await _queued(stores, "C1", person) for person in people]
    await stores.claims.heartbeat("w1")
    assert await stores.claims.claim(first, "w1") is not None
    quiet = [await _queued(stores, "C2", Person(person_id=f"Q{n}", name="q")) for n in range(2)]
    found = await stores.claims.claimable_runs()
    assert found[:3] == (quiet[0], more[0], quiet[1])


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
