"""What one transaction of PostgreSQL does while another changes what it has read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import Connection, text

from core.domain.budget import Limit
from core.domain.errors import LeaseLost, ToolError
from core.domain.messages import Message
from core.domain.threads import Address, Decision, Ignore, InputKind, Lease, Person, ThreadSnapshot
from core.failpoints import Failpoint
from core.knowledge.chunk import Chunk
from core.knowledge.ports import EntryDraft, Scope
from core.stores import Delivery, DeliveryDraft, DeliveryLease, Feedback, JournalEntry
from core.tasks import spawn
from storage.sql.database import Database
from storage.sql.drivers import await_in_greenlet
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores, accept, stores_over
from tests.contracts.test_store_agents import RESEARCH, changed
from tests.contracts.test_store_asks import APPROVAL
from tests.contracts.test_store_inbox import NOON, at, change, read
from tests.contracts.test_store_installations import HERE, ORGANISATION, REQUEST, acts, pair
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


TEST = Failpoint("test.record")
LOCK = text("SELECT 1 FROM rendering WHERE run_id = :run FOR UPDATE")
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


@asynccontextmanager
async def posting(url: str) -> AsyncGenerator[tuple[Database, Stores, DeliveryLease, Delivery], None]:
    """A post is under way."""
    async with opened(url) as database:
        stores = stores_over(database)
        lease = await stores.started()
        rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
        planned = await stores.deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="status", body={})])
        attempting = replace(planned[0], state="attempting")
        await stores.deliveries.record(rendering, attempting)
        yield database, stores, rendering, replace(attempting, state="delivered", message_ref="p1")


async def recorded_while(
    change: str, database: Database, stores: Stores, rendering: DeliveryLease, delivery: Delivery
) -> None:
    """Records the delivery. What is changed is changed before, and stored only while the record waits for it."""
    is_changed = asyncio.Event()

    def work(connection: Connection) -> None:
        connection.execute(LOCK, {"run": rendering.run.run_id}).close()
        connection.execute(text(change), {"run": rendering.run.run_id})
        is_changed.set()
        while not connection.execute(WAITING).scalar_one():
            connection.execute(text("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")).close()

    changing = spawn(database.write(TEST, work), name="change")
    await is_changed.wait()
    try:
        await stores.deliveries.record(rendering, delivery)
    finally:
        await changing


async def test_what_was_outdated_while_it_was_recorded_becomes_stale(postgresql_url: str) -> None:
    outdated = "UPDATE delivery SET is_outdated = true WHERE run_id = :run"
    async with posting(postgresql_url) as (database, stores, rendering, delivery):
        await recorded_while(outdated, database, stores, rendering, delivery)
        (found,) = await stores.deliveries.plan_deliveries(rendering, [])
        assert (found.state, found.message_ref) == ("stale", "p1")


async def test_whoever_lost_the_run_while_recording_records_nothing(postgresql_url: str) -> None:
    taken = "UPDATE rendering SET fence = fence + 1, worker_id = 'w2' WHERE run_id = :run"
    async with posting(postgresql_url) as (database, stores, rendering, delivery):
        with pytest.raises(LeaseLost):
            await recorded_while(taken, database, stores, rendering, delivery)
        with pytest.raises(LeaseLost):
            await stores.deliveries.plan_deliveries(rendering, [])
        now = replace(rendering, fence=rendering.fence + 1, worker_id="w2")
        (found,) = await stores.deliveries.plan_deliveries(now, [])
        assert (found.state, found.message_ref) == ("attempting", None)


AGENT = Scope("agent", "agent-1")
WORDS = Chunk(number=0, page=None, place="", text="words", tokens=1)
STATEMENTS = pytest.mark.parametrize(
    "statement", ["DELETE FROM knowledge_entry .*name = ", "UPDATE knowledge_entry SET .*is_ready"]
)
"""Of those that finish a document: what had its name is deleted, and it becomes ready."""


def draft(content: str, name: str = "a.txt") -> EntryDraft:
    return EntryDraft(name=name, kind="txt", title="", content_hash=content, size_bytes=5)


@pytest.mark.parametrize("content", ["1", "2"], ids=["the same content", "another content"])
@STATEMENTS
async def test_of_two_with_one_name_one_entry_is_left(postgresql_url: str, statement: str, content: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        other = partial(knowledge.add, AGENT, draft(content), [WORDS])
        async with played_at(statement, database, other) as adding:
            mine = await knowledge.add(AGENT, draft("1"), [WORDS])
        theirs = adding[0].result()
        (left,) = await knowledge.entries([AGENT])
        assert left in (mine, theirs)
        assert (mine == theirs) is (content == "1")


async def test_of_two_that_are_given_one_name_one_is_left(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        ids = [(await knowledge.add(AGENT, draft(name, name), [WORDS])).entry_id for name in ("a", "b")]
        other = partial(knowledge.rename, AGENT, ids[1], "c")
        async with played_at("DELETE FROM knowledge_entry", database, other, is_after=True):
            await knowledge.rename(AGENT, ids[0], "c")
        (left,) = await knowledge.entries([AGENT])
        assert (left.name, left.entry_id) == ("c", ids[1])


async def test_what_is_added_while_its_thread_is_forgotten_goes_with_it(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        stores = stores_over(database)
        thread = await stores.conversations.create(ADDRESS)
        forget = partial(stores.conversations.delete_thread, thread.thread_id)
        async with played_at("INSERT INTO knowledge_entry", database, forget):
            with suppress(ToolError):
                place = Scope("thread", thread.thread_id)
                await SqlKnowledge(database).add(place, draft("1"), [WORDS])
        assert await stores.count("knowledge_entry") == 0


async def test_embeddings_of_an_entry_that_is_removed_go_with_it(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        entry = await knowledge.add(AGENT, draft("1"), [WORDS])
        remove = partial(knowledge.remove, AGENT, entry.entry_id)
        async with played_at("INSERT INTO knowledge_vector", database, remove) as removing:
            await SqlKnowledgeVectors(database).insert_missing(entry.entry_id, "m", [[1.0]])
        assert removing[0].result()
        assert await stores_over(database).count("knowledge_vector") == 0
