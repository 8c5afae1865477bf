"""Looking back in a thread: what was said long ago is found, with the message that it stands in."""

from core.context.window import ContextPolicy
from core.domain.messages import Message, ToolCall
from core.knowledge.knowledge_base import KnowledgeBase
from core.loop.calls import execute_call
from core.tools.conversation_search import expand_message, search_conversation
from core.tools.tool import ThreadMessages, ToolContext, ToolSet, prepare_call
from storage.sql.stores.knowledge import SqlKnowledge
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World

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


async def test_in_a_new_conversation_there_is_nothing_to_find(world: World) -> None:
    looking_back(world)
    world.model.turns = [calls(WANTED), text("I do not know it.")]
    await world.run("What is the number of my locker?")

    assert "Nothing was said in this conversation" in str(world.model.requests[-1].messages[-1])


async def test_a_long_message_of_dense_text_is_shown_whole_page_by_page() -> None:
    words = "".join(chr(0x4E00 + at % 9_000) for at in range(30_000))
    message = Message(type="tool", content={"content": words}, is_llm_message=True, thread_id="t")

    async def find(_message_id: str) -> Message:
        return message

    async def read_all() -> list[Message]:
        return [message]

    async def no_sandbox() -> None:
        raise AssertionError

    context = ToolContext(
        thread_id="t", run_id="r", sandbox=no_sandbox, messages=ThreadMessages(find=find, read_all=read_all)
    )
    call = ToolCall(name="expand_message", arguments={"message_id": "m"}, call_id="c")
    toolbox, shown, page = ToolSet({"expand_message": expand_message}), "", 0
    while len(shown) < len(words):
        page += 1
        prepared = prepare_call("expand_message", {"message_id": "m", "page": page}, toolbox)
        outcome = await execute_call(call, prepared, context)
        shown += str(outcome.result["output"]).partition("\n")[2]
    assert shown == words
