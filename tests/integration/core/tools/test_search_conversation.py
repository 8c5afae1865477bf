"""Looking back in a thread: what was said long ago is found, with the message that it stands in."""

from core.context.window import ContextPolicy
from core.knowledge.knowledge_base import KnowledgeBase
from core.tools.conversation_search import search_conversation
from core.tools.tool import ToolSet
from storage.sql.stores.knowledge import SqlKnowledge
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

FILLER = "Some words that say little about anything at all. " * 60
WANTED = ("search_conversation", '{"query": "What is the number of my locker?"}')


def looking_back(world: World) -> World:
    """Runs that may look back in their thread, but are shown little of it."""
    return world.with_deps(
        knowledge_base=KnowledgeBase(store=SqlKnowledge(world.database)),
        toolbox=ToolSet({"search_conversation": search_conversation}),
        context_policy=ContextPolicy(window_tokens=12_000, answer_tokens=1_000, kept_tokens=2_000),
    )


async def test_what_was_said_long_ago_is_found_with_its_message(world: World) -> None:
    looking_back(world)
    world.model.turns = [text("Noted.")]
    first = await world.run("My locker number is 4711, keep it in mind.")
    for at in range(12):
        world.model.turns = [text(f"Reply {at}. {FILLER}")]
        await world.run(f"Talk {at}. {FILLER}")
    world.model.turns = [calls(WANTED), text('{"keywords_en": ["locker"]}'), text("It is 4711.")]
    run_id = await world.run("What was that number again?")

    history = await world.history(run_id)
    result = str(next(one for one in reversed(history) if one.type == "tool").content)
    said = next(one for one in await world.history(first) if "locker" in str(one.content))
    assert "My locker number is 4711" in result
    assert said.message_id in result
    assert "# Earlier in this conversation" in result
    assert "Knowledge base" not in result
    assert "What was that number again?" not in result
    assert (await world.read_run(run_id)).status == "completed"
