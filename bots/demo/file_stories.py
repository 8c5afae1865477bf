"""Two demo stories that end with files: the report of a table, and a web page as the browser shows it."""

import io
import time

from PIL import Image, UnidentifiedImageError

from bots.demo.story_helpers import (
    PATIENCE_SECONDS,
    Expectation,
    PlayedStory,
    download_file,
    files_of_agent,
    finish_story,
    first_channel,
    is_answered,
    plan_is_done,
    send_request,
    story_person,
)
from bots.demo.thread_reader import ThreadReader
from simulator.view import SeenMessage, SentFile, SimulatedPlatform

TABLE_PROMPT = (
    "What sold best by region? Make a plan first. Before you write it up, ask me how I want it: Markdown, or Chart "
    "only. I'd like the table as report.md, and a chart."
)
CHOICE = "Markdown"
REPORT = "report.md"
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


def sales_table() -> SentFile:
    """Returns the CSV file that the user attaches to the first message of this story."""
    return SentFile(name="sales.csv", content=SALES.encode(), mime_type="text/csv")


async def play_table(platform: SimulatedPlatform, *, patience_seconds: float = PATIENCE_SECONDS) -> PlayedStory:
    """Plays the story of the table. The person answers the question with a button in Slack, with a reply in Discord.

    Raises StoryBroken if an expected result does not appear in time."""
    started = time.monotonic()
    watch = await send_request(platform, TABLE_PROMPT, sales_table(), patience_seconds)
    question, button = await watch.wait_for_question(CHOICE)
    person, channel = story_person(platform), first_channel(platform.view())
    if platform.view().platform == "slack":
        await platform.press(person, channel, question.message_id, button.control_id)
    else:
        await platform.say(person, channel, f"{CHOICE}, please", thread_id=watch.thread_id)
    played = await finish_story(watch, _endings(watch, question, person), started)
    report = next(file for file in files_of_agent(watch) if file.name == REPORT)
    text = (await download_file(report)).decode("utf-8", "replace")
    if BEST_REGION not in text or TOTAL not in text.replace(",", ""):
        raise watch.story_broken(f"{REPORT} lacks {BEST_REGION} or {TOTAL}:\n{text}")
    return played


def _endings(watch: ThreadReader, question: SeenMessage, person: str) -> list[Expectation]:
    def has_answer() -> bool:
        texts = watch.bot_texts(except_id=question.message_id)
        return any(BEST_REGION in text and TOTAL in text.replace(",", "") for text in texts)

    def names() -> list[str]:
        return [file.name for file in files_of_agent(watch)]

    return [
        Expectation("the question shows who answered it", is_answered(watch, question, person, CHOICE)),
        Expectation(f"an answer names {BEST_REGION} and {TOTAL}", has_answer),
        Expectation(f"{REPORT} arrives", lambda: REPORT in names()),
        Expectation("a chart arrives", lambda: any(n.lower().endswith(CHARTS) for n in names())),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    ]


PAGE_PROMPT = (
    "Can you make a web page with our opening hours? Monday to Friday 9 to 18, Saturday 10 to 16. Make a plan, open "
    "the page in your browser, and show me the picture: page.png."
)
PAGE_CONVERSATION = "web page"
"""The name of the web page's story in the model's script."""
PAGE_PICTURE = "page.png"
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


async def play_page(platform: SimulatedPlatform, *, patience_seconds: float = PATIENCE_SECONDS) -> PlayedStory:
    """Plays the story of the web page. Raises StoryBroken if the picture does not arrive in time or shows nothing."""
    started = time.monotonic()
    watch = await send_request(platform, PAGE_PROMPT, None, patience_seconds)

    def has_page() -> bool:
        return any(file.name == PAGE_PICTURE for file in files_of_agent(watch))

    endings = (
        Expectation(f"{PAGE_PICTURE} arrives", has_page),
        Expectation("the plan's last step is ticked", plan_is_done(watch)),
    )
    played = await finish_story(watch, endings, started)
    page = next(file for file in files_of_agent(watch) if file.name == PAGE_PICTURE)
    if problem := find_picture_problem(await download_file(page)):
        raise watch.story_broken(f"{PAGE_PICTURE} shows no page. {problem}")
    return played
