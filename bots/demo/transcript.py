"""A thread of a simulated platform as lines of text: what a person reads there."""

from collections.abc import Iterable, Iterator

from bots.simulator.view import (
    Button,
    Divider,
    Element,
    Markdown,
    Picture,
    PlatformView,
    SeenMessage,
    Select,
    TaskCard,
)

MARKS = {"pending": "○", "in_progress": "◐", "complete": "●", "error": "✗"}


def messages_of(view: PlatformView, thread_id: str) -> tuple[SeenMessage, ...]:
    """The messages of a thread, with its root where the root stands in the channel; oldest first."""
    for channel in view.channels:
        for thread in channel.threads:
            if thread.thread_id == thread_id:
                roots = [one for one in channel.messages if one.message_id == thread_id]
                inside = {one.message_id for one in thread.messages}
                return (*(one for one in roots if one.message_id not in inside), *thread.messages)
        alone = [one for one in channel.messages if one.message_id == thread_id]
        if alone:
            return tuple(alone)
    return ()


def transcript(messages: Iterable[SeenMessage]) -> str:
    """The messages as plain text."""
    return "\n".join(line for message in messages for line in _message_lines(message))


def _message_lines(message: SeenMessage) -> Iterator[str]:
    edits = f"  (edited {message.edits} times)" if message.edits else ""
    private = f"  (only {message.visible_to} sees this)" if message.visible_to else ""
    yield f"  {message.author}{edits}{private}"
    for element in message.elements:
        yield from (f"    {line}" for line in element_lines(element))
    for file in message.files:
        yield f"    [file] {file.name} ({file.size_bytes} bytes)"
    if message.reactions:
        yield "    " + " ".join(reaction.emoji for reaction in message.reactions)


def element_lines(element: Element) -> list[str]:
    """One element as lines."""
    match element:
        case Markdown(text=text):
            return text.splitlines()
        case TaskCard(title=title, status=status, detail=detail):
            return [f"{MARKS[status]} {title}" + (f" - {detail}" if detail else "")]
        case Divider():
            return ["---"]
        case Picture(alt=alt):
            return [f"[picture] {alt}"]
        case Button(label=label):
            return [f"[ {label} ]"]
        case Select(options=options):
            return ["[ " + " | ".join(option.label for option in options) + " ]"]


def text_of(message: SeenMessage) -> str:
    """Everything written in a message, to look for words in it."""
    return "\n".join(line for element in message.elements for line in element_lines(element))


def buttons_of(message: SeenMessage) -> tuple[Button, ...]:
    return tuple(element for element in message.elements if isinstance(element, Button))
