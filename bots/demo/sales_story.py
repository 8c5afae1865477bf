"""The first demo story: a user attaches a sales table, answers a question and receives a report."""

import io
import time

import aiohttp
from PIL import Image, UnidentifiedImageError

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
from bots.demo.thread_reader import StoryBroken, ThreadReader
from simulator.view import SeenFile, SeenMessage, SentFile
from simulator.view import SimulatedPlatform as Platform

WIDTH_MIN, HEIGHT_MIN = 400, 200
COLOURS_MIN = 16
"""A screenshot with fewer colors counts as blank, because even plain text has more due to antialiasing."""
ALMOST_ALL = 0.995


def find_picture_problem(content: bytes) -> str | None:
    """Returns a sentence that says why `content` is not a screenshot of a page, or None if it may be a screenshot."""
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as opened:
            picture = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        return f"It cannot be read: {error}."
    wide, high = picture.size
    if wide < WIDTH_MIN or high < HEIGHT_MIN:
        return f"It has {wide} x {high} pixels only."
    colours = picture.getcolors(wide * high) or []
    if len(colours) < COLOURS_MIN or max(count for count, _ in colours) > ALMOST_ALL * wide * high:
        return "It is blank."
    return None


PROMPT = (
    "Please make a plan, and add up the sales in this table by region. Before you write anything up, ask me how "
    "I want it: Markdown, or Chart only. Then give me report.md with the table, and a chart."
)
IN_BROWSER = (
    " Also make a web page of it, open that in your browser, and show me the picture: page.png."
)
"""Added to the prompt if the agent has a browser."""
WITH_PAGE, WITHOUT_PAGE = "sales report with a page", "sales report"
"""Names of the two conversations in the model's script. Each play uses the conversation that fits the prompt."""
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


def build_prompt(*, has_browser: bool) -> str:
    return PROMPT + IN_BROWSER if has_browser else PROMPT


async def play_slack(
    slack: Platform,
    *,
    has_browser: bool,
    person: str = "alice",
    patience_seconds: float = PATIENCE_SECONDS,
) -> StoryResult:
    """Plays the story on Slack: mentions the agent in a channel and answers its question with a button.

    Raises StoryBroken if an expected result does not appear in time.
    """
    started = time.monotonic()
    text = build_prompt(has_browser=has_browser)
    watch = await mention_agent(slack, person, text, sales_table(), patience_seconds)
    question, button = await watch.asked(CHOICE)
    await slack.press(person, first_channel(slack.view()), question.message_id, button.control_id)
    return await _told(watch, question, person, started, has_browser=has_browser)


async def play_discord(
    discord: Platform,
    *,
    has_browser: bool,
    person: str = "bob",
    patience_seconds: float = PATIENCE_SECONDS,
) -> StoryResult:
    """Plays the story on Discord: calls the slash command and answers the agent's question with a reply.

    Raises StoryBroken if an expected result does not appear in time.
    """
    started = time.monotonic()
    text = build_prompt(has_browser=has_browser)
    watch = await call_slash_command(discord, person, text, sales_table(), patience_seconds)
    question, _ = await watch.asked(CHOICE)
    channel = first_channel(discord.view())
    await discord.say(person, channel, f"{CHOICE}, please", thread_id=watch.thread_id)
    return await _told(watch, question, person, started, has_browser=has_browser)


def sales_table() -> SentFile:
    """Returns the CSV file that the user attaches to the first message of this story."""
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


async def _told(
    watch: ThreadReader, question: SeenMessage, person: str, started: float, *, has_browser: bool
) -> StoryResult:
    """Waits until the thread shows all expected results, then checks the contents of the files.

    Raises StoryBroken if a result does not appear in time or a file is wrong.
    """

    def has_answer() -> bool:
        said = watch.said(besides=question.message_id)
        return any(BEST_REGION in text and TOTAL in text.replace(",", "") for text in said)

    def names() -> list[str]:
        return [file.name for file in _sent(watch)]

    def has_chart() -> bool:
        return any(name.lower().endswith(CHARTS) for name in names() if name != PAGE)

    endings = [
        Expectation(
            "the question shows who answered it", is_answered(watch, question, person, CHOICE)
        ),
        Expectation(f"an answer names {BEST_REGION} and {TOTAL}", has_answer),
        Expectation(f"{REPORT} arrives", lambda: REPORT in names()),
        Expectation("a chart arrives", has_chart),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    ]
    if has_browser:
        endings.insert(4, Expectation(f"{PAGE} arrives", lambda: PAGE in names()))
    played = await finish_story(watch, endings, started)
    await _check_report(watch)
    if has_browser:
        await _check_page(watch)
    return played


async def _check_report(watch: ThreadReader) -> None:
    report = next(file for file in _sent(watch) if file.name == REPORT)
    text = (await _download(report)).decode("utf-8", "replace")
    if BEST_REGION not in text or TOTAL not in text.replace(",", ""):
        raise watch.broken(f"{REPORT} lacks {BEST_REGION} or {TOTAL}:\n{text}")


async def _check_page(watch: ThreadReader) -> None:
    """Raises StoryBroken if the screenshot of the page is not an image or is blank."""
    page = next(file for file in _sent(watch) if file.name == PAGE)
    if problem := find_picture_problem(await _download(page)):
        raise watch.broken(f"{PAGE} shows no page. {problem}")


def _sent(watch: ThreadReader) -> list[SeenFile]:
    return [file for message in watch.ours for file in message.files]


async def _download(file: SeenFile) -> bytes:
    """Downloads a file in the same way as the link on the demo's web page.

    Raises StoryBroken if the download fails, or if the server serves a file inline that is not an image.
    """
    async with aiohttp.ClientSession() as session, session.get(file.url) as response:
        if response.status != 200:
            raise StoryBroken(f"{file.name} cannot be downloaded: HTTP {response.status}")
        is_saved = response.headers.get("Content-Disposition", "").startswith("attachment")
        if not is_saved and not response.content_type.startswith("image/"):
            raise StoryBroken(f"{file.name} opens in the browser instead of being saved")
        return await response.read()
