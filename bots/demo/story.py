"""The story that the demonstration plays: a person attaches a table, is asked a question, and gets a report."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bots.demo.transcript import buttons_of, messages_of, text_of, transcript
from bots.simulator.view import PlatformView, SeenMessage, SentFile, SimulatedPlatform

PATIENCE_SECONDS = 60.0
PROMPT = "Please sum up the sales in this table by region and write me a short report."
QUESTION = "How should I hand over the report"
CHOICE = "Markdown"
REPORT = "report.md"
ANSWER = "The report is attached"
SALES = """region,month,amount
North,January,1200
South,January,800
North,February,1500
West,February,700
South,March,950
West,March,1150
"""


class StoryBroken(Exception):
    """Something that the story needs did not happen in time; the text says what, and shows the thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One telling of the story. `edits` counts those that a reader saw happen to status messages."""

    thread_id: str
    runs: int
    edits: int
    files: int
    seconds: float
    transcript: str


async def play_slack(slack: SimulatedPlatform, *, person: str = "alice") -> Played:
    """Mentions the agent in a channel, and answers its question by a button."""
    started = time.monotonic()
    channel = _first_channel(slack.view())
    thread_id = await slack.say(
        person, channel, f"@{slack.view().bot_name} {PROMPT}", files=[_sales()]
    )
    question = await _asked(slack, thread_id)
    button = next((one for one in buttons_of(question) if one.label == CHOICE), None)
    if button is None:
        raise StoryBroken(f"the question has no button {CHOICE!r}:\n{text_of(question)}")
    await slack.press(person, channel, question.message_id, button.control_id)
    return await _told(slack, thread_id, started)


async def play_discord(discord: SimulatedPlatform, *, person: str = "bob") -> Played:
    """Calls the slash command with an attachment, and answers by a reply in the thread."""
    started = time.monotonic()
    channel = _first_channel(discord.view())
    await _until(discord, lambda view: bool(view.commands), "the slash commands are registered")
    before = _threads(discord.view())
    await discord.command(
        person, channel, "agent run", {"prompt": PROMPT}, files={"attachment": _sales()}
    )
    await _until(discord, lambda view: bool(_threads(view) - before), "a thread is opened")
    thread_id = min(_threads(discord.view()) - before)
    await _asked(discord, thread_id)
    await discord.say(person, channel, f"{CHOICE}, please", thread_id=thread_id)
    return await _told(discord, thread_id, started)


async def _asked(platform: SimulatedPlatform, thread_id: str) -> SeenMessage:
    def question(view: PlatformView) -> SeenMessage | None:
        found = [
            one for one in messages_of(view, thread_id) if one.is_bot and QUESTION in text_of(one)
        ]
        with_buttons = [one for one in found if buttons_of(one)]
        return (with_buttons or [None])[-1]

    await _until(platform, lambda view: question(view) is not None, "the agent asks", thread_id)
    found = question(platform.view())
    if found is None:
        raise StoryBroken("the question is gone again")
    return found


async def _told(platform: SimulatedPlatform, thread_id: str, started: float) -> Played:
    def is_done(view: PlatformView) -> bool:
        messages = messages_of(view, thread_id)
        has_answer = any(one.is_bot and ANSWER in text_of(one) for one in messages)
        has_report = any(file.name == REPORT for one in messages for file in one.files)
        is_still = not any(button.label == "Stop" for one in messages for button in buttons_of(one))
        return has_answer and has_report and is_still

    await _until(platform, is_done, "the report arrives", thread_id)
    messages = messages_of(platform.view(), thread_id)
    ours = [one for one in messages if one.is_bot]
    return Played(
        thread_id=thread_id,
        runs=2,
        edits=sum(one.edits for one in ours),
        files=sum(len(one.files) for one in ours),
        seconds=round(time.monotonic() - started, 2),
        transcript=transcript(messages),
    )


async def _until(
    platform: SimulatedPlatform,
    holds: Callable[[PlatformView], bool],
    what: str,
    thread_id: str | None = None,
) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _ in platform.changes():
                if holds(platform.view()):
                    return
    except TimeoutError as error:
        shown = transcript(messages_of(platform.view(), thread_id)) if thread_id else ""
        raise StoryBroken(
            f"{what}: this did not happen within {PATIENCE_SECONDS:.0f} s.\n{shown}"
        ) from error


def _sales() -> SentFile:
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


def _first_channel(view: PlatformView) -> str:
    return next(channel.channel_id for channel in view.channels if not channel.is_direct)


def _threads(view: PlatformView) -> set[str]:
    return {thread.thread_id for channel in view.channels for thread in channel.threads}
