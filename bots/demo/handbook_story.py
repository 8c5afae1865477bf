"""The second story: a person asks a document, and allows the agent to pin what it found to a board."""

import time
from pathlib import Path

from bots.demo.endings import Ending, Played, has_ticked, is_answered, told
from bots.demo.handbook import BONUS, BONUS_PLACE, HANDBOOK, handbook
from bots.demo.notice_board import notices
from bots.demo.opening import PATIENCE_SECONDS, called, first_channel, mentioned
from bots.demo.watch import Watch
from core.domain.approval import APPROVE_ONCE
from simulator.view import SimulatedPlatform as Platform

PROMPT = (
    "Please make a plan. Which bonus does the best region of a quarter get? Look it up in this handbook, pin the "
    "answer to the notice board with my name, and tell me the page."
)


async def play_slack(
    slack: Platform,
    board: Path,
    *,
    person: str = "alice",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Played:
    """Mentions the agent in a channel, and lets it pin. Raises StoryBroken."""
    started = time.monotonic()
    watch = await mentioned(slack, person, PROMPT, handbook(), patience_seconds)
    return await _allowed(watch, board, person, started)


async def play_discord(
    discord: Platform,
    board: Path,
    *,
    person: str = "bob",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Played:
    """Calls the slash command, and lets it pin. Raises StoryBroken."""
    started = time.monotonic()
    watch = await called(discord, person, PROMPT, handbook(), patience_seconds)
    return await _allowed(watch, board, person, started)


async def _allowed(watch: Watch, board: Path, person: str, started: float) -> Played:
    """Presses "Approve once": before that nothing hangs on the board, afterwards one notice does."""
    question, button = await watch.asked(APPROVE_ONCE)
    if _pinned(board, person):
        raise watch.broken("the notice was pinned before anybody allowed it")
    if BONUS not in "\n".join(watch.said(besides="")):
        raise watch.broken("the question does not show what would be pinned")
    channel = first_channel(watch.platform.view())
    await watch.platform.press(person, channel, question.message_id, button.control_id)

    def has_answer() -> bool:
        said = watch.said(besides=question.message_id)
        wanted = (BONUS, BONUS_PLACE, HANDBOOK)
        return any(all(one in text for one in wanted) for text in said)

    endings = (
        Ending(
            "the question shows who allowed it", is_answered(watch, question, person, APPROVE_ONCE)
        ),
        Ending("the notice hangs on the board", lambda: len(_pinned(board, person)) == 1),
        Ending(f"an answer names {BONUS}, {HANDBOOK} and {BONUS_PLACE}", has_answer),
        Ending("the plan's last step is ticked", has_ticked(watch)),
    )
    return await told(watch, endings, started)


def _pinned(board: Path, person: str) -> list[str]:
    """The person's notices; others may pin at the same time."""
    return [line for line in notices(board) if person.casefold() in line.casefold()]
