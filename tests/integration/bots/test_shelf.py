"""The word `knowledge`: what people make the agent know in a thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import select

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.dispatch import CommandDeps, answer_command
from bots.inbound.commands.knowledge import KnowledgeDeps
from core.domain.budget import Budget, Limit, Price
from core.domain.errors import AgentError
from core.domain.threads import Address, IncomingFile, Person
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.openai_client import OpenAIEmbeddingClient
from core.model_usage import build_usage_pricer
from core.observability import NO_METRICS
from core.run.execute import execute
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from storage.sql.stores.usage import SqlLedger
from storage.sql.tables import usages
from tests.fakes.embeddings import EmbeddingsFake, embeddings_fake
from tests.fakes.played_model import calls, text
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
CAT = IncomingFile(file_ref="Our cat is called Minka and sleeps on the printer.", name="cat.txt")

PRICE = Price(input_per_million_usd=1000, cached_per_million_usd=1000, output_per_million_usd=0)


class Texts:
    """A file source whose references are the files' contents."""

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        if file.name == "gone.txt":
            raise AgentError("The file is gone.")
        yield file.file_ref.encode()


@pytest.fixture
def desk(world: World) -> CommandDeps:
    world.address = HERE
    knowledge_base = KnowledgeBase(store=SqlKnowledge(world.database))
    world.with_engine(
        knowledge_base=knowledge_base,
        toolbox=ToolSet({"search_knowledge": all_tools()["search_knowledge"]}),
    )
    return CommandDeps(
        conversations=world.engine.conversations,
        sandboxes=None,
        signals=world.signals,
        knowledge=KnowledgeDeps(
            knowledge_base=knowledge_base,
            conversations=world.engine.conversations,
            sources={"slack": Texts()},
            file_bytes_max=1000,
            ledger=SqlLedger(world.database),
            charge=build_usage_pricer(lambda _model: PRICE, NO_METRICS),
        ),
    )


def said(argument: str, *files: IncomingFile) -> CommandCalled:
    return CommandCalled(
        address=HERE,
        dedupe_key=argument,
        name="knowledge",
        argument=argument,
        person=Person(person_id="U1", name="alice"),
        files=files,
    )


async def told(desk: CommandDeps, argument: str, *files: IncomingFile) -> str:
    return (await answer_command(said(argument, *files), desk)).notice


async def test_a_file_is_added_listed_and_removed(desk: CommandDeps) -> None:
    assert "I know `cat.txt` now" in await told(desk, "add", CAT)
    assert "`cat.txt`" in await told(desk, "list")
    assert await told(desk, "remove cat.txt") == "I have forgotten `cat.txt`."
    assert (await told(desk, "list")).startswith("I know no files here yet.")


async def test_what_cannot_be_had_is_said_file_by_file(desk: CommandDeps) -> None:
    gone = replace(CAT, name="gone.txt")
    answer = await told(desk, "add", gone, CAT)
    assert answer.splitlines()[0] == "- `gone.txt` was not added: The file is gone."
    assert "I know `cat.txt` now" in answer


@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("add", "Attach the files"),
        ("", "I know no files here yet"),
        ("remove nothing.txt", "Write `knowledge add`"),
        ("dance", "Write `knowledge add`"),
    ],
)
async def test_a_word_that_lacks_something_says_how(
    desk: CommandDeps, argument: str, part: str
) -> None:
    assert part in await told(desk, argument)


async def test_what_was_added_reaches_the_prompt_and_the_search(
    world: World, desk: CommandDeps
) -> None:
    await told(desk, "add", CAT)
    world.model.turns = [
        calls(("search_knowledge", '{"query": "name of the cat"}')),
        text('{"keywords_zh": [], "keywords_en": ["cat"]}'),
        text("Minka."),
    ]
    run_id = await world.say("What is our cat called?")
    await execute(run_id, world.engine)
    system = str(world.model.requests[0].messages[0]["content"])
    assert "Minka" in system
    assert "cat.txt" in system
    assert "Minka" in str(world.model.requests[-1].messages[-1]["content"])
    run = await world.engine.conversations.run(run_id)
    assert run is not None
    assert run.status == "completed"
    assert (await world.engine.conversations.usage(run_id=run_id)).input_tokens == 30


@asynccontextmanager
async def vectors_in(world: World) -> AsyncIterator[tuple[EmbeddingsFake, SemanticSearch]]:
    async with embeddings_fake() as fake:
        source = OpenAIEmbeddingClient(fake.base_url, fake.key)
        yield fake, SemanticSearch(ModelEmbedder(source, "e"), SqlKnowledgeVectors(world.database))
        await source.close()


async def test_vectors_are_booked_to_who_added_the_file_and_to_the_run_that_asks(
    world: World, desk: CommandDeps
) -> None:
    assert desk.knowledge is not None
    async with vectors_in(world) as (fake, vectors):
        knowledge_base = replace(desk.knowledge.knowledge_base, semantics=vectors)
        world.with_engine(knowledge_base=knowledge_base)
        world.model.turns = [text("Hm.")]
        long = replace(CAT, file_ref="\n\n".join([CAT.file_ref, "Other words. " * 40] * 60))
        shelf = replace(desk.knowledge, knowledge_base=knowledge_base, file_bytes_max=10**6)
        fake.tokens = 9
        assert "I know" in await told(replace(desk, knowledge=shelf), "add", long)
        fake.tokens = 4
        run_id = await world.say("Where is our feline?")
        await execute(run_id, world.engine)

    rows = await world.database.read(lambda c: c.execute(select(usages)).all())
    embedded = [row for row in rows if row.model == "e"]
    added = [row for row in embedded if row.run_id is None]
    assert {(row.user_id, row.channel_id, row.input_tokens) for row in added} == {("U1", "C1", 9)}
    assert sum(row.cost_usd for row in added) == pytest.approx(0.009 * len(added))
    assert [(row.run_id, row.input_tokens) for row in embedded if row.run_id] == [(run_id, 4)]


async def test_no_vectors_are_made_once_the_budget_of_the_day_is_used_up(
    world: World, desk: CommandDeps
) -> None:
    assert desk.knowledge is not None
    async with vectors_in(world) as (fake, vectors):
        fake.tokens = 90
        shelf = replace(
            desk.knowledge,
            knowledge_base=replace(desk.knowledge.knowledge_base, semantics=vectors),
            budget=Budget(run=Limit(tokens=1), person_day=Limit(tokens=90)),
        )
        tight = replace(desk, knowledge=shelf)
        second = replace(CAT, file_ref="Our dog is called Rex.", name="dog.txt")
        answer = await told(tight, "add", CAT, second)
        asked = len(fake.seen)
        again = await told(tight, "add", second)

    assert answer.splitlines() == [
        "- I know `cat.txt` now (about 14 tokens).",
        "- `dog.txt` was not added: Your budget for today is used up: 90 of 90 tokens. It starts anew at 00:00 UTC.",
    ]
    assert again == answer.splitlines()[1]
    assert len(fake.seen) == asked == 1
    assert "dog" not in await told(tight, "list")


async def test_what_costs_nothing_is_added_whatever_was_spent(
    world: World, desk: CommandDeps
) -> None:
    assert desk.knowledge is not None
    shelf = replace(desk.knowledge, budget=Budget(workspace_day=Limit(tokens=0)))
    assert "I know `cat.txt` now" in await told(replace(desk, knowledge=shelf), "add", CAT)
