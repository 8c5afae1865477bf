"""Steps that all demo stories share: starting a conversation and checking the final state of its thread."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp

from bots.demo.thread_reader import (
    CROSSES,
    TICKS,
    StoryBroken,
    ThreadReader,
    buttons_of,
    format_transcript,
    text_of,
    wait_for_view,
)
from simulator.view import PlatformView, SeenFile, SeenMessage, SentFile, SimulatedPlatform

PATIENCE_SECONDS = 60.0


def story_person(platform: SimulatedPlatform) -> str:
    """Returns who plays the stories on this platform."""
    return {"slack": "alice", "discord": "bob"}[platform.view().platform]


async def send_request(
    platform: SimulatedPlatform, text: str, file: SentFile | None, patience_seconds: float
) -> ThreadReader:
    """Mentions the agent in a Slack channel, or calls its slash command in Discord. Returns a reader for the new
    thread. Raises StoryBroken if the command or the thread does not appear in time."""
    if platform.view().platform == "discord":
        channel = first_channel(platform.view())
        wait = patience_seconds
        await wait_for_view(platform, lambda view: bool(view.commands), "the slash commands come up", wait)
        before = _threads(platform.view())
        sent = {"attachment": file} if file else {}
        await platform.command(story_person(platform), channel, "agent run", {"prompt": text}, files=sent)
        await wait_for_view(platform, lambda view: bool(_threads(view) - before), "a thread is opened", wait)
        thread_id = min(_threads(platform.view()) - before)
        return ThreadReader(platform=platform, thread_id=thread_id, patience_seconds=patience_seconds)
    said = f"@{platform.view().bot_name} {text}"
    channel = first_channel(platform.view())
    sent = [file] if file else []
    thread_id = await platform.say(story_person(platform), channel, said, files=sent)
    return ThreadReader(platform=platform, thread_id=thread_id, patience_seconds=patience_seconds)


def first_channel(view: PlatformView) -> str:
    return next(channel.channel_id for channel in view.channels if not channel.is_direct)


def _threads(view: PlatformView) -> set[str]:
    return {thread.thread_id for channel in view.channels for thread in channel.threads}


OPEN_STEP = "☐"
_ALL_DONE = re.compile(r"\b(\d+) of \1 tasks\b")


class Expectation(NamedTuple):
    """A condition that the thread must meet, and a description of it for error messages."""

    what: str
    holds: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedStory:
    """A story that was played and succeeded. `runs` counts status messages, `edits` their visible changes."""

    runs: int
    edits: int
    files: int
    seconds: float
    transcript: str


async def finish_story(reader: ThreadReader, endings: Sequence[Expectation], started: float) -> PlayedStory:
    """Waits until all expectations of the story, and the expectations that all stories share, are met.

    `started` is the value of `time.monotonic` at the start of the story. Raises StoryBroken if an expectation is not
    met in time."""
    for what, holds in (*endings, *_always(reader)):
        await reader.wait_until(lambda holds=holds: holds() or reader.has_only_reaction(CROSSES), what)
        if not holds():
            raise reader.story_broken(f"{what}: it failed before that.")
    seconds = time.monotonic() - started
    if max((len(reader.shown[one]) for one in reader.status_ids), default=0) < 3:
        raise reader.story_broken("no status message was seen to change twice")
    return PlayedStory(
        runs=len(reader.status_ids),
        edits=reader.count_status_edits(),
        files=sum(len(message.files) for message in reader.messages if message.is_bot),
        seconds=round(seconds, 2),
        transcript=format_transcript(reader.messages),
    )


def is_answered(reader: ThreadReader, question: SeenMessage, person: str, answer: str) -> Callable[[], bool]:
    """Returns a predicate that is true if the question shows that `person` gave `answer`."""

    def holds() -> bool:
        shown = next((o for o in reader.messages if o.message_id == question.message_id), None)
        text = text_of(shown).casefold().replace("*", "") if shown is not None else ""
        is_told = answer.casefold() in text or "answered in this thread" in text
        return f"{person} answered" in text and is_told

    return holds


def plan_is_done(reader: ThreadReader) -> Callable[[], bool]:
    """Returns a predicate that is true if the thread showed a plan with open steps and now shows all steps done."""

    def holds() -> bool:
        shown = [reader.shown[one] for one in reader.status_ids]
        was_open = any(OPEN_STEP in text for texts in shown for text in texts)
        return was_open and any(_ALL_DONE.search(texts[-1]) for texts in shown)

    return holds


def _always(watch: ThreadReader) -> tuple[Expectation, ...]:
    def is_over() -> bool:
        return not any(button.label == "Stop" for one in watch.messages for button in buttons_of(one))

    return (
        Expectation("the work ends", is_over),
        Expectation("the request's only reaction is a tick", lambda: watch.has_only_reaction(TICKS)),
    )


def files_of_agent(reader: ThreadReader) -> list[SeenFile]:
    return [file for message in reader.bot_messages for file in message.files]


async def download_file(file: SeenFile) -> bytes:
    """Downloads a file in the same way as the link on the demo's web page.

    Raises StoryBroken if the download fails, or if the server serves a file inline that is not an image."""
    async with aiohttp.ClientSession() as session, session.get(file.url) as response:
        if response.status != 200:
            raise StoryBroken(f"{file.name} cannot be downloaded: HTTP {response.status}")
        is_saved = response.headers.get("Content-Disposition", "").startswith("attachment")
        if not is_saved and not response.content_type.startswith("image/"):
            raise StoryBroken(f"{file.name} opens in the browser instead of being saved")
        return await response.read()
