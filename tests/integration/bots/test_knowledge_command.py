"""The word `knowledge`: what people make the agent know in a thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import select

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.table import answer_command
from core.domain.budget import Price
from core.domain.errors import RunError
from core.domain.threads import Address, IncomingFile, Person
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.openai_client import OpenAIEmbeddingClient
from core.model_usage import build_usage_pricer
from core.observability import NO_METRICS
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from storage.sql.tables import usages
from tests.fakes.embeddings import EmbeddingsFake, embeddings_fake
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import command_deps
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
CAT = IncomingFile(file_ref="Our cat is called Minka and sleeps on the printer.", name="cat.txt")

PRICE = Price(input_per_million_usd=1000, cached_per_million_usd=1000, output_per_million_usd=0)


class Texts:
    """A file source whose references are the files' contents."""

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        if file.name == "gone.txt":
            raise RunError("The file is gone.")
        yield file.file_ref.encode()


@pytest.fixture
def deps(world: World) -> CommandDeps:
    world.address = HERE
    knowledge_base = KnowledgeBase(store=SqlKnowledge(world.database))
    world.with_deps(
        knowledge_base=knowledge_base, toolbox=ToolSet({"search_knowledge": all_tools()["search_knowledge"]})
    )
    deps = command_deps(world)
    knowledge = replace(
        deps.knowledge, sources={"slack": Texts()}, charge=build_usage_pricer(lambda _model: PRICE, NO_METRICS)
    )
    return replace(deps, knowledge=knowledge)


def said(argument: str, *files: IncomingFile) -> CommandCalled:
    return CommandCalled(
        address=HERE,
        dedupe_key=argument,
        name="knowledge",
        argument=argument,
        person=Person(person_id="U1", name="alice"),
        files=files,
    )


async def told(deps: CommandDeps, argument: str, *files: IncomingFile) -> str:
    return (await answer_command(said(argument, *files), deps)).notice


async def test_a_file_is_added_listed_and_removed(deps: CommandDeps) -> None:
    assert "I know `cat.txt` now" in await told(deps, "add", CAT)
    assert "`cat.txt`" in await told(deps, "list")
    assert await told(deps, "remove cat.txt") == "I have forgotten `cat.txt`."
    assert (await told(deps, "list")).startswith("I know no files here yet.")


async def test_what_was_added_reaches_the_prompt_and_the_search(world: World, deps: CommandDeps) -> None:
    await told(deps, "add", CAT)
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


async def test_vectors_are_booked_to_who_added_the_file_and_to_the_run_that_asks(
    world: World, deps: CommandDeps
) -> None:
    assert deps.knowledge is not None
    async with vectors_in(world) as (fake, vectors):
        knowledge_base = replace(deps.knowledge.knowledge_base, semantics=vectors)
        world.with_deps(knowledge_base=knowledge_base)
        world.model.turns = [text("Hm.")]
        long = replace(CAT, file_ref="\n\n".join([CAT.file_ref, "Other words. " * 40] * 60))
        knowledge = replace(deps.knowledge, knowledge_base=knowledge_base, file_bytes_max=10**6)
        fake.tokens = 9
        assert "I know" in await told(replace(deps, knowledge=knowledge), "add", long)
        fake.tokens = 4
        run_id = await world.run("Where is our feline?")

    rows = await world.database.read(lambda c: c.execute(select(usages)).all())
    embedded = [row for row in rows if row.model == "e"]
    added = [row for row in embedded if row.run_id is None]
    assert {(row.user_id, row.channel_id, row.input_tokens) for row in added} == {("U1", "C1", 9)}
    assert sum(row.cost_usd for row in added) == pytest.approx(0.009 * len(added))
    assert [(row.run_id, row.input_tokens) for row in embedded if row.run_id] == [(run_id, 4)]
