"""Schedules from the request to the run that they begin: the real program on both platforms."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bots.demo.thread_reader import text_of
from core.domain.approval import APPROVE_ALWAYS, APPROVE_ONCE, DENY
from simulator.view import SeenMessage
from tests.chaos.harness import PlatformName, Stage, staged

SCENARIO = """
conversations:
  - name: armed
    when: {user: {contains: "Remind"}}
    steps:
      - calls:
          - {name: schedule_task, arguments: {task: "Say it is time.", when: WHEN, thread: THREAD, time_zone: UTC}}
      - text: "Noted."
  - name: due
    when: {user: {contains: "scheduled task that is due"}}
    steps:
      - text: "It is time."
"""
HOURLY = "RRULE:FREQ=HOURLY;BYMINUTE=0"
BOTH = pytest.mark.parametrize("platform", ["slack", "discord"])


@asynccontextmanager
async def asked(platform: PlatformName, when: str, thread: str = "new") -> AsyncGenerator[Stage, None]:
    """The stage once the card is shown."""
    async with staged(platform, SCENARIO.replace("WHEN", f'"{when}"').replace("THREAD", thread)) as stage:
        stage.program.start()
        await stage.connected()
        await stage.say("Remind us.")
        await stage.until(lambda: stage.button(APPROVE_ONCE), "it asks")
        yield stage


def schedules(stage: Stage) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in stage.rows("SELECT schedule_id, state FROM schedule")]


def announcements(stage: Stage) -> list[SeenMessage]:
    every = [one for channel in stage.view().channels for one in channel.messages]
    inside = [one for channel in stage.view().channels for thread in channel.threads for one in thread.messages]
    found = {one.message_id: one for one in (*every, *inside) if one.is_bot and "Scheduled by" in text_of(one)}
    return list(found.values())


@BOTH
async def test_a_reminder_fires_once_in_a_thread_of_its_own(platform: PlatformName) -> None:
    async with asked(platform, "PT5S") as stage:
        card = text_of(next(one for one in stage.ours() if "May I do this?" in text_of(one)))
        assert re.search(r"Schedule this: \w{3} \d+ \w{3} 20\d\d, \d\d:\d\d \(UTC\), here", card), card
        assert stage.button(APPROVE_ALWAYS) is None
        assert schedules(stage) == []
        await stage.press(APPROVE_ONCE)
        await stage.until(lambda: stage.shows("Noted."), "it says so")
        await stage.until(lambda: announcements(stage), "it fires")
        (line,) = announcements(stage)
        assert "scheduled by alice" in text_of(line).replace("*", "").lower()
        stage.thread_id = line.message_id
        await stage.until(lambda: stage.shows("It is time."), "it does the task")
        await stage.settled(2)
        assert schedules(stage) == []
        assert len(announcements(stage)) == 1


@BOTH
async def test_nothing_is_armed_by_a_no(platform: PlatformName) -> None:
    async with asked(platform, HOURLY) as stage:
        await stage.press(DENY)
        await stage.until(lambda: stage.shows("Noted."), "it goes on")
        assert schedules(stage) == []


@BOTH
async def test_people_list_run_pause_and_delete_schedules_in_words(platform: PlatformName) -> None:
    async with asked(platform, HOURLY, thread="same") as stage:
        await stage.press(APPROVE_ONCE)
        await stage.until(lambda: stage.shows("Noted."), "it is armed")
        ((schedule_id, _),) = schedules(stage)
        bot = f"@{stage.view().bot_name}"
        await stage.say(f"{bot} schedules")
        await stage.until(lambda: stage.shows("every hour at minute 0"), "it is listed")
        await stage.say(f"{bot} schedules run {schedule_id}")
        await stage.until(lambda: stage.shows("It is time."), "it runs in the same thread")
        await stage.settled(2)
        await stage.say(f"{bot} schedules pause {schedule_id}")
        await stage.until(lambda: schedules(stage) == [(schedule_id, "paused")], "it is paused")
        await stage.say(f"{bot} schedules resume {schedule_id}")
        await stage.until(lambda: schedules(stage) == [(schedule_id, "active")], "it is armed again")
        await stage.say(f"{bot} schedules delete {schedule_id}")
        await stage.until(lambda: schedules(stage) == [], "it is deleted")
