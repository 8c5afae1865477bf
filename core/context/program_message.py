"""Messages that the program writes into a conversation: notes, and the parts of the state of the work that have
changed. Also reads the templates of all texts that the program writes for models."""

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from core.context.tokens import with_token_count
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.sources import SOURCES_KEY, dump_sources, sources_read_now

STATE_KEY = "state"
"""The metadata key of a message under which the digest of each part of the state that it contains is stored, by the
part's name."""
KNOWLEDGE = "knowledge"
"""The part of the state that holds excerpts of documents."""
STATE_HEADING = "[State of your work, written by the program]"
STATE_END = "[End of state]"


@cache
def read_template(name: str) -> str:
    """Returns a text for models by its name in `core/prompt/templates`."""
    return (files("core.prompt.templates") / f"{name}.md").read_text(encoding="utf-8").strip()


def program_text(*parts: str) -> str:
    """Returns the parts between the marks that identify the program as their author, or an empty string if all parts
    are empty."""
    text = "\n\n".join(one.strip() for one in parts if one.strip())
    return f"{STATE_HEADING}\n\n{text}\n\n{STATE_END}" if text else ""


def build_program_message(
    state: Mapping[str, str], notes: Sequence[str], conversation: Sequence[Message], *, run_id: str
) -> Message | None:
    """Returns a message with the notes and with the parts of the state that the conversation does not contain yet, or
    None if there are none.

    The conversation must not be empty. For each part, the newest message that contains it counts. A part that a summary
    has replaced is included again."""
    told: dict[str, object] = {}
    for message in conversation:
        digests = message.metadata.get(STATE_KEY)
        told |= digests if isinstance(digests, dict) else {}
    changed = {name: text for name, text in state.items() if told.get(name) != _digest(text)}
    text = program_text(*changed.values(), *notes)
    if not text:
        return None
    sources: JsonObject = (
        {SOURCES_KEY: dump_sources(sources_read_now(("document", "")))} if changed.get(KNOWLEDGE) else {}
    )
    return with_token_count(
        Message(
            type="status",
            content={"role": "user", "content": text},
            is_llm_message=True,
            thread_id=conversation[-1].thread_id,
            run_id=run_id,
            metadata={STATE_KEY: {name: _digest(text) for name, text in changed.items()}, **sources},
        )
    )


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
