"""The second and third demo story: the agent answers from a document, and pins an answer once a person allows it."""

import time
from pathlib import Path

from bots.demo.mcp_notice_board import read_notices
from bots.demo.story_helpers import (
    PATIENCE_SECONDS,
    Expectation,
    PlayedStory,
    finish_story,
    first_channel,
    is_answered,
    plan_is_done,
    send_request,
    story_person,
)
from core.domain.approval import APPROVE_ONCE
from simulator.threadbench.files import build_pdf
from simulator.view import SentFile, SimulatedPlatform

HANDBOOK = "handbook.pdf"
PAGES: tuple[tuple[str, ...], ...] = (
    (
        "Handbook of a made-up shop",
        "This shop exists in a demonstration only.",
        "The handbook says how its people work together.",
    ),
    (
        "Opening hours",
        "Every branch is open from nine to six.",
        "On the last day of a quarter it closes at noon, to count the stock.",
    ),
    (
        "Deliveries",
        "Goods arrive on Tuesdays and Thursdays.",
        "Whoever takes a delivery in checks it against the order on the same day.",
    ),
    (
        "Bonus",
        "The region that sells most in a quarter gets a bonus of 5 percent",
        "of its sales in that quarter. It is paid in the month that follows.",
    ),
    (
        "Complaints",
        "A complaint is answered within two working days.",
        "Whoever hears it first sees it through to the end.",
    ),
)
BONUS, BONUS_PLACE = "5 percent", "page 4"
_ANSWER = f"an answer names {BONUS}, {HANDBOOK} and {BONUS_PLACE}"


def handbook_file() -> SentFile:
    """Returns the PDF file that the user attaches to the first message of this story."""
    return SentFile(name=HANDBOOK, content=build_pdf(PAGES), mime_type="application/pdf")


QUESTION = (
    "What bonus does the best region of a quarter get? Make a plan, look it up in this handbook, and tell me the page."
)
PROMPT = (
    "What bonus does the best region of a quarter get? Make a plan, look it up in this handbook, tell me the page, "
    "and pin the answer to the notice board with my name."
)


async def play_question(platform: SimulatedPlatform, *, patience_seconds: float = PATIENCE_SECONDS) -> PlayedStory:
    """Plays the story in which the agent answers from the document and names the page.

    Raises StoryBroken if an expected result does not appear in time."""
    started = time.monotonic()
    watch = await send_request(platform, QUESTION, handbook_file(), patience_seconds)
    endings = (
        Expectation(_ANSWER, lambda: _has_answer(watch.bot_texts(except_id=""))),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    )
    return await finish_story(watch, endings, started)


async def play_approval(
    platform: SimulatedPlatform, board: Path, *, patience_seconds: float = PATIENCE_SECONDS
) -> PlayedStory:
    """Plays the story in which the agent also pins the answer: presses "Approve once" and checks that the notice is
    pinned after the approval and not before.

    Raises StoryBroken if an expected result does not appear in time."""
    started = time.monotonic()
    person = story_person(platform)
    watch = await send_request(platform, PROMPT, handbook_file(), patience_seconds)
    question, button = await watch.wait_for_question(APPROVE_ONCE)
    if _pinned(board, person):
        raise watch.story_broken("the notice was pinned before anybody allowed it")
    if BONUS not in "\n".join(watch.bot_texts(except_id="")):
        raise watch.story_broken("the question does not show what would be pinned")
    await platform.press(person, first_channel(platform.view()), question.message_id, button.control_id)

    endings = (
        Expectation("the question shows who allowed it", is_answered(watch, question, person, APPROVE_ONCE)),
        Expectation("the notice hangs on the board", lambda: len(_pinned(board, person)) == 1),
        Expectation(_ANSWER, lambda: _has_answer(watch.bot_texts(except_id=question.message_id))),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    )
    return await finish_story(watch, endings, started)


def _has_answer(said: list[str]) -> bool:
    return any(all(one in text for one in (BONUS, BONUS_PLACE, HANDBOOK)) for text in said)


def _pinned(board: Path, person: str) -> list[str]:
    """Returns the notices with this person's name, because stories on two platforms share the board."""
    return [line for line in read_notices(board) if person.casefold() in line.casefold()]
