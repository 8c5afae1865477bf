"""The bot exchanges its reaction on a message with few calls, and does not trust what others may have changed."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pytest

from bots.delivery.reactions import MESSAGES_MAX, Reactions
from core.domain.errors import SurfaceUnclear
from core.ports import Reaction
from tests.histories.virtual_time import in_virtual_time

EMOJI: dict[Reaction, str] = {"seen": "eyes", "queued": "sand", "done": "tick", "asking": "question"}


@dataclass
class Chat:
    """A message with the bot's reactions, and the calls about it."""

    shown: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    is_readable: bool = True
    failures: int = 0

    async def add(self, emoji: str) -> None:
        self.calls.append(f"+{emoji}")
        if self.failures:
            self.failures -= 1
            raise SurfaceUnclear("no answer")
        self.shown.add(emoji)

    async def remove(self, emoji: str) -> None:
        self.calls.append(f"-{emoji}")
        self.shown.discard(emoji)

    async def own(self) -> set[str] | None:
        self.calls.append("?")
        return {*self.shown} if self.is_readable else None

    async def show(
        self, reactions: Reactions, *wanted: Reaction | None, sent_at: float = 0.0, message: str = "m"
    ) -> None:
        for reaction in wanted:
            with suppress(SurfaceUnclear):
                await reactions.set_only_reaction(
                    message, reaction, sent_at_seconds=sent_at, add=self.add, remove=self.remove, fetch_own=self.own
                )


@pytest.mark.parametrize(
    ("process_seconds", "message_seconds", "pause_seconds", "calls"),
    [
        (5, 3, 0, "+eyes +tick -eyes +question -tick"),
        (5, 3, 3.9, "+eyes +tick -eyes +question -tick"),
        (5, 3, 4.0, "+eyes ? +tick -eyes ? +question -tick"),
        (5, 4, 0, "+eyes ? +tick -eyes +question -tick"),
        (2, 3, 0, "+eyes ? +tick -eyes +question -tick"),
    ],
)
@in_virtual_time
async def test_what_this_process_alone_has_shown_is_not_fetched(
    process_seconds: float, message_seconds: float, pause_seconds: float, calls: str
) -> None:
    chat, reactions = Chat(), Reactions(EMOJI)
    await asyncio.sleep(process_seconds)
    sent_at = time.time() - message_seconds
    for reaction in cast(list[Reaction], ["seen", "done", "asking"]):
        await chat.show(reactions, reaction, sent_at=sent_at)
        await asyncio.sleep(pause_seconds)
    assert " ".join(chat.calls) == calls
    assert chat.shown == {"question"}


async def test_what_another_process_left_is_removed_and_what_it_took_away_is_added() -> None:
    chat, reactions = Chat(shown={"sand"}), Reactions(EMOJI, sure_seconds=0.0)
    await chat.show(reactions, "done", "done")
    assert chat.calls == ["?", "+tick", "-sand", "?"]
    chat.shown.clear()
    await chat.show(reactions, "done", None)
    assert chat.shown == set()
    assert chat.calls[4:] == ["?", "+tick", "?", "-tick"]


async def test_where_reactions_cannot_be_read_the_last_one_is_exchanged() -> None:
    chat = Chat(is_readable=False)
    await chat.show(Reactions(EMOJI, sure_seconds=0.0), "seen", "done")
    assert chat.calls == ["+eyes", "?", "+tick", "-eyes"]


async def test_a_reaction_that_may_not_be_there_is_looked_for() -> None:
    chat, reactions = Chat(is_readable=False), Reactions(EMOJI)
    await chat.show(reactions, "seen", sent_at=float("inf"))
    chat.failures = 1
    await chat.show(reactions, "done", "done")
    assert chat.calls == ["+eyes", "+tick", "?", "+tick", "-eyes"]


async def test_the_messages_that_were_reacted_to_first_are_forgotten() -> None:
    chat, reactions = Chat(), Reactions(EMOJI)
    for number in (*range(MESSAGES_MAX), 0, MESSAGES_MAX):
        await chat.show(reactions, "seen", message=str(number))
    del chat.calls[:-2]
    await chat.show(reactions, "seen", message="0")
    await chat.show(reactions, "seen", message="1")
    assert chat.calls == ["?", "+eyes", "+eyes"]
