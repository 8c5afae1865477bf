"""The sources of the text of stored messages."""

from core.context.message_text import content_text
from core.context.untrusted_text import unwrap_message
from core.domain.messages import Message
from core.domain.outside_text import QUOTE_MARK
from core.domain.sources import NO_SOURCES, SOURCES_KEY, Sources, join_sources, parse_sources
from core.domain.targets import parse_names

_MESSAGE_START = "<message from="
_FILE_START = "[Attached file"
_QUOTE_HEADS = ("Forwarded from ", "[")


def sources_of_message(message: Message) -> Sources:
    """Returns the sources of a stored message. One that should state them and does not has an unknown one.

    The agent's own messages and those of the program have none of their own, unless they state some."""
    states = message.type in ("user", "tool", "summary") or SOURCES_KEY in message.metadata
    if not states:
        return NO_SOURCES
    sources = parse_sources(message.metadata.get(SOURCES_KEY))
    if message.type != "user" or not any(source.kind == "person" for source in sources.read):
        return sources
    return join_sources([sources, Sources(named=parse_names(_own_words(message)))])


def _own_words(message: Message) -> str:
    """Returns what the author of a message wrote in it, without what the program added and without quotations."""
    text = content_text(message.content.get("content"))
    if message.metadata.get("author"):
        start = text.find(_MESSAGE_START)
        text = unwrap_message(text[start:]) if start >= 0 else ""
    lines = text.split("\n")
    return "\n".join(
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if not line.startswith((QUOTE_MARK, _FILE_START))
        and not (following.startswith(QUOTE_MARK) and line.startswith(_QUOTE_HEADS))
    )
