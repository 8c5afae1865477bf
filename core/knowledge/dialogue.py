"""A conversation too long for a model, as a document that is searched."""

from collections.abc import Sequence

from core.context.message_text import original_text
from core.context.untrusted_text import fenced
from core.domain.errors import ModelError
from core.domain.messages import Message
from core.knowledge.document import Document, Page
from core.knowledge.ports import Ask

LONG_REQUEST_CHARACTERS = 1_000

_REQUEST = """Below are the beginning and the end of a long message. Say in one or two sentences, in its \
language, what its author asks for. Reply with that alone.

{message}
"""


def dialogue_document(messages: Sequence[Message]) -> Document:
    """One page per message, with who speaks and the message's id; messages that no model sees are left out."""
    pages = (
        Page(None, f"message {message.message_id}", f"{_speaker(message)}: {text}")
        for message in messages
        if message.is_llm_message and (text := original_text(message)).strip()
    )
    return Document(title="", kind="txt", pages=tuple(pages))


def _speaker(message: Message) -> str:
    return str(message.content.get("role", message.type))


def earlier(history: Sequence[Message]) -> tuple[Message, ...]:
    """What was said before the newest request; summaries are left out, what they stand for is there."""
    requests = [at for at, message in enumerate(history) if message.type == "user"]
    before = history[: requests[-1]] if requests else history
    return tuple(message for message in before if message.type != "summary")


async def request_in(message: str, ask: Ask | None) -> str:
    """What a message asks for: itself, or where it is long, what a model makes of its first and last thousand
    characters; these, where the model does not answer."""
    if len(message) <= LONG_REQUEST_CHARACTERS:
        return message
    ends = f"{message[:LONG_REQUEST_CHARACTERS]}\n...\n{message[-LONG_REQUEST_CHARACTERS:]}"
    if ask is None:
        return ends
    try:
        return await ask(_REQUEST.format(message=fenced(ends, source="message"))) or ends
    except ModelError:
        return ends
