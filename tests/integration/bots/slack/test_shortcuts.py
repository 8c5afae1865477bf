"""Shortcuts, their form and the slash command begin runs, and are answered in time whatever happens."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bots.inbound.actions import Outcome
from bots.slack.install.manifest import build_manifest
from core.domain.actions import IncomingMessage
from core.domain.json import JsonObject
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.settings import read_manifest
from simulator.view import SeenForm, SentFile
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, general, running
from tests.support.waiting import until

BUTTONS: list[JsonObject] = [
    {"type": "button", "action_id": name, "value": value, "text": {"type": "plain_text", "text": name}}
    for name, value in (("run:stop", "r1"), ("feedback", "r1:bad"))
]
RUN = Outcome(run_id="run-1")
ASK = "Ask Threadhand"


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    settings = SlackSettings(**read_manifest(build_manifest()))
    async with SlackSimulator(settings=settings) as simulator:
        yield simulator


async def form_of(slack: SlackSimulator, person: str = "alice") -> SeenForm:
    await until(lambda: [one for one in slack.view().forms if one.person == person])
    return next(one for one in slack.view().forms if one.person == person)


def message(receiver: RecordingReceiver, at: int = 0) -> IncomingMessage:
    taken = receiver.taken[at]
    assert isinstance(taken, IncomingMessage)
    return taken


def texts_of(slack: SlackSimulator) -> list[str]:
    return [
        message.text
        for channel in slack.workspace.channels.values()
        for message in channel.messages.values()
        if message.is_bot
    ]


async def test_the_shortcut_on_a_message_asks_about_it_in_its_thread(slack: SlackSimulator):
    receiver = RecordingReceiver(outcome=RUN)
    async with running(slack, receiver):
        file = SentFile(name="a.csv", content=b"a")
        ts = await slack.say("bob", channel_of(slack), "Sales fell <b>again</b>", files=[file])
        await slack.use_shortcut("alice", ASK, channel_of(slack), ts)
        form = await form_of(slack)
        words = "Why? 1 < 2 & <!channel>"
        await slack.submit("alice", form.form_id, {"request": words})
        asked = message(receiver)
        await until(lambda: general(slack).threads)
        await until(lambda: len(general(slack).threads[0].messages) == 2)
    assert asked.address.thread_key == asked.message_ref == ts
    assert asked.person.name == "alice"
    assert asked.is_addressed
    assert asked.text.startswith(words)
    assert "Forwarded from" in asked.text
    assert "> Sales fell <b>again</b>" in asked.text
    assert [one.name for one in asked.files] == ["a.csv"]
    assert slack.view().forms == ()
    (told,) = texts_of(slack)
    assert "alice asked me: Why?" in told
    assert "<!channel>" not in told


async def test_the_shortcut_in_a_channel_without_the_app_says_how_to_invite_it(slack: SlackSimulator):
    receiver = RecordingReceiver(outcome=RUN)
    async with running(slack, receiver):
        ts = await slack.say("alice", channel_of(slack), "hello")
        del slack.workspace.channels[channel_of(slack)].members[slack.workspace.bot.user_id]
        slack.workspace.channels[channel_of(slack)].kind = "group"
        await slack.use_shortcut("alice", ASK, channel_of(slack), ts)
        form = await form_of(slack)
        with pytest.raises(ValueError, match="Invite me there"):
            await slack.submit("alice", form.form_id, {"request": "Why?"})
    assert receiver.taken == []


async def test_the_global_shortcut_begins_a_thread_in_the_direct_messages(slack: SlackSimulator):
    receiver = RecordingReceiver(outcome=RUN)
    async with running(slack, receiver):
        await slack.use_shortcut("alice", ASK)
        await slack.submit("alice", (await form_of(slack)).form_id, {"request": "Plan my week"})
    asked = message(receiver)
    direct = slack.workspace.direct_with(slack.member("alice").user_id, slack.workspace.bot.user_id)
    assert asked.address.channel_id == direct.channel_id
    assert direct.messages[asked.address.thread_key].text == "alice asked me: Plan my week"
    assert asked.actor.is_direct
    assert asked.text == "Plan my week"


async def test_a_mistyped_command_begins_nothing(slack: SlackSimulator):
    receiver = RecordingReceiver()
    async with running(slack, receiver):
        await slack.command("alice", channel_of(slack), "threadhand", {"text": "budgt"})
    (shown,) = general(slack).messages
    assert shown.visible_to == "alice"
    assert "Did you mean `budget`?" in str(shown.elements)
    assert receiver.taken == []


async def test_nothing_is_posted_for_a_person_without_access(slack: SlackSimulator):
    receiver = RecordingReceiver(outcome=Outcome(notice="Not for you.", is_ignored=True))

    async def refuse(_: Any) -> bool:
        return False

    async with running(slack, receiver, admits=refuse):
        await slack.command("alice", channel_of(slack), "threadhand", {"text": "Draw"})
        await slack.use_shortcut("bob", ASK)
        form = await form_of(slack, "bob")
        with pytest.raises(ValueError, match="Not for you"):  # the form stays, with the request in it
            await slack.submit("bob", form.form_id, {"request": "Plan"})
    assert texts_of(slack) == ["Not for you."]
    assert general(slack).messages[0].visible_to == "alice"


@pytest.mark.parametrize("kind", ["command", "shortcut", "form", "0", "message shortcut", "1"])
async def test_what_a_person_does_is_acknowledged_before_slack_answers_us(kind: str):
    """The simulator waits longer than Slack, which allows 3 s. tests/unit/bots/slack/events/test_handler.py counts."""
    settings = SlackSettings(**read_manifest(build_manifest()), ack_seconds=30)
    receiver = RecordingReceiver(outcome=RUN)
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver):
        channel = channel_of(slack)
        bot = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        blocks = [{"type": "actions", "block_id": "b", "elements": BUTTONS}]
        ts = str((await bot.chat_postMessage(channel=channel, text="x", blocks=blocks))["ts"])
        await slack.use_shortcut("alice", ASK, channel, ts)
        form = await form_of(slack)
        slack.misbehave("slow", method="*", times=99, seconds=60)
        if kind == "command":
            await slack.command("bob", channel, "threadhand", {"text": "Draw"})
        elif kind == "form":
            with suppress(ValueError):  # the form says that it could not begin
                await slack.submit("alice", form.form_id, {"request": "Why?"})
        elif "shortcut" in kind:
            await slack.use_shortcut("bob", ASK, *((channel, ts) if " " in kind else ()))
        else:
            action_id = str(BUTTONS[int(kind)]["action_id"])
            await slack.press("bob", channel, ts, f"b/{action_id}")
