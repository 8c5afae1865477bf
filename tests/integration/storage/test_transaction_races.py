"""What one transaction of PostgreSQL does while another changes what it has read."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from core.domain.budget import Limit
from core.domain.messages import Message
from core.domain.threads import Address, Decision, Ignore, InputKind, Lease, Person, ThreadSnapshot
from core.stores import Feedback, JournalEntry
from storage.sql.drivers import await_in_greenlet
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores, accept, stores_over
from tests.contracts.test_store_agents import RESEARCH, changed
from tests.contracts.test_store_approvals import APPROVAL
from tests.contracts.test_store_installations import HERE, ORGANISATION, acts
from tests.contracts.test_store_message_order import NOON, at, change, read
from tests.contracts.test_store_pairings import REQUEST, pair
from tests.databases import opened
from tests.integration.storage.interleaving import played, played_at
from tests.support.narrow import require


@pytest.fixture
async def stores(postgresql_url: str) -> AsyncIterator[Stores]:
    async with opened(postgresql_url) as database:
        yield stores_over(database)


async def waiting(stores: Stores, address: Address) -> Lease:
    """A run that waits for an approval."""
    receipt = await stores.say("deploy", address=address)
    lease = require(await stores.claims.claim(receipt.run_id or "", "w1"))
    await stores.journal.suspend_run(lease, JournalEntry(), APPROVAL)
    return lease


async def test_an_approval_that_is_forgotten_holds_up_no_other_that_is_old(stores: Stores) -> None:
    first = await waiting(stores, ADDRESS)
    second = await waiting(stores, replace(ADDRESS, thread_key="2"))
    forget = partial(stores.conversations.delete_thread, first.thread_id)
    found = "SELECT pending_ask.*created_at <"
    async with played_at(found, stores.database, forget, is_after=True):
        expired = await stores.asks.expire_approvals(older_than_hours=0)
    assert expired == (second.run_id,)


@pytest.mark.parametrize(("mine", "theirs"), [(5, 3), (3, 5)])
async def test_the_newest_of_two_edits_that_come_before_their_message_is_kept(
    stores: Stores, mine: int, theirs: int
) -> None:
    edit = partial(change, stores, "edit", "m1")
    other = partial(edit, f"pay {theirs}", sent_at=at(theirs))
    async with played_at("INSERT INTO message_version", stores.database, other):
        await edit(f"pay {mine}", sent_at=at(mine))
    receipt = await stores.say("pay 1000", key="m1", sent_at=NOON)
    assert receipt.newer_version == ("pay 5", at(5))


@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_a_change_that_comes_while_its_message_makes_a_thread_is_not_lost(
    stores: Stores, kind: InputKind
) -> None:
    other = partial(change, stores, kind, "m1", "pay 10", sent_at=at(5))
    async with played(stores.database, other) as (play, changing):

        def decide(snapshot: ThreadSnapshot | None) -> Decision:
            await_in_greenlet(play())
            return accept(snapshot)

        receipt = await stores.say("pay 1000", key="m1", sent_at=NOON, decide=decide)
    assert receipt.is_new_run
    assert changing[0].result().run_id == receipt.run_id
    assert await read(stores) == (["pay 10"] if kind == "edit" else [])


async def test_a_message_that_comes_while_its_deletion_is_kept_is_not_taken(stores: Stores) -> None:
    say = partial(stores.say, "pay 1000", key="m1", sent_at=NOON)
    async with played_at("INSERT INTO message_version", stores.database, say) as saying:
        await change(stores, "delete", "m1", sent_at=at(5))
    assert isinstance(saying[0].result().decision, Ignore)
    assert await stores.conversations.find(ADDRESS) is None


async def test_who_is_paired_with_a_code_that_is_just_over_stays_so(stores: Stores) -> None:
    assert await stores.pairings.request_code(REQUEST, open_max=3)
    over = REQUEST.expires_at
    later = replace(REQUEST, code_hash="h2", asked_at=over, expires_at=over + timedelta(hours=1))
    paired = partial(pair, stores)
    async with played_at("DELETE FROM pairing", stores.database, paired) as pairing:
        assert not await stores.pairings.request_code(later, open_max=3)
    assert pairing[0].result() == BOB
    assert await stores.pairings.is_paired("slack", "T1", BOB.person_id)


async def test_who_asks_twice_at_once_has_one_code(stores: Stores) -> None:
    ask = partial(stores.pairings.request_code, open_max=3)
    other = partial(ask, replace(REQUEST, code_hash="h2"))
    async with played_at("INSERT INTO pairing", stores.database, other) as asking:
        assert await ask(REQUEST)
    assert not asking[0].result()
    assert await pair(stores) == BOB


async def test_no_more_codes_are_open_than_may_be_though_people_ask_at_once(stores: Stores) -> None:
    other = replace(REQUEST, person=ALICE, code_hash="other")
    ask = partial(stores.pairings.request_code, open_max=1)
    async with played_at("INSERT INTO pairing", stores.database, partial(ask, other)) as asking:
        assert await ask(REQUEST)
    assert asking[0].result()
    admitted = [await pair(stores, one.code_hash) for one in (REQUEST, other)]
    assert sum(person is not None for person in admitted) == 1


async def test_a_workspace_that_installs_the_bot_keeps_its_token(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    save = partial(stores.installations.save, HERE, by=ALICE)
    async with played_at("INSERT INTO workspace", stores.database, save):
        assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == HERE


async def test_a_workspace_joins_its_organisation_once(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    join = partial(stores.installations.join_organisation, "slack", "T1", "E1")
    async with played_at("INSERT INTO workspace", stores.database, join) as joining:
        assert await join()
    assert joining[0].result()
    assert await acts(stores) == ["workspace_joined", "workspace_joined"]


async def test_a_reset_that_waits_for_a_change_takes_the_changed_agent_back(stores: Stores) -> None:
    await stores.agents.make_current(RESEARCH)
    reset = partial(stores.agents.reset_to_file, RESEARCH.agent_id, at=ADDRESS, by=ALICE)
    saved = "INSERT INTO saved_agent"
    async with played_at(saved, stores.database, reset, is_after=True) as resetting:
        await stores.agents.make_current(changed("Be brief."))
    assert resetting[0].result()
    assert await stores.agents.saved_versions() == {}


async def test_a_limit_that_is_dropped_while_it_changes_is_dropped(stores: Stores) -> None:
    limit = partial(stores.ledger.change_limit, "person", at=ADDRESS, by=ALICE)
    await limit(Limit(usd=1))
    drop, changed = partial(limit, None), "INSERT INTO budget_limit"
    async with played_at(changed, stores.database, drop, is_after=True):
        await limit(Limit(usd=2))
    spent = await stores.ledger.spending_by(ALICE, ADDRESS, since=datetime.now(UTC).date())
    assert spent.changed_limits == {}


@pytest.mark.parametrize(
    ("works", "names"),
    [
        (["note dana", "forget bob"], ["dana"]),
        (["forget bob", "note dana"], ["dana"]),
        (["note dana", "note erin"], ["bob", "dana", "erin"]),
    ],
)
async def test_participants_that_change_at_the_same_time_are_all_kept_or_forgotten(
    stores: Stores, works: list[str], names: list[str]
) -> None:
    await stores.say("hello", message_ref=ADDRESS.thread_key)
    conversations = stores.conversations
    await conversations.note_author(ADDRESS, Person(person_id="bob", name="bob"))

    async def work(what: str) -> None:
        verb, name = what.split()
        if verb == "note":
            await conversations.note_author(ADDRESS, Person(person_id=name, name=name))
        else:
            await conversations.erase_person(ADDRESS, name)

    async with played_at("UPDATE thread SET earlier_authors", stores.database, partial(work, works[1])):
        await work(works[0])
    assert sorted(require(await conversations.find(ADDRESS)).thread.earlier_authors or ()) == names


async def test_feedback_on_a_conversation_that_is_forgotten_goes_with_it(stores: Stores) -> None:
    lease = await stores.started()
    forget = partial(stores.conversations.delete_thread, lease.thread_id)
    async with played_at("INSERT INTO feedback", stores.database, forget):
        await stores.feedback.record(
            Feedback(run_id=lease.run_id, thread_id=lease.thread_id, person=ALICE, is_good=True, given_at=NOON)
        )
    assert await stores.count("feedback") == 0


async def test_a_conversation_that_is_written_to_is_not_inactive(stores: Stores) -> None:
    lease, _ = await stores.asked()
    later = datetime.now(UTC) + timedelta(hours=1)
    find = partial(stores.conversations.unbind_inactive_threads, later, limit=9)
    async with played_at("UPDATE pending_ask", stores.database, find) as finding:
        receipt = await stores.say("a")
    assert finding[0].result() == ()
    assert receipt.thread_id == lease.thread_id
    assert await stores.conversations.find(ADDRESS) is not None


async def test_what_a_run_takes_up_while_its_author_is_forgotten_is_removed(stores: Stores) -> None:
    lease = await stores.started("secret")
    (one,) = await stores.journal.read_inputs(lease)
    said = Message(
        type="user",
        content={"role": "user", "content": "secret"},
        is_llm_message=True,
        thread_id=lease.thread_id,
        run_id=lease.run_id,
        metadata={"author_id": ALICE.person_id},
    )
    entry = JournalEntry(messages=(said,), taken_input_ids=(one.input_id,))
    take = partial(stores.journal.write, lease, entry)
    async with played_at("DELETE FROM thread_input", stores.database, take):
        counts = await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    assert counts.messages == 1
    (kept,) = await stores.conversations.llm_messages(lease.thread_id)
    assert "secret" not in str(kept.content)
