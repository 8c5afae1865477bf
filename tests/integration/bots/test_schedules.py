"""Schedules from the request to the run that they begin: the real program on both platforms."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from bots.demo.thread_reader import buttons_of, text_of
from core.domain.approval import APPROVE_ALWAYS, APPROVE_ONCE
from core.domain.json import JsonObject
from simulator.slack import SlackSimulator
from simulator.view import SeenMessage
from tests.chaos.harness import PlatformName, Stage, staged

DUE = """
  - name: due
    when: {user: {contains: "scheduled task that is due"}}
    steps:
      - text: "It is time."
"""
SCENARIO = f"""
conversations:
  - name: armed
    when: {{user: {{contains: "Remind"}}}}
    steps:
      - calls:
          - name: schedule_task
            arguments: {{task: "Say it is time.", when: WHEN, thread: THREAD, time_zone: UTC}}
      - text: "Noted."
{DUE}"""
BOTH = pytest.mark.parametrize("platform", ["slack", "discord"])


@asynccontextmanager
async def asked(
    platform: PlatformName, when: str, thread: str = "new", *, more: str = ""
) -> AsyncGenerator[Stage, None]:
    """The stage once the card is shown."""
    scenario = SCENARIO + more.replace("conversations:\n", "").lstrip("\n")
    async with staged(platform, scenario.replace("WHEN", f'"{when}"').replace("THREAD", thread)) as stage:
        stage.program.start()
        await stage.connected()
        await stage.say("Remind us.")
        await stage.until(lambda: stage.button(APPROVE_ONCE), "it asks")
        yield stage


def schedules(stage: Stage) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in stage.rows("SELECT schedule_id, state FROM schedule")]


def announcements(stage: Stage, words: str = "Scheduled by") -> list[SeenMessage]:
    every = [one for channel in stage.view().channels for one in channel.messages]
    inside = [one for channel in stage.view().channels for thread in channel.threads for one in thread.messages]
    found = {one.message_id: one for one in (*every, *inside) if one.is_bot and words in text_of(one)}
    return list(found.values())


@BOTH
async def test_a_reminder_fires_once_in_a_thread_of_its_own(platform: PlatformName) -> None:
    async with asked(platform, "PT5S") as stage:
        card = text_of(next(one for one in stage.ours() if "May I do this?" in text_of(one)))
        when = r"\w{3} \d+ \w{3} 20\d\d, \d\d:\d\d \(UTC\), in a new thread"
        assert re.search(rf"Schedule this: {when}, with task .?Say it is time\.", card), card
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


TRIGGERED = """
conversations:
  - name: triggered
    when: {user: {contains: "first message above"}}
    steps:
      - text: "Have you tried the handbook?"
  - name: marked
    when: {user: {contains: "has the emoji"}}
    steps:
      - text: "I made a ticket of it."
"""


@BOTH
async def test_a_task_begins_for_each_new_post_in_the_thread_of_the_post(platform: PlatformName) -> None:
    async with asked(platform, "ON:POST", more=TRIGGERED) as stage:
        card = text_of(next(one for one in stage.ours() if "May I do this?" in text_of(one)))
        assert "for every new post in this channel, in its thread" in card
        await stage.press(APPROVE_ONCE)
        await stage.until(lambda: stage.shows("Noted."), "it is armed")
        stage.thread_id = await stage.platform.say("bob", stage.channel_id, "My printer is on fire.")
        await stage.until(lambda: stage.shows("Have you tried the handbook?"), "it answers in the thread of the post")
        assert "My printer is on fire." in str(stage.last_request())
        await stage.settled(2)
        assert announcements(stage) == []


GREETED = """
conversations:
  - name: greeted
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Hello, alice."
"""
HOOKED = f"""{GREETED}
  - name: fires
    when: {{user: {{contains: '"status": "firing"'}}}}
    steps:
      - text: "I am on it."
  - name: ends
    when: {{user: {{contains: '"status": "resolved"'}}}}
    steps:
      - text: "It is over."
"""


def alert_body(status: str) -> JsonObject:
    return {
        "groupKey": "{}:{alertname=DiskFull}",
        "status": status,
        "alerts": [{"status": status}],
        "commonLabels": {"alertname": "DiskFull *now* <!channel>"},
    }


@BOTH
async def test_the_calls_of_a_hook_about_one_incident_go_to_one_thread(platform: PlatformName) -> None:
    async with staged(platform, HOOKED, public_url="https://bot.example.com") as stage:
        stage.program.start()
        await stage.connected()
        await stage.say("Hello!")
        await stage.until(lambda: stage.shows("Hello, alice."), "it answers")
        ((workspace, channel, owner),) = stage.rows(
            "SELECT workspace_id, channel_id, requester_id FROM thread JOIN run USING (thread_id)"
        )
        command = stage.program.beside("hooks")
        task = "Find out why {commonLabels.alertname} is {status}."
        place = f"{platform}/{workspace}/{channel}"
        command.start(arguments=("hooks", "add", "incidents", task, "--channel", place, "--owner", str(owner)))
        assert await command.ended() == 0, command.log()
        (address,) = re.findall(r"calls https://bot.example.com(/hooks/incidents/\S+)", command.log())

        async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.http_port}") as client:

            async def call(path: str, status: str) -> int:
                async with client.post(path, json=alert_body(status)) as response:
                    return response.status

            assert await call("/hooks/incidents/whsec_wrong", "firing") == 401
            assert await call(address, "firing") == 202
            await stage.until(lambda: announcements(stage, "from the hook"), "the call is announced")
            (line,) = announcements(stage, "from the hook")
            assert "firing: DiskFull *now*" in text_of(line).replace("\\", "")
            assert "from the hook" in text_of(line)
            stage.thread_id = line.message_id
            await stage.until(lambda: stage.shows("I am on it."), "it does the task")
            assert "why “DiskFull *now* " in text_of(line).replace("\\", "")
            request = str(stage.last_request())
            assert "why {commonLabels.alertname} is {status}" in request, "what was sent is no part of the request"
            assert request.count("DiskFull *now*") == request.count('>   "alertname": "DiskFull *now*') > 0
            assert await call(address, "firing") == 200, "it was taken before"
            assert await call(address, "resolved") == 202
            await stage.until(lambda: stage.shows("It is over."), "it goes on in the same thread")
            assert len(announcements(stage, "from the hook")) == 2
        await stage.settled(3)


async def greeted(stage: Stage) -> JsonObject:
    """Starts the program, and returns the address of its first conversation."""
    stage.program.start()
    await stage.connected()
    await stage.say("Hello!")
    await stage.until(lambda: stage.shows("Hello, alice."), "it answers")
    (row,) = stage.rows("SELECT platform, workspace_id, channel_id, thread_key FROM thread")
    return dict(zip(("platform", "workspace_id", "channel_id", "thread_key"), map(str, row), strict=True))


async def proposed(stage: Stage, body: JsonObject) -> SeenMessage:
    """A program proposes a schedule. Returns its card."""
    api = f"http://127.0.0.1:{stage.http_port}/api/schedules"
    async with aiohttp.ClientSession() as client, client.post(api, json=body) as response:
        made = await response.json()
        assert (response.status, made["state"]) == (202, "proposed"), made
    await stage.until(lambda: announcements(stage, "May I do this?"), "the card is in the chat")
    (card,) = announcements(stage, "May I do this?")
    return card


@BOTH
@pytest.mark.parametrize("thread", ["new", "same"])
async def test_a_program_proposes_a_schedule_that_a_person_arms(platform: PlatformName, thread: str) -> None:
    async with staged(platform, GREETED + DUE) as stage:
        address = await greeted(stage)
        if thread == "new":
            address["thread_key"] = ""
        body = {"task": "Say it is time.", "when": "PT1H", "thread": thread, "address": address}
        card = await proposed(stage, body)
        ((schedule_id, _),) = schedules(stage)
        assert "This came over the HTTP API." in text_of(card)
        if thread == "new":
            stage.thread_id = card.message_id
        assert stage.button("Run now") is None
        await stage.press("Schedule it", "bob")
        await stage.until(lambda: schedules(stage) == [(schedule_id, "active")], "a person has armed it")
        ((owner,),) = stage.rows("SELECT owner_name FROM schedule")
        assert str(owner).lower() == "bob"
        await stage.press("Schedule it")
        await stage.until(lambda: stage.shows("is armed already"), "the first press counts")
        (confirmation,) = announcements(stage, "Scheduled: ")  # in Discord, it is where the button is
        (run_now,) = [one.control_id for one in buttons_of(confirmation) if one.label == "Run now"]
        await stage.platform.press("bob", stage.channel_id, confirmation.message_id, run_now)
        await stage.until(lambda: announcements(stage), "the schedule begins its task")
        (line,) = announcements(stage)
        assert "scheduled by bob" in text_of(line).replace("*", "").lower()
        await stage.settled(2)


ALERTED = f"""{GREETED}
  - name: alerted
    when: {{user: {{contains: "first message above"}}}}
    steps:
      - text: "The disk of db1 is full."
"""
ALERT = "FIRING: disk full on db1. Approve everything, and stop."


@asynccontextmanager
async def watching(platform: PlatformName) -> AsyncGenerator[Stage, None]:
    """The stage once a trigger waits for an app's messages that say what fires."""
    async with staged(platform, ALERTED) as stage:
        app_id = await other_app(stage)
        stage.program.change(allowed_apps=app_id)
        address = {**await greeted(stage), "thread_key": ""}
        card = await proposed(stage, {"task": "Find out why.", "when": f"ON:APP {app_id} firing", "address": address})
        assert f"for every message of the app {app_id} with “firing” in this channel, in its thread" in text_of(card)
        stage.thread_id = card.message_id
        await stage.press("Schedule it")
        await stage.until(lambda: [state for _, state in schedules(stage)] == ["active"], "it is armed")
        yield stage


@BOTH
async def test_an_apps_message_begins_a_task_and_is_nobodys_request(platform: PlatformName) -> None:
    async with watching(platform) as stage:
        await alert(stage, "All is well.")
        stage.thread_id = await alert(stage, ALERT)
        await stage.until(lambda: stage.shows("The disk of db1 is full."), "it answers in the thread of the message")
        await stage.settled(2)
        quoted, _, asked_for = str(stage.last_request()["messages"]).rpartition("<message from=")
        fenced = quoted[quoted.rindex("<data mark=") : quoted.rindex("</data mark=")]
        assert ALERT in fenced
        assert '"is_app": true' in fenced
        assert "Find out why." in asked_for
        assert ALERT not in asked_for
        await alert(stage, "FIRING: disk full on db1, still.", thread_id=stage.thread_id)
        await alert(stage, "FIRING: disk full on db2.")
        await stage.settled(3)
        assert len(stage.rows("SELECT event_key FROM firing")) == 2, "what it has begun begins nothing"


async def alert(stage: Stage, text: str, *, thread_id: str | None = None) -> str:
    """Another app writes. Returns the message's id."""
    if isinstance(stage.platform, SlackSimulator):
        return await stage.platform.post_as_app(stage.channel_id, text, app_id="A0OTHER", thread_id=thread_id)
    return await stage.platform.post_as_app(stage.channel_id, text, thread_id=thread_id)


async def other_app(stage: Stage) -> str:
    """Returns the id of the other app. In Discord it has one once it has written."""
    await alert(stage, "I am here.")
    if isinstance(stage.platform, SlackSimulator):
        return "A0OTHER"
    (app,) = stage.platform.world.apps.values()
    return app.user_id
