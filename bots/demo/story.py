"""The story that the demonstration plays: a person attaches a table, is asked a question, and gets a report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from bots.demo.transcript import buttons_of, text_of, transcript
from bots.demo.watch import StoryBroken, Watch, until
from bots.simulator.view import Button, PlatformView, SeenFile, SeenMessage, SentFile
from bots.simulator.view import SimulatedPlatform as Platform

PATIENCE_SECONDS = 60.0
PROMPT = (
    "Please add up the sales in this table by region. Before you write anything up, ask me how I want it: "
    "Markdown, or Chart only. Then give me report.md with the table, and a chart."
)
CHOICE = "Markdown"
REPORT = "report.md"
BEST_REGION = "North"
TOTAL = "6300"
SALES = """region,month,amount
North,January,1200
South,January,800
North,February,1500
West,February,700
South,March,950
West,March,1150
"""
TICKS = ("white_check_mark", "✅")
CROSSES = ("x", "❌")
OVER = (*TICKS, *CROSSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One telling of the story. `runs` and `edits` were counted on the screen: status messages, and their changes."""

    thread_id: str
    runs: int
    edits: int
    files: int
    seconds: float
    transcript: str


async def play_slack(
    slack: Platform, *, person: str = "alice", patience_seconds: float = PATIENCE_SECONDS
) -> Played:
    """Mentions the agent in a channel, and answers its question by a button. Raises StoryBroken."""
    started = time.monotonic()
    channel = _first_channel(slack.view())
    thread_id = await slack.say(
        person, channel, f"@{slack.view().bot_name} {PROMPT}", files=[sales()]
    )
    watch = Watch(platform=slack, thread_id=thread_id, patience_seconds=patience_seconds)
    question, button = await _asked(watch)
    await slack.press(person, channel, question.message_id, button.control_id)
    return await _told(watch, question.message_id, person, started)


async def play_discord(
    discord: Platform, *, person: str = "bob", patience_seconds: float = PATIENCE_SECONDS
) -> Played:
    """Calls the slash command with an attachment, and answers by a reply in the thread. Raises StoryBroken."""
    started = time.monotonic()
    channel = _first_channel(discord.view())
    wait = patience_seconds
    await until(discord, lambda view: bool(view.commands), "the slash commands come up", wait)
    before = _threads(discord.view())
    await discord.command(
        person, channel, "agent run", {"prompt": PROMPT}, files={"attachment": sales()}
    )
    await until(discord, lambda view: bool(_threads(view) - before), "a thread is opened", wait)
    thread_id = min(_threads(discord.view()) - before)
    watch = Watch(platform=discord, thread_id=thread_id, patience_seconds=patience_seconds)
    question, _ = await _asked(watch)
    await discord.say(person, channel, f"{CHOICE}, please", thread_id=thread_id)
    return await _told(watch, question.message_id, person, started)


def sales() -> SentFile:
    """The table that the story begins with."""
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


async def _asked(watch: Watch) -> tuple[SeenMessage, Button]:
    def found() -> list[tuple[SeenMessage, Button]]:
        return [
            (message, button)
            for message in watch.messages
            if message.is_bot
            for button in buttons_of(message)
            if CHOICE.casefold() in button.label.casefold()
        ]

    what = f"the agent asks, with a button {CHOICE!r}"
    await watch.until(lambda: bool(found()) or _signs(watch, OVER), what)
    if not found():
        raise watch.broken(f"{what}: it ended without asking.")
    return found()[-1]


def _signs(watch: Watch, signs: Sequence[str]) -> bool:
    """Whether the request has one reaction, and it is one of these."""
    seen = [reaction.emoji for reaction in watch.messages[0].reactions]
    return len(seen) == 1 and seen[0] in signs


async def _told(watch: Watch, question_id: str, person: str, started: float) -> Played:
    """Waits for the end that a reader sees, then looks at what is there."""
    for what, holds in _endings(watch, question_id, person):
        await watch.until(lambda holds=holds: holds() or _signs(watch, CROSSES), what)
        if not holds():
            raise watch.broken(f"{what}: it failed before that.")
    seconds = time.monotonic() - started
    messages = watch.messages
    sent = [file for message in messages if message.is_bot for file in message.files]
    await _check(watch, sent)
    return Played(
        thread_id=watch.thread_id,
        runs=len(watch.status_ids),
        edits=watch.edits(),
        files=len(sent),
        seconds=round(seconds, 2),
        transcript=transcript(messages),
    )


def _endings(
    watch: Watch, question_id: str, person: str
) -> tuple[tuple[str, Callable[[], bool]], ...]:
    """What a reader waits for, in words and as a test, in the order in which it is looked for."""

    def shows_who_answered() -> bool:
        question = next((one for one in watch.messages if one.message_id == question_id), None)
        text = text_of(question).casefold() if question is not None else ""
        return f"{person} answered" in text.replace("*", "") and CHOICE.casefold() in text

    def has_answer() -> bool:
        said = [text_of(one) for one in watch.ours if one.message_id != question_id]
        return any(BEST_REGION in text and TOTAL in text.replace(",", "") for text in said)

    def has_report() -> bool:
        return any(file.name == REPORT for one in watch.ours for file in one.files)

    def is_over() -> bool:
        return not any(
            button.label == "Stop" for one in watch.messages for button in buttons_of(one)
        )

    return (
        ("the question shows who answered it", shows_who_answered),
        (f"an answer names {BEST_REGION} and {TOTAL}", has_answer),
        (f"{REPORT} arrives", has_report),
        ("the work ends", is_over),
        ("the request's only reaction is a tick", lambda: _signs(watch, TICKS)),
    )


async def _check(watch: Watch, sent: Sequence[SeenFile]) -> None:
    if max((len(watch.shown[one]) for one in watch.status_ids), default=0) < 3:
        raise watch.broken("no status message was seen to change twice")
    report = next(file for file in sent if file.name == REPORT)
    text = (await _download(report)).decode("utf-8", "replace")
    if BEST_REGION not in text or TOTAL not in text.replace(",", ""):
        raise watch.broken(f"{REPORT} lacks {BEST_REGION} or {TOTAL}:\n{text}")


async def _download(file: SeenFile) -> bytes:
    """As the page's link does. Raises StoryBroken where that gives no file."""
    async with aiohttp.ClientSession() as session, session.get(file.url) as response:
        if response.status != 200:
            raise StoryBroken(f"{file.name} cannot be downloaded: HTTP {response.status}")
        if not response.headers.get("Content-Disposition", "").startswith("attachment"):
            raise StoryBroken(f"{file.name} opens in the browser instead of being saved")
        return await response.read()


def _first_channel(view: PlatformView) -> str:
    return next(channel.channel_id for channel in view.channels if not channel.is_direct)


def _threads(view: PlatformView) -> set[str]:
    return {thread.thread_id for channel in view.channels for thread in channel.threads}
