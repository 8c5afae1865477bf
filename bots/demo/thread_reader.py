"""Reads a thread of a simulated platform as a person sees it: its transcript, and its changes over time."""

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
_LINK = re.compile(r"<((?:https?|mailto):[^|>\s]+)(?:\|([^>]*))?>")
STATUS_SYMBOLS = {"pending": "○", "in_progress": "◐", "complete": "●", "error": "✗"}


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


def format_transcript(messages: Iterable[SeenMessage]) -> str:
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


TICKS = ("white_check_mark", "✅")
CROSSES = ("x", "❌")


class StoryBroken(Exception):
    """Something that the story needs did not happen in time. The message says what, and shows the thread."""


@dataclass(slots=True, kw_only=True)
class ThreadReader:
    """One thread over time. `shown` has every text that each message of the bot was seen with, in order."""

    platform: SimulatedPlatform
    thread_id: str
    patience_seconds: float
    shown: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    status_ids: set[str] = field(default_factory=set[str])

    @property
    def messages(self) -> tuple[SeenMessage, ...]:
        return messages_of(self.platform.view(), self.thread_id)

    @property
    def ours(self) -> tuple[SeenMessage, ...]:
        """The bot's messages that are not status messages."""
        return tuple(
            one for one in self.messages if one.is_bot and one.message_id not in self.status_ids
        )

    def said(self, *, besides: str) -> list[str]:
        """The texts of the bot's messages that are neither status nor that question."""
        return [text_of(one) for one in self.ours if one.message_id != besides]

    def signs(self, signs: Sequence[str]) -> bool:
        """Whether the request has exactly one reaction, and it is one of `signs`."""
        seen = [reaction.emoji for reaction in self.messages[0].reactions]
        return len(seen) == 1 and seen[0] in signs

    async def asked(self, label: str) -> tuple[SeenMessage, Button]:
        """The question that has a button with that label, and the button. Raises StoryBroken."""

        def found() -> list[tuple[SeenMessage, Button]]:
            return [
                (message, button)
                for message in self.messages
                if message.is_bot
                for button in buttons_of(message)
                if label.casefold() in button.label.casefold()
            ]

        what = f"the agent asks, with a button {label!r}"
        await self.until(lambda: bool(found()) or self.signs((*TICKS, *CROSSES)), what)
        if not found():
            raise self.broken(f"{what}: it ended without asking.")
        return found()[-1]

    def edits(self) -> int:
        """How often a status message was seen to change."""
        return sum(len(self.shown[status_id]) - 1 for status_id in self.status_ids)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Looks at every change until it holds. Raises StoryBroken when patience ends."""

        def looked(_view: PlatformView) -> bool:
            self._look()
            return holds()

        try:
            await wait_for_view(self.platform, looked, what, self.patience_seconds)
        except StoryBroken as broken:
            raise self.broken(str(broken)) from None

    def broken(self, problem: str) -> StoryBroken:
        return StoryBroken(
            f"{problem}\nThis is what the thread shows:\n{format_transcript(self.messages)}"
        )

    def _look(self) -> None:
        for message in self.messages:
            if not message.is_bot:
                continue
            # only the message that shows a run has a Stop button
            if any(button.label == "Stop" for button in buttons_of(message)):
                self.status_ids.add(message.message_id)
            texts = self.shown.setdefault(message.message_id, [])
            text = text_of(message)
            if not texts or texts[-1] != text:
                texts.append(text)


async def wait_for_view(
    platform: SimulatedPlatform,
    holds: Callable[[PlatformView], bool],
    what: str,
    patience_seconds: float,
) -> None:
    """Looks at every change of the platform until it holds. Raises StoryBroken when patience ends."""
    try:
        async with asyncio.timeout(patience_seconds):
            async for _ in platform.changes():
                if holds(platform.view()):
                    return
    except TimeoutError:
        pass
    raise StoryBroken(f"{what}: this did not happen within {patience_seconds:.0f} s.")
