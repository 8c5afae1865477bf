"""Test scenarios about an agent's knowledge: a person adds a file, asks about it, and removes it."""

from collections.abc import Awaitable, Callable

from simulator.view import SentFile
from tests.chaos.harness import Stage
from tests.chaos.stories import Story

FACT = "Our cat is called Minka and sleeps on the printer."
FILLER = "Nothing in this paragraph is about any animal at all, however long it goes on. " * 40
PARAGRAPHS = 200
"""Enough paragraphs for several batches of chunks, so that a crash can leave half a document."""
FILE = SentFile(
    name="cat.txt",
    content="\n\n".join([FACT, *(f"{at}. {FILLER}" for at in range(PARAGRAPHS)), FACT]).encode(),
    mime_type="text/plain",
)
SCENARIO = """
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Hi there."
  - name: question
    when: {user: {contains: "cat called"}}
    steps:
      - text: "I have looked it up."
"""
EMBEDDINGS = {"embedding_model": "scripted-embeddings"}


async def _begin(stage: Stage) -> None:
    await stage.connected()
    await stage.say("Hello")
    await stage.until(lambda: stage.shows("Hi there."), "it answers")
    await stage.settled(1)


async def _add(stage: Stage) -> None:
    await stage.say_until("knowledge add", ("I know `cat.txt` now",), files=(FILE,))


async def _ask(stage: Stage) -> None:
    await stage.connected()
    await stage.say("What is our cat called?")
    await stage.until(lambda: stage.shows("I have looked it up."), "it answers")


async def add_and_ask(stage: Stage) -> None:
    await _begin(stage)
    await _add(stage)
    await _ask(stage)


async def add_remove_and_ask(stage: Stage) -> None:
    await _begin(stage)
    await _add(stage)
    await stage.say_until("knowledge remove cat.txt", ("I have forgotten", "I know no file named"))
    await _ask(stage)


def check_known(stage: Stage) -> None:
    """Checks that the document is stored once, complete and with its vectors, and was used for the answer."""
    assert stage.runs() == ["completed", "completed"]
    ((entry_id, chunk_count),) = stage.rows("SELECT entry_id, chunk_count FROM knowledge_entry WHERE is_ready")
    assert stage.rows("SELECT count(*) FROM knowledge_chunk WHERE entry_id = ?", entry_id) == [(chunk_count,)]
    vectors = "SELECT count(*) FROM knowledge_vector JOIN knowledge_chunk USING (chunk_id) WHERE entry_id = ?"
    assert stage.rows(vectors, entry_id) == [(chunk_count,)]
    assert isinstance(chunk_count, int)
    assert chunk_count > PARAGRAPHS
    assert FACT in _known_to_the_model(stage)


def check_forgotten(stage: Stage) -> None:
    assert stage.runs() == ["completed", "completed"]
    assert stage.rows("SELECT entry_id FROM knowledge_entry WHERE is_ready") == []
    assert FACT not in _known_to_the_model(stage)


def _known_to_the_model(stage: Stage) -> str:
    """Returns the last request to the model."""
    return str(stage.last_request()["messages"])


def _through_litellm(stage: Stage) -> None:
    """Configures a model provider whose address litellm reads from the environment."""
    stage.program.change(
        model="hosted_vllm/scripted",
        embedding_model="hosted_vllm/embeddings",
        dialect="native",
        llm_base_url="",
        llm_api_key="",
    )
    stage.program.environment["HOSTED_VLLM_API_BASE"] = stage.script.base_url


def _story(
    tell: Callable[[Stage], Awaitable[None]],
    check: Callable[[Stage], None],
    prepare: Callable[[Stage], None] = lambda stage: None,
) -> Story:
    return Story(scenario=SCENARIO, tell=tell, check=check, runs=2, settings=EMBEDDINGS, prepare=prepare)


KNOW = _story(add_and_ask, check_known)
KNOW_THROUGH_LITELLM = _story(add_and_ask, check_known, _through_litellm)
UNLEARN = _story(add_remove_and_ask, check_forgotten)
