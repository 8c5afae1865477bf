"""A conversation too long for a model, as a document that is searched."""

from collections.abc import Sequence

from core.context.original import original_text
from core.context.untrusted import fenced
from core.errors import ModelError
from core.knowledge.document import Document, Page
from core.knowledge.ports import Ask
from core.messages import Message

LONG_REQUEST_CHARACTERS = 1_000

_REQUEST = """Below are the beginning and the end of a long message. Say in one or two sentences, in its \
language, what its author asks for. Reply with that alone.

{message}
"""


def dialogue_document(messages: Sequence[Message]) -> Document:
    """One page per message, named by who speaks; messages that no model sees are left out."""
    pages = (
        Page(None, str(message.content.get("role", message.type)), text)
        for message in messages
        if message.is_llm_message and (text := original_text(message)).strip()
    )
    return Document(
        title="",
        kind="txt",
        pages=tuple(Page(page.number, page.place, f"{page.place}: {page.text}") for page in pages),
    )


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
