"""The upgrade drill: live work goes from every earlier schema to this one and back, and nothing of it is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

import storage.migrations
from core.domain.approval import APPROVE_ONCE, Approval, CallToApprove
from core.domain.errors import ConfigurationError
from core.domain.threads import Accept, Decision, InputKind, Lease, Receipt
from core.stores import DeliveryDraft, JournalEntry
from storage.migrations import HEAD
from storage.sql.database import migrate, open_database
from tests.contracts.stores import ADDRESS, COMPLETED, Stores, asking, deciding, stores_over, told
from tests.contracts.test_store_schedules import DAILY, HOOK, save
from tests.integration.storage.test_migrations import Rows, connected, revisions, rows
from tests.support.closing import close_after
from tests.support.narrow import require

DEPLOY = CallToApprove(index=0, tool="deploy", headline="Deploy the site", arguments={"name": "x"})


class LiveWork:
    """One run in each state that an upgrade may meet, each in a thread of its own."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    async def make(self) -> None:
        stores = self.stores
        self.queued = (await self._said("queued")).run_id
        self.running = await self._started("running")
        await stores.journal.write(self.running, JournalEntry(messages=(told(self.running, "half of the work"),)))
        await self._said("running", "one more thing")
        self.waiting = await self._started("waiting")
        await stores.journal.suspend_run(self.waiting, JournalEntry(), Approval(turn_id="turn", calls=(DEPLOY,)))
        self.asking = await self._started("asking")
        await stores.finish(self.asking, asking("Which one?"))
        self.undelivered = await self._started("undelivered")
        answer = DeliveryDraft(slot="answer", body={"text": "The answer."})
        await stores.finish(self.undelivered, replace(COMPLETED, deliveries=(answer,)))
        await stores.silence("w1")

    async def finish(self) -> None:
        """Does what is left of all of it, as a new worker and a new bot do."""
        stores = self.stores
        await stores.claims.heartbeat("w2")
        claimable = set(await stores.claims.claimable_runs())
        assert claimable == {self.queued, self.running.run_id}
        for run_id, inputs in ((self.queued, ["hello"]), (self.running.run_id, ["hello", "one more thing"])):
            lease = require(await stores.claims.claim(run_id, "w2"))
            assert [one.text for one in await stores.journal.read_inputs(lease)] == inputs
            messages = await stores.conversations.messages(lease.thread_id)
            assert len(messages) == (run_id == self.running.run_id)
            assert await stores.finish(lease)
        ask = require(await stores.asks.ask_of_run(self.asking.run_id))
        assert (ask.state, ask.text, ask.options) == ("open", "Which one?", ("a", "b"))
        open_runs = await stores.deliveries.open_runs(for_worker="w2")
        assert {self.undelivered.run_id, self.asking.run_id} <= set(open_runs)
        rendering = require(await stores.deliveries.claim(self.undelivered.run_id, "w2"))
        (answer,) = await stores.deliveries.plan_deliveries(rendering, [])
        assert (answer.state, answer.body["text"]) == ("pending", "The answer.")
        asked = require(await stores.asks.ask_of_run(self.waiting.run_id))
        assert (asked.kind, asked.state) == ("approval", "open")
        click = Accept(ask_id=asked.ask_id)
        receipt = await self._said("waiting", APPROVE_ONCE, kind="answer", decision=click)
        assert receipt.run_id == self.waiting.run_id
        assert await stores.claims.claim(self.waiting.run_id, "w2") is not None

    async def _said(
        self, thread: str, words: str = "hello", *, kind: InputKind = "message", decision: Decision | None = None
    ) -> Receipt:
        return await self.stores.say(
            words, decide=deciding(decision or Accept()), address=replace(ADDRESS, thread_key=thread), kind=kind
        )

    async def _started(self, thread: str) -> Lease:
        receipt = await self._said(thread)
        return require(await self.stores.claims.claim(receipt.run_id or "", "w1"))


def assert_kept(before: Rows, after: Rows) -> None:
    """Every row of `before` is in `after`, in the columns that both have."""
    shared = before.keys() & after.keys()
    assert {"thread", "run", "message", "thread_input", "delivery", "pending_ask"} <= shared
    for table in shared:
        for old, new in zip(before[table], after[table], strict=True):
            both = old.keys() & new.keys()
            assert {name: old[name] for name in both} == {name: new[name] for name in both}, table


@pytest.mark.parametrize("revision", revisions())
async def test_live_work_goes_to_an_earlier_schema_and_comes_back(new_url: str, revision: str) -> None:
    async with close_after(await open_database(new_url)) as database:
        work = LiveWork(stores_over(database))
        await work.make()
        before = await database.read(rows)
    await migrate(new_url, revision=revision, may_drop=True)
    async with connected(new_url) as older:
        there = await older.read(rows)
    assert_kept(before, there)
    assert await revision_of(new_url) == revision
    async with close_after(await open_database(new_url)) as database:
        assert_kept(there, await database.read(rows))
        work.stores = stores_over(database)
        await work.finish()
    assert await revision_of(new_url) == HEAD


async def revision_of(url: str) -> str | None:
    async with connected(url) as database:
        return await database.read(storage.migrations._revision)


async def test_a_database_in_use_does_not_go_back(new_url: str) -> None:
    async with close_after(await open_database(new_url)) as database:
        await stores_over(database).claims.heartbeat("w1")
        with pytest.raises(ConfigurationError, match="stop every process first"):
            await migrate(new_url, revision=revisions()[-2])
        await stores_over(database).claims.remove_worker("w1")
    assert await revision_of(new_url) == HEAD
    await migrate(new_url, revision=revisions()[-2])
    assert await revision_of(new_url) == revisions()[-2]


@pytest.mark.parametrize(
    ("revision", "losses"),
    [("0024", "1 triggers and hooks"), ("0023", "1 triggers and hooks, 1 schedules and reminders")],
)
async def test_what_users_made_is_not_deleted_unasked(new_url: str, revision: str, losses: str) -> None:
    async with close_after(await open_database(new_url)) as database:
        await save(stores_over(database), DAILY, HOOK)
    with pytest.raises(ConfigurationError, match=f"deletes for good: {losses}"):
        await migrate(new_url, revision=revision)
    assert await revision_of(new_url) == HEAD
    await migrate(new_url, revision=revision, may_drop=True)
    assert await revision_of(new_url) == revision


@pytest.mark.parametrize("revision", ["9999", "head", "-1", "base", "0001; DROP TABLE run"])
async def test_only_a_known_revision_is_gone_to(tmp_path: Path, revision: str) -> None:
    url = f"sqlite:///{tmp_path}/known.db"
    await migrate(url)
    with pytest.raises(ConfigurationError, match="this version knows 0021 to"):
        await migrate(url, revision=revision)
    assert await revision_of(url) == HEAD
