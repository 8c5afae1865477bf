"""A thread of a simulated platform as lines of text: what a person reads there."""

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import cast

from simulator.view import (
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

_FOOTPRINT = re.compile("\u2060[\u200b\u200c]+\u2060")
_UNSEEN = re.compile("[\u200b\u2060\ufeff]")
_NAME = re.compile(r":([a-z0-9_+-]+):")
_LINK = re.compile(r"<((?:https?|mailto):[^|>\s]+)(?:\|([^>]*))?>")
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
    times = "once" if message.edits == 1 else f"{message.edits} times"
    edits = f"  (edited {times})" if message.edits else ""
    private = f"  (only {message.visible_to} sees this)" if message.visible_to else ""
    yield f"  {message.author}{edits}{private}"
    for element in _unframed(message.elements):
        yield from (f"    {line}".rstrip() for line in element_lines(element))
    for file in message.files:
        yield f"    [file] {file.name} ({file.size_bytes} bytes)"
    if message.reactions:
        yield "    " + " ".join(_emoji(reaction.emoji) for reaction in message.reactions)


def _unframed(elements: Sequence[Element]) -> Sequence[Element]:
    """A frame is a line at the beginning and one at the end."""
    if len(elements) > 2 and all(isinstance(one, Divider) for one in (elements[0], elements[-1])):
        return elements[1:-1]
    return elements


def element_lines(element: Element) -> list[str]:
    """One element as lines."""
    match element:
        case Markdown(text=text, flavour=flavour):
            return _readable(text, flavour).splitlines()
        case TaskCard(title=title, status=status, detail=detail):
            return [f"{MARKS[status]} {title}" + (f" - {detail}" if detail else "")]
        case Divider():
            return ["---"]
        case Picture(alt=alt):
            return [f"[picture] {alt}"]
        case Button(label=label):
            return [f"[ {_named(label)} ]"]
        case Select(options=options):
            return ["[ " + " | ".join(option.label for option in options) + " ]"]


def text_of(message: SeenMessage) -> str:
    """Everything written in a message, to look for words in it."""
    return "\n".join(line for element in message.elements for line in element_lines(element))


def buttons_of(message: SeenMessage) -> tuple[Button, ...]:
    return tuple(element for element in message.elements if isinstance(element, Button))


def _readable(text: str, flavour: str) -> str:
    """Without what a platform does not show either: its escapes, names of emoji, invisible characters."""
    text = _UNSEEN.sub("", _FOOTPRINT.sub("", text))
    if flavour == "discord":
        return re.sub(r"(?m)^-# ", "", text)
    if flavour == "mrkdwn":
        text = html.unescape(_LINK.sub(lambda link: link[2] or link[1], text))
    return _named(text)


def _named(text: str) -> str:
    return _NAME.sub(lambda name: _emojis().get(name[1], name[0]), text)


def _emoji(name: str) -> str:
    return _emojis().get(name, name)


@cache
def _emojis() -> dict[str, str]:
    """The characters of Slack's names, as the page has them."""
    table = files("simulator.page").joinpath("emoji.json").read_text("utf-8")
    return cast(dict[str, str], json.loads(table))
