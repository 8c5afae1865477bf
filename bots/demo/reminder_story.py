"""The fifth demo story: a reminder that a person arms with a click, and that fires a few seconds later."""

import time

from bots.demo.story_helpers import (
    PATIENCE_SECONDS,
    PlayedStory,
    first_channel,
    is_answered,
    send_request,
    story_person,
)
from bots.demo.thread_reader import TICKS, ThreadReader, format_transcript, text_of
from core.domain.approval import APPROVE_ONCE
from simulator.view import SimulatedPlatform

PROMPT = "Remind us in ten seconds to take the kettle off the stove."
ANSWER = "take the kettle off the stove"
_ANNOUNCED = "scheduled by"


async def play_reminder(platform: SimulatedPlatform, *, patience_seconds: float = PATIENCE_SECONDS) -> PlayedStory:
    """Plays the story: presses "Approve once", and waits for the thread that the reminder opens.

    Raises StoryBroken if an expected result does not appear in time."""
    started, person, before = time.monotonic(), story_person(platform), set(_announcements(platform))
    watch = await send_request(platform, PROMPT, None, patience_seconds)
    question, button = await watch.wait_for_question(APPROVE_ONCE)
    await platform.press(person, first_channel(platform.view()), question.message_id, button.control_id)
    await watch.wait_until(is_answered(watch, question, person, APPROVE_ONCE), "the card shows who armed the reminder")
    await watch.wait_until(lambda: bool(set(_announcements(platform)) - before), "the reminder opens a thread")
    (opened,) = set(_announcements(platform)) - before
    reminder = ThreadReader(platform=platform, thread_id=opened, patience_seconds=patience_seconds)
    await reminder.wait_until(
        lambda: any(ANSWER in text for text in reminder.bot_texts(except_id=opened)), "it reminds them"
    )
    await reminder.wait_until(lambda: reminder.has_only_reaction(TICKS), "the reminder's only reaction is a tick")
    transcript = "\n  ---\n".join(format_transcript(one.messages) for one in (watch, reminder))
    seconds = round(time.monotonic() - started, 2)
    return PlayedStory(
        runs=len(watch.status_ids), edits=watch.count_status_edits(), files=0, seconds=seconds, transcript=transcript
    )


def _announcements(platform: SimulatedPlatform) -> list[str]:
    """Returns the ids of the messages in the first channel under which scheduled runs began."""
    channel = next(one for one in platform.view().channels if not one.is_direct)
    return [one.message_id for one in channel.messages if one.is_bot and _ANNOUNCED in text_of(one).casefold()]
