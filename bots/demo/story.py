"""The first story that the demonstration plays: a person attaches a table, is asked a question, and gets a report."""

import time
from collections.abc import Sequence

import aiohttp

from bots.demo.endings import Ending, Played, has_ticked, is_answered, told
from bots.demo.opening import PATIENCE_SECONDS, called, first_channel, mentioned
from bots.demo.watch import StoryBroken, Watch
from bots.simulator.view import SeenFile, SeenMessage, SentFile
from bots.simulator.view import SimulatedPlatform as Platform

PROMPT = (
    "Please make a plan, and add up the sales in this table by region. Before you write anything up, ask me how "
    "I want it: Markdown, or Chart only. Then give me report.md with the table, and a chart."
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


async def play_slack(
    slack: Platform, *, person: str = "alice", patience_seconds: float = PATIENCE_SECONDS
) -> Played:
    """Mentions the agent in a channel, and answers its question by a button. Raises StoryBroken."""
    started = time.monotonic()
    watch = await mentioned(slack, person, PROMPT, sales(), patience_seconds)
    question, button = await watch.asked(CHOICE)
    await slack.press(person, first_channel(slack.view()), question.message_id, button.control_id)
    return await _told(watch, question, person, started)


async def play_discord(
    discord: Platform, *, person: str = "bob", patience_seconds: float = PATIENCE_SECONDS
) -> Played:
    """Calls the slash command with an attachment, and answers by a reply in the thread. Raises StoryBroken."""
    started = time.monotonic()
    watch = await called(discord, person, PROMPT, sales(), patience_seconds)
    question, _ = await watch.asked(CHOICE)
    channel = first_channel(discord.view())
    await discord.say(person, channel, f"{CHOICE}, please", thread_id=watch.thread_id)
    return await _told(watch, question, person, started)


def sales() -> SentFile:
    """The table that the story begins with."""
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


async def _told(watch: Watch, question: SeenMessage, person: str, started: float) -> Played:
    """Waits for the end that a reader sees, then looks at what is there."""

    def has_answer() -> bool:
        said = watch.said(besides=question.message_id)
        return any(BEST_REGION in text and TOTAL in text.replace(",", "") for text in said)

    def has_report() -> bool:
        return any(file.name == REPORT for one in watch.ours for file in one.files)

    endings = (
        Ending("the question shows who answered it", is_answered(watch, question, person, CHOICE)),
        Ending(f"an answer names {BEST_REGION} and {TOTAL}", has_answer),
        Ending(f"{REPORT} arrives", has_report),
        Ending("the plan's last step is ticked", has_ticked(watch)),
    )
    played = await told(watch, endings, started)
    sent = [file for message in watch.messages if message.is_bot for file in message.files]
    await _check(watch, sent)
    return played


async def _check(watch: Watch, sent: Sequence[SeenFile]) -> None:
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
