"""The first story that the demonstration plays: a person attaches a table, is asked a question, and gets a report."""

import time

import aiohttp

from bots.demo.endings import Ending, Played, has_ticked, is_answered, told
from bots.demo.opening import PATIENCE_SECONDS, called, first_channel, mentioned
from bots.demo.picture import nothing_shown
from bots.demo.watch import StoryBroken, Watch
from simulator.view import SeenFile, SeenMessage, SentFile
from simulator.view import SimulatedPlatform as Platform

PROMPT = (
    "Please make a plan, and add up the sales in this table by region. Before you write anything up, ask me how "
    "I want it: Markdown, or Chart only. Then give me report.md with the table, and a chart."
)
IN_BROWSER = (
    " Also make a web page of it, open that in your browser, and show me the picture: page.png."
)
"""What is asked for besides where the agent has a browser."""
WITH_PAGE, WITHOUT_PAGE = "sales report with a page", "sales report"
"""The conversations of the script, of which one telling plays one."""
CHOICE = "Markdown"
REPORT = "report.md"
PAGE = "page.png"
CHARTS = (".png", ".svg", ".jpg", ".jpeg")
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


def prompt(*, has_browser: bool) -> str:
    return PROMPT + IN_BROWSER if has_browser else PROMPT


async def play_slack(
    slack: Platform,
    *,
    has_browser: bool,
    person: str = "alice",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Played:
    """Mentions the agent in a channel, and answers its question by a button. Raises StoryBroken."""
    started = time.monotonic()
    text = prompt(has_browser=has_browser)
    watch = await mentioned(slack, person, text, sales(), patience_seconds)
    question, button = await watch.asked(CHOICE)
    await slack.press(person, first_channel(slack.view()), question.message_id, button.control_id)
    return await _told(watch, question, person, started, has_browser=has_browser)


async def play_discord(
    discord: Platform,
    *,
    has_browser: bool,
    person: str = "bob",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Played:
    """Calls the slash command with an attachment, and answers by a reply in the thread. Raises StoryBroken."""
    started = time.monotonic()
    text = prompt(has_browser=has_browser)
    watch = await called(discord, person, text, sales(), patience_seconds)
    question, _ = await watch.asked(CHOICE)
    channel = first_channel(discord.view())
    await discord.say(person, channel, f"{CHOICE}, please", thread_id=watch.thread_id)
    return await _told(watch, question, person, started, has_browser=has_browser)


def sales() -> SentFile:
    """The table that the story begins with."""
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


async def _told(
    watch: Watch, question: SeenMessage, person: str, started: float, *, has_browser: bool
) -> Played:
    """Waits for the end that a reader sees, then looks at what is there."""

    def has_answer() -> bool:
        said = watch.said(besides=question.message_id)
        return any(BEST_REGION in text and TOTAL in text.replace(",", "") for text in said)

    def names() -> list[str]:
        return [file.name for file in _sent(watch)]

    def has_chart() -> bool:
        return any(name.lower().endswith(CHARTS) for name in names() if name != PAGE)

    endings = [
        Ending("the question shows who answered it", is_answered(watch, question, person, CHOICE)),
        Ending(f"an answer names {BEST_REGION} and {TOTAL}", has_answer),
        Ending(f"{REPORT} arrives", lambda: REPORT in names()),
        Ending("a chart arrives", has_chart),
        Ending("the plan's last step is ticked", has_ticked(watch)),
    ]
    if has_browser:
        endings.insert(4, Ending(f"{PAGE} arrives", lambda: PAGE in names()))
    played = await told(watch, endings, started)
    await _check_report(watch)
    if has_browser:
        await _check_page(watch)
    return played


async def _check_report(watch: Watch) -> None:
    report = next(file for file in _sent(watch) if file.name == REPORT)
    text = (await _download(report)).decode("utf-8", "replace")
    if BEST_REGION not in text or TOTAL not in text.replace(",", ""):
        raise watch.broken(f"{REPORT} lacks {BEST_REGION} or {TOTAL}:\n{text}")


async def _check_page(watch: Watch) -> None:
    """That it is a picture, and shows something."""
    page = next(file for file in _sent(watch) if file.name == PAGE)
    if problem := nothing_shown(await _download(page)):
        raise watch.broken(f"{PAGE} shows no page. {problem}")


def _sent(watch: Watch) -> list[SeenFile]:
    return [file for message in watch.ours for file in message.files]


async def _download(file: SeenFile) -> bytes:
    """As the page's link does. Raises StoryBroken where that gives no file, or shows one that is no picture."""
    async with aiohttp.ClientSession() as session, session.get(file.url) as response:
        if response.status != 200:
            raise StoryBroken(f"{file.name} cannot be downloaded: HTTP {response.status}")
        is_saved = response.headers.get("Content-Disposition", "").startswith("attachment")
        if not is_saved and not response.content_type.startswith("image/"):
            raise StoryBroken(f"{file.name} opens in the browser instead of being saved")
        return await response.read()
