"""The second demo story: a user asks about a document and lets the agent pin the answer to a notice board."""

import time
from collections.abc import Sequence
from pathlib import Path

from bots.demo.mcp_notice_board import read_notices
from bots.demo.story_steps import (
    PATIENCE_SECONDS,
    Expectation,
    StoryResult,
    call_slash_command,
    finish_story,
    first_channel,
    is_answered,
    mention_agent,
    plan_is_done,
)
from bots.demo.thread_reader import ThreadReader
from core.domain.approval import APPROVE_ONCE
from simulator.view import SentFile
from simulator.view import SimulatedPlatform as Platform

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
_TOP, _LEFT, _LEADING = 760, 72, 24


def handbook_file() -> SentFile:
    """Returns the PDF file that the user attaches to the first message of this story."""
    return SentFile(name=HANDBOOK, content=build_pdf(PAGES), mime_type="application/pdf")


def build_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Returns a PDF file with a page for each sequence of lines. The first line of a page is its heading.

    Raises UnicodeEncodeError if a line contains characters outside Latin-1.
    """
    first_page = 4
    kids = " ".join(f"{first_page + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for at, lines in enumerate(pages):
        drawn = _drawn(lines)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            b"/Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (first_page + 2 * at + 1)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    return _file(objects)


def _drawn(lines: Sequence[str]) -> bytes:
    shown: list[str] = []
    for at, line in enumerate(lines):
        text = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        size, height = (20, _TOP) if at == 0 else (12, _TOP - 16 - _LEADING * at)
        shown.append(f"BT /F1 {size} Tf {_LEFT} {height} Td ({text}) Tj ET")
    return "\n".join(shown).encode("latin-1")


def _file(objects: Sequence[bytes]) -> bytes:
    """Returns the bytes of a PDF file: the objects and the cross-reference table with their offsets."""
    made = bytearray(b"%PDF-1.4\n")
    begins: list[int] = []
    for number, one in enumerate(objects, start=1):
        begins.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for begin in begins:
        made += b"%010d 00000 n \n" % begin
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    made += b"startxref\n%d\n%%%%EOF\n" % table
    return bytes(made)


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
) -> StoryResult:
    """Plays the story on Slack: mentions the agent in a channel and approves the notice.

    Raises StoryBroken if an expected result does not appear in time.
    """
    started = time.monotonic()
    watch = await mention_agent(slack, person, PROMPT, handbook_file(), patience_seconds)
    return await _allowed(watch, board, person, started)


async def play_discord(
    discord: Platform,
    board: Path,
    *,
    person: str = "bob",
    patience_seconds: float = PATIENCE_SECONDS,
) -> StoryResult:
    """Plays the story on Discord: calls the slash command and approves the notice.

    Raises StoryBroken if an expected result does not appear in time.
    """
    started = time.monotonic()
    watch = await call_slash_command(discord, person, PROMPT, handbook_file(), patience_seconds)
    return await _allowed(watch, board, person, started)


async def _allowed(watch: ThreadReader, board: Path, person: str, started: float) -> StoryResult:
    """Presses "Approve once" and checks that the notice is pinned after the approval and not before.

    Raises StoryBroken if an expected result does not appear in time.
    """
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
        Expectation(
            "the question shows who allowed it", is_answered(watch, question, person, APPROVE_ONCE)
        ),
        Expectation("the notice hangs on the board", lambda: len(_pinned(board, person)) == 1),
        Expectation(f"an answer names {BONUS}, {HANDBOOK} and {BONUS_PLACE}", has_answer),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    )
    return await finish_story(watch, endings, started)


def _pinned(board: Path, person: str) -> list[str]:
    """Returns the notices with this person's name, because stories on two platforms share the board."""
    return [line for line in read_notices(board) if person.casefold() in line.casefold()]
