"""The words that are answered at once, and those that change the limits, the plan and what the agent knows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from bots.bootstrap.background_jobs import delete_old_conversations
from bots.inbound.commands.budget import BudgetDeps
from bots.inbound.commands.forget import NOT_YOURS, delete_conversation
from bots.inbound.commands.plan import OVER
from bots.inbound.commands.table import COMMANDS
from core.domain.approval import DENY
from core.domain.audit import AuditEntry
from core.domain.budget import Budget, Limit, Price
from core.domain.errors import StorageUnavailable
from core.domain.plans import Plan, Step
from core.domain.threads import Address, IncomingFile
from core.failpoints import FailpointHit
from core.flow.plan_changes import add_plan
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.openai_client import OpenAIEmbeddingClient
from core.model_usage import build_usage_pricer
from core.observability import NO_METRICS
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from storage.memory.run_queue import MemoryStopSignals
from storage.sql.stores.knowledge import SqlKnowledgeVectors
from storage.sql.tables import threads, usages
from tests.contracts.stores import TEST
from tests.fakes.embeddings import EmbeddingsFake, embeddings_fake
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ADMINS, BOB, HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import Played, plan_of, planned, said, shown
from tests.integration.core.flow.conftest import flow_world as flow_world
from tests.integration.core.test_consent import EVIL, PAGE, READING, with_tools
from tests.support.failpoints import armed
from tests.support.narrow import require
from tests.support.sandboxes import pieces


async def test_new_starts_afresh_and_forget_deletes(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one"), text("two")]
    await stage.run(key="m1")
    conversations, before = stage.world.deps.stores.conversations, await stage.snapshot()
    await stage.command("new")
    await stage.run(key="m2")
    after = await stage.snapshot()
    assert before.thread.thread_id != after.thread.thread_id
    assert len(stage.world.model.requests[1].messages) == 2
    await stage.command("forget", "yes")
    assert await conversations.find(HERE) is None
    for gone in (after, before):
        assert await conversations.snapshot(gone.thread.thread_id) is None


async def test_status_files_and_usage_answer_at_once(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    outcome = await stage.receiver.receive(message())
    assert await stage.told("status") == ("Waiting in line for alice.")
    await stage.play(outcome.run_id)
    assert "completed" in await stage.told("status")
    assert "10 tokens in, 5 out, $0.0010" in await stage.told("usage")
    assert await stage.told("files") == ("There are no files yet.")
    assert "could not be posted" in await stage.told("export")
    assert (await stage.told("agents", "versions coding")).endswith("so it has no versions.")


NOTICE_CHARACTERS_MAX = 2000
"""What Discord takes in one message."""


async def test_help_lists_the_words_of_admins_to_admins_only(stage: ReceiverStage) -> None:
    to_bob = await stage.with_policy(ADMINS).told("help", "all", person=BOB)
    to_alice = await stage.told("help", "all")
    assert len(to_alice) <= NOTICE_CHARACTERS_MAX
    assert all(f"`{name}" in to_alice for name in COMMANDS)
    assert "`budget`" in to_bob
    for words in ("`pair CODE`", "`agents rollback AGENT NUMBER`", "`budget run"):
        assert words in to_alice
        assert words not in to_bob


async def carried_out_twice(
    stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, request: str
) -> str:
    """Sends a command, the key of which is not stored, then a request, and the command again. Returns the run of the
    request."""
    claim, keys = stage.world.inbox.claim_key, ["c9"]

    async def claim_later(key: str, *, act: AuditEntry | None = None) -> bool:
        if key in keys:
            keys.remove(key)
            raise StorageUnavailable("the database is away")
        return await claim(key, act=act)

    monkeypatch.setattr(stage.world.inbox, "claim_key", claim_later)
    sent_at = datetime.now(UTC)
    called = replace(command(name, "c9", argument=argument), sent_at=sent_at)
    with pytest.raises(StorageUnavailable):
        await stage.receiver.receive(called)
    later = replace(message(request, key="slack:2"), sent_at=sent_at + timedelta(seconds=1))
    receipt = await stage.receiver.receive(later)
    assert (await stage.receiver.receive(called)).notice
    assert keys == []
    return receipt.run_id or ""


@pytest.mark.parametrize(("name", "argument"), [("forget", "yes"), ("new", "")])
async def test_a_conversation_that_is_newer_than_the_command_stays(
    stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch, name: str, argument: str
) -> None:
    stage.world.model.turns = [text("ok"), text("new")]
    await stage.run("hello")

    run_id = await carried_out_twice(stage, monkeypatch, name, argument, "a new request")

    (run,) = await runs_of(stage)
    assert (run.run_id, run.status) == (run_id, "queued")
    assert len(await stage.world.deps.stores.conversations.thread_ids(HERE)) == 1 + (name == "new")


async def test_it_says_what_was_read_and_who_answered(stage: ReceiverStage) -> None:
    with_tools(stage.world)
    send = calls(("send", json.dumps({"to": EVIL})))
    stage.world.model.turns = [READING, send, text("I did not send it.")]
    await stage.run(f"Read {PAGE}.")
    assert "no answer yet" in await stage.told("why")
    await stage.run(DENY, key="slack:2")
    shown = await stage.told("why")
    assert "- the page `example.com/howto`, read just now" in shown
    assert "files.evil.example" in shown
    assert f"alice answered `{DENY}`" in shown


async def test_a_conversation_whose_requester_is_forgotten_is_not_anybodys(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    await stage.run()
    assert "Forgotten" in await stage.told("forget", "me yes")
    assert await stage.told("forget", "yes", person=BOB) == NOT_YOURS


async def test_old_conversations_are_deleted_and_others_stay(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    await stage.run()
    old = (await stage.snapshot()).thread.thread_id
    conversations = stage.world.deps.stores.conversations
    there = replace(HERE, thread_key="2.0")
    await stage.receiver.receive(replace(message(key="m2"), address=there))
    mcp = await conversations.create(Address(platform="api", workspace_id="", channel_id="mcp", thread_key="session"))

    async def forget(thread_id: str) -> None:
        await delete_conversation(thread_id, stage.receiver.commands.erasure)

    assert await conversations.unbind_inactive_threads(datetime.now(UTC) - timedelta(days=1), limit=9) == ()
    assert await conversations.unbind_inactive_threads(datetime.now(UTC) + timedelta(days=1), limit=9) == (old,)
    past = datetime.now(UTC) - timedelta(days=31)
    aged = update(threads).values(last_activity_at=past)
    await stage.world.database.write(TEST, lambda c: c.execute(aged).close())
    await delete_old_conversations(conversations, forget, 30)
    assert await conversations.snapshot(old) is None
    # a conversation with a run that has not ended is no old one
    assert await conversations.find(there) is not None
    # nor is a session of `threadhand mcp`, which may be in use
    assert await conversations.snapshot(mcp.thread_id) is not None
    # which its own host deletes, if it comes back
    month_ago = datetime.now(UTC) - timedelta(days=29)
    assert mcp.thread_id not in await conversations.unbind_inactive_threads(month_ago, limit=9)
    today = datetime.now(UTC)
    assert mcp.thread_id in await conversations.unbind_inactive_threads(today, limit=9)


class ManyOld:
    """Old conversations of which the first ones cannot be deleted."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.left = [*broken, "good"]

    async def unbind_inactive_threads(self, before: datetime, *, limit: int) -> tuple[str, ...]:
        return tuple(self.left[:limit])

    async def forget(self, thread_id: str) -> None:
        if thread_id in self.broken:
            raise PermissionError(f"the folder of {thread_id} is in use")
        self.left.remove(thread_id)


@pytest.mark.parametrize("count", [1, 60])
async def test_a_conversation_that_cannot_be_deleted_holds_up_no_other(count: int) -> None:
    store = ManyOld(*(f"bad {number}" for number in range(count)))
    await delete_old_conversations(store, store.forget, 30)
    assert store.left == [*store.broken]


async def test_a_step_is_added_once(stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.world.model.turns = [text("ok")]
    await stage.run("hello")
    (run,) = await runs_of(stage)
    plans = stage.world.deps.stores.plans
    plan = Plan(plan_id="p", title="t", steps=(Step(text="one"),), run_id=run.run_id, seen_message_id="")
    await plans.change(run.thread_id, lambda known: add_plan(known, plan))

    await carried_out_twice(stage, monkeypatch, "plan", "add Pay Bob 100 EUR", "and now?")

    (after,) = await plans.read(run.thread_id)
    assert [step.text for step in after.steps] == ["one", "Pay Bob 100 EUR"]


async def test_what_is_to_be_forgotten_stays_findable_until_its_files_are_gone(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    await stage.run()
    before = await stage.snapshot()
    sandboxes = require(stage.receiver.commands.sandboxes)
    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    await sandbox.files.write("secret.txt", pieces(b"x"))
    with armed("storage.forget.before:raise"), pytest.raises(FailpointHit):
        await stage.command("forget", "yes")

    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    assert await sandbox.files.list(".") == ()
    await stage.command("forget", "yes")
    assert await stage.world.deps.stores.conversations.find(HERE) is None


BUDGET = Budget(run=Limit(tokens=30), has_admins=True)


@pytest.fixture
def limited(stage: ReceiverStage) -> ReceiverStage:
    """A run may use 30 tokens, and alice is an admin."""
    stage.world.with_deps(budget=BUDGET)
    budget = BudgetDeps(ledger=stage.world.deps.stores.ledger, budget=BUDGET)
    return stage.with_policy(ADMINS).with_commands(budget=budget)


async def test_a_run_at_its_limit_goes_on_after_an_admin_has_raised_it(limited: ReceiverStage) -> None:
    world = limited.world
    world.model.turns = [calls(("echo", f'{{"text": "{number}"}}')) for number in range(3)]
    run_id = await world.run("go")
    last = await world.read_end(run_id)
    assert "`budget run 60 tokens`" in last.message
    assert len(world.model.requests) == 2

    assert await limited.told("budget", "run 60 tokens") == "The limit for a run is now 60 tokens."
    world.model.turns = [*[calls(("echo", f'{{"text": "{number}"}}')) for number in range(2)], text("done")]
    last = await world.read_end(await world.run("go on"))
    assert last.finish_reason == "stop"


async def test_a_limit_is_switched_off_and_restored(limited: ReceiverStage) -> None:
    assert await limited.told("budget", "person 7.50") == "The limit for a person and day is now 7.50 US dollars."
    assert "a person and day: 7.50 US dollars (you have used 0.00" in await limited.told("budget", "")
    assert await limited.told("budget", "run none") == "The limit for a run is now no limit."
    assert await limited.told("budget", "run default") == "The limit for a run is now 30 tokens."


@pytest.mark.parametrize(
    "argument", ["run", "run much", "run -5", "run nan", "run inf", "run 5 eggs", "world 5", "run 1e999"]
)
async def test_a_limit_that_is_none_changes_nothing(limited: ReceiverStage, argument: str) -> None:
    assert "`budget run|person|app|channel|workspace LIMIT`" in await limited.told("budget", argument)
    assert "a run: 30 tokens" in await limited.told("budget", "")


CAT = IncomingFile(file_ref="Our cat is called Minka and sleeps on the printer.", name="cat.txt")
PRICE = Price(input_per_million_usd=1000, cached_per_million_usd=1000, output_per_million_usd=0)


class Texts:
    """A file source whose references are the files' contents."""

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        yield file.file_ref.encode()


@pytest.fixture
def librarian(stage: ReceiverStage) -> ReceiverStage:
    """Files can be read, and the model can search them."""
    stage.world.with_deps(toolbox=ToolSet({"search_knowledge": all_tools()["search_knowledge"]}))
    charge = build_usage_pricer(lambda _model: PRICE, NO_METRICS)
    knowledge = replace(require(stage.receiver.commands.knowledge), sources={"slack": Texts()}, charge=charge)
    return stage.with_commands(knowledge=knowledge)


async def told_of(librarian: ReceiverStage, argument: str, *files: IncomingFile) -> str:
    return await librarian.told("knowledge", argument, files=files)


async def test_a_file_is_added_listed_and_removed(librarian: ReceiverStage) -> None:
    assert "I know `cat.txt` now" in await told_of(librarian, "add", CAT)
    assert "`cat.txt`" in await told_of(librarian, "list")
    assert await told_of(librarian, "remove cat.txt") == "I have forgotten `cat.txt`."
    assert (await told_of(librarian, "list")).startswith("I know no files here yet.")


async def test_what_was_added_reaches_the_prompt_and_the_search(librarian: ReceiverStage) -> None:
    world = librarian.world
    await told_of(librarian, "add", CAT)
    world.model.turns = [
        calls(("search_knowledge", '{"query": "name of the cat"}')),
        text('{"keywords_zh": [], "keywords_en": ["cat"]}'),
        text("Minka."),
    ]
    run_id = await world.run("What is our cat called?")
    known = world.model.tails[0]
    assert "Minka" in known
    assert "cat.txt" in known
    results = [one for one in world.model.requests[-1].messages if one["role"] == "tool"]
    assert "Minka" in str(results)
    assert (await world.read_run(run_id)).status == "completed"
    assert (await world.deps.stores.conversations.usage(run_id=run_id)).input_tokens == 30


@asynccontextmanager
async def vectors_in(world: World) -> AsyncIterator[tuple[EmbeddingsFake, SemanticSearch]]:
    async with embeddings_fake() as fake:
        source = OpenAIEmbeddingClient(fake.base_url, fake.key)
        yield fake, SemanticSearch(ModelEmbedder(source, "e"), SqlKnowledgeVectors(world.database))
        await source.close()


async def test_vectors_are_booked_to_who_added_the_file_and_to_the_run_that_asks(librarian: ReceiverStage) -> None:
    world, knowledge = librarian.world, require(librarian.receiver.commands.knowledge)
    async with vectors_in(world) as (fake, vectors):
        knowledge_base = replace(knowledge.knowledge_base, semantics=vectors)
        world.with_deps(knowledge_base=knowledge_base)
        world.model.turns = [text("Hm.")]
        long = replace(CAT, file_ref="\n\n".join([CAT.file_ref, "Other words. " * 40] * 60))
        librarian.with_commands(knowledge=replace(knowledge, knowledge_base=knowledge_base, file_bytes_max=10**6))
        fake.tokens = 9
        assert "I know" in await told_of(librarian, "add", long)
        fake.tokens = 4
        run_id = await world.run("Where is our feline?")

    rows = await world.database.read(lambda c: c.execute(select(usages)).all())
    embedded = [row for row in rows if row.model == "e"]
    added = [row for row in embedded if row.run_id is None]
    assert {(row.user_id, row.channel_id, row.input_tokens) for row in added} == {("U1", "C1", 9)}
    assert sum(row.cost_usd for row in added) == pytest.approx(0.009 * len(added))
    assert [(row.run_id, row.input_tokens) for row in embedded if row.run_id] == [(run_id, 4)]


WAITS = calls(("wait", '{"text": "x"}'))


class Working:
    """A flow that is in the middle of its first step while entered; leaving lets it go on to its end."""

    def __init__(self, world: World, *later: Played) -> None:
        self.world = world
        self.later = later

    async def __aenter__(self) -> str:
        world = self.world
        world.model.turns = [planned("Look", "Open", "Enter"), WAITS, *self.later]
        run_id, self.running = await world.begin("go in")
        await world.bench.until_started("x")
        return run_id

    async def __aexit__(self, *error: object) -> None:
        self.world.bench.gate("x").set()
        async with asyncio.timeout(30):
            await self.running


async def test_an_added_step_is_seen_at_once_and_done(flow_world: World, stage: ReceiverStage) -> None:
    async with Working(flow_world, *[text(one) for one in ("a", "b", "c", "d", "in")]) as run_id:
        outcome = await stage.command("plan", "add [research] Wave   back")
        assert not outcome.is_private
        assert "4. [ ] [research] Wave back" in outcome.notice
    assert ["active", "pending", "pending", "pending"] in await shown(flow_world, run_id)
    plan = await plan_of(flow_world, run_id)
    assert [step.result for step in plan.steps] == ["a", "b", "c", "d"]


async def test_a_plan_that_is_given_up_ends_the_run(flow_world: World, stage: ReceiverStage) -> None:
    working = Working(flow_world)
    async with working as run_id:
        assert "It was given up." in await stage.told("plan", "stop")
        async with asyncio.timeout(30):
            await working.running
    assert (await flow_world.read_end(run_id)).status == "stopped"
    assert (await shown(flow_world, run_id))[-1] == ["blocked", "pending", "pending"]
    assert await stage.told("plan", "add More") == OVER


async def test_a_plan_given_up_unheard_ends_at_the_next_turn(flow_world: World, stage: ReceiverStage) -> None:
    """The signal is lost where another process runs it; what is stored is not."""
    async with Working(flow_world) as run_id:
        stage.receiver = replace(stage.receiver, signals=MemoryStopSignals())
        await stage.command("plan", "stop")
    assert (await said(flow_world, run_id)).startswith("The plan was given up.")
    assert flow_world.model.turns == []
