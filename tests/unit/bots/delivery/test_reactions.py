"""The bot exchanges its reaction on a message with few calls, and does not trust what others may have changed."""

from dataclasses import dataclass, field

import pytest

from bots.delivery.reactions import Reactions
from core.ports import Reaction

EMOJI: dict[Reaction, str] = {"seen": "eyes", "queued": "sand", "done": "tick", "asking": "question"}


@dataclass
class Chat:
    """A message with the bot's reactions, and the calls about it."""

    shown: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    is_readable: bool = True

    async def add(self, emoji: str) -> None:
        self.calls.append(f"+{emoji}")
        self.shown.add(emoji)

    async def remove(self, emoji: str) -> None:
        self.calls.append(f"-{emoji}")
        self.shown.discard(emoji)

    async def own(self) -> set[str] | None:
        self.calls.append("?")
        return {*self.shown} if self.is_readable else None

    async def show(self, reactions: Reactions, *wanted: Reaction | None, sent_at: float = 0.0) -> None:
        for one in wanted:
            await reactions.show(
                "m", one, sent_at_seconds=sent_at, add=self.add, remove=self.remove, fetch_own=self.own
            )


@pytest.mark.parametrize(
    ("sure_seconds", "is_new", "calls"),
    [
        (4.0, True, ["+eyes", "+tick", "-eyes"]),
        (4.0, False, ["+eyes", "?", "+tick", "-eyes"]),
        (0.0, True, ["+eyes", "?", "+tick", "-eyes"]),
    ],
)
async def test_what_this_process_alone_has_shown_is_not_fetched(
    sure_seconds: float, calls: list[str], *, is_new: bool
) -> None:
    chat = Chat()
    sent_at = float("inf") if is_new else 0.0
    await chat.show(Reactions(EMOJI, sure_seconds=sure_seconds), "seen", "done", sent_at=sent_at)
    assert chat.calls == calls
    assert chat.shown == {"tick"}


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
