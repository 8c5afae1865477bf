"""Watching a thread of a simulated platform as a reader does: what was shown in turn, and what stands there now."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bots.demo.transcript import buttons_of, messages_of, text_of, transcript
from simulator.view import Button, PlatformView, SeenMessage, SimulatedPlatform

TICKS = ("white_check_mark", "✅")
CROSSES = ("x", "❌")


class StoryBroken(Exception):
    """Something that the story needs did not happen in time; the text says what, and shows the thread."""


@dataclass(slots=True, kw_only=True)
class Watch:
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
        """Those of the bot that are no status message."""
        return tuple(
            one for one in self.messages if one.is_bot and one.message_id not in self.status_ids
        )

    def said(self, *, besides: str) -> list[str]:
        """The texts of the bot's messages that are neither status nor that question."""
        return [text_of(one) for one in self.ours if one.message_id != besides]

    def signs(self, signs: Sequence[str]) -> bool:
        """Whether the request has one reaction, and it is one of these."""
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
            await until(self.platform, looked, what, self.patience_seconds)
        except StoryBroken as broken:
            raise self.broken(str(broken)) from None

    def broken(self, problem: str) -> StoryBroken:
        return StoryBroken(
            f"{problem}\nThis is what the thread shows:\n{transcript(self.messages)}"
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


async def until(
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
