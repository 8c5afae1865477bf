"""Reads a thread of a simulated chat platform as a user sees it, and records its changes over time."""

import asyncio
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
    SimulatedPlatform,
    TaskCard,
)

_FOOTPRINT = re.compile("\u2060[\u200b\u200c]+\u2060")
_UNSEEN = re.compile("[\u200b\u2060\ufeff]")
_NAME = re.compile(r":([a-z0-9_+-]+):")
_LINK = re.compile(r"<((?:https?|mailto):[^|<>\s]+)(?:\|([^<>]*))?>")
STATUS_SYMBOLS = {"pending": "○", "in_progress": "◐", "complete": "●", "error": "✗"}


def messages_of(view: PlatformView, thread_id: str) -> tuple[SeenMessage, ...]:
    """Returns the messages of a thread, oldest first, including its root message even if that is in the channel."""
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


def format_transcript(messages: Iterable[SeenMessage]) -> str:
    """Returns the messages as plain text."""
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
        yield "    " + " ".join(_emojis().get(one.emoji, one.emoji) for one in message.reactions)


def _unframed(elements: Sequence[Element]) -> Sequence[Element]:
    """Returns the elements without the frame, which is a divider at both the beginning and the end."""
    if len(elements) > 2 and all(isinstance(one, Divider) for one in (elements[0], elements[-1])):
        return elements[1:-1]
    return elements


def element_lines(element: Element) -> list[str]:
    """Returns a message element as lines of plain text."""
    match element:
        case Markdown(text=text, flavour=flavour):
            return _readable(text, flavour).splitlines()
        case TaskCard(title=title, status=status, detail=detail):
            return [f"{STATUS_SYMBOLS[status]} {title}" + (f" - {detail}" if detail else "")]
        case Divider():
            return ["---"]
        case Picture(alt=alt):
            return [f"[picture] {alt}"]
        case Button(label=label):
            return [f"[ {_named(label)} ]"]
        case Select(options=options):
            return ["[ " + " | ".join(option.label for option in options) + " ]"]


def text_of(message: SeenMessage) -> str:
    """Returns the full text of a message, including the labels of its buttons."""
    return "\n".join(line for element in message.elements for line in element_lines(element))


def buttons_of(message: SeenMessage) -> tuple[Button, ...]:
    return tuple(element for element in message.elements if isinstance(element, Button))


def _readable(text: str, flavour: str) -> str:
    """Returns the text as the platform displays it: with escapes and emoji names resolved, no invisible characters."""
    text = _UNSEEN.sub("", _FOOTPRINT.sub("", text))
    if flavour == "discord":
        return re.sub(r"(?m)^-# ", "", text)
    if flavour == "mrkdwn":
        text = html.unescape(_LINK.sub(lambda link: link[2] or link[1], text))
    return _named(text)


def _named(text: str) -> str:
    return _NAME.sub(lambda name: _emojis().get(name[1], name[0]), text)


@cache
def _emojis() -> dict[str, str]:
    """Returns the mapping from Slack's emoji names to characters that the demo's web page uses."""
    return cast(dict[str, str], json.loads(files("simulator.page").joinpath("emoji.json").read_text("utf-8")))


TICKS = ("white_check_mark", "✅")
CROSSES = ("x", "❌")


class StoryBroken(Exception):
    """A demo story failed. The message names the expected result and includes the transcript of the thread."""


@dataclass(slots=True, kw_only=True)
class ThreadReader:
    """Reads a thread and records its changes.

    `shown` maps the ID of each bot message to the texts that it has had, oldest first. `patience_seconds` limits each
    wait. `status_ids` are the IDs of the bot's status messages."""

    platform: SimulatedPlatform
    thread_id: str
    patience_seconds: float
    shown: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    status_ids: set[str] = field(default_factory=set[str])

    @property
    def messages(self) -> tuple[SeenMessage, ...]:
        return messages_of(self.platform.view(), self.thread_id)

    @property
    def bot_messages(self) -> tuple[SeenMessage, ...]:
        """The bot's messages, except status messages."""
        return tuple(one for one in self.messages if one.is_bot and one.message_id not in self.status_ids)

    def bot_texts(self, *, except_id: str) -> list[str]:
        """Returns the texts of the bot's messages, except status messages and the message with the ID `except_id`."""
        return [text_of(one) for one in self.bot_messages if one.message_id != except_id]

    def has_only_reaction(self, signs: Sequence[str]) -> bool:
        """Whether the user's request has exactly one reaction and it is in `signs`."""
        seen = [reaction.emoji for reaction in self.messages[0].reactions]
        return len(seen) == 1 and seen[0] in signs

    async def wait_for_question(self, label: str) -> tuple[SeenMessage, Button]:
        """Waits for a question with a button that has this label. Returns the question and the button.

        Raises StoryBroken if the run ends without the question or the wait times out."""

        def found() -> list[tuple[SeenMessage, Button]]:
            return [
                (message, button)
                for message in self.messages
                if message.is_bot
                for button in buttons_of(message)
                if label.casefold() in button.label.casefold()
            ]

        what = f"the agent asks, with a button {label!r}"
        await self.wait_until(lambda: bool(found()) or self.has_only_reaction((*TICKS, *CROSSES)), what)
        if not found():
            raise self.story_broken(f"{what}: it ended without asking.")
        return found()[-1]

    def count_status_edits(self) -> int:
        """Returns how many changes of status messages were observed."""
        return sum(len(self.shown[status_id]) - 1 for status_id in self.status_ids)

    async def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Checks `holds` after every change of the thread until it returns true.

        `what` describes the condition for the error message. Raises StoryBroken after `patience_seconds`."""

        def looked(_view: PlatformView) -> bool:
            for message in self.messages:
                if not message.is_bot:
                    continue
                # only status messages have a Stop button
                if any(button.label == "Stop" for button in buttons_of(message)):
                    self.status_ids.add(message.message_id)
                texts = self.shown.setdefault(message.message_id, [])
                text = text_of(message)
                if not texts or texts[-1] != text:
                    texts.append(text)
            return holds()

        try:
            await wait_for_view(self.platform, looked, what, self.patience_seconds)
        except StoryBroken as broken:
            raise self.story_broken(str(broken)) from None

    def story_broken(self, problem: str) -> StoryBroken:
        return StoryBroken(f"{problem}\nThis is what the thread shows:\n{format_transcript(self.messages)}")


async def wait_for_view(
    platform: SimulatedPlatform, holds: Callable[[PlatformView], bool], what: str, patience_seconds: float
) -> None:
    """Checks `holds` after every change on the platform until it returns true.

    `what` describes the condition for the error message. Raises StoryBroken after `patience_seconds`."""
    try:
        async with asyncio.timeout(patience_seconds):
            async for _ in platform.changes():
                if holds(platform.view()):
                    return
    except TimeoutError:
        pass
    raise StoryBroken(f"{what}: this did not happen within {patience_seconds:.0f} s.")
