"""What people said in a thread before the agent was called reaches the model, marked as overheard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bots.slack.app import SlackApp
from core.domain.errors import SurfaceRateLimited
from core.domain.threads import Address, ChatMessage, ChatPage
from simulator.discord import DiscordSimulator
from simulator.slack import SlackSimulator
from simulator.slack.settings import SlackSettings
from simulator.slack.world import Channel, Message
from tests.integration.bots.discord.conftest import Program, bot
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, running, thread_in
from tests.support.closing import close_after
from tests.support.narrow import require

DEFAULTS = SlackSettings()


@asynccontextmanager
async def slack_scene(settings: SlackSettings = DEFAULTS) -> AsyncIterator[tuple[SlackSimulator, SlackApp, str]]:
    async with SlackSimulator(settings=settings) as slack, running(slack, RecordingReceiver()) as app:
        yield slack, app, channel_of(slack)


async def heard_in(app: SlackApp, address: Address, **more: object) -> list[ChatMessage]:
    before = datetime.now(UTC) + timedelta(seconds=2)
    values = {"before": before, "limit": 20, **more}
    page = await app.thread_history.read(address, **values)
    return [*([page.root] if page.root else []), *page.messages]


async def test_slack_tells_what_others_said_in_the_thread() -> None:
    async with slack_scene() as (slack, app, channel):
        root = await slack.say("alice", channel, "the build is red")
        await slack.say("bob", channel, "since @alice merged", thread_id=root)
        address = thread_in(slack, root)
        client = await vars(app.surface)["_client_for"](address)
        await client.write("chat.postMessage", {"channel": channel, "thread_ts": root, "text": "mine"})
        heard = await heard_in(app, address)
        assert [(one.author.name, one.text) for one in heard] == [
            ("alice", "the build is red"),
            ("bob", "since @alice merged"),
        ]
        assert [one.text for one in await heard_in(app, address, limit=1)] == [
            "the build is red",
            "since @alice merged",
        ]
        assert [one.text for one in await heard_in(app, address, after=heard[0].sent_at)] == ["since @alice merged"]


async def slack_thread(slack: SlackSimulator, channel: str, count: int) -> Address:
    """Returns a thread with this many replies, of which the app gets no events."""
    world = slack.workspace
    root = await slack.say("alice", channel, "the beginning")
    for number in range(count):
        world.add_message(
            Message(
                ts=world.new_ts(),
                channel_id=channel,
                user_id=world.names["bob"].user_id,
                text=f"reply {number}",
                thread_ts=root,
            )
        )
    return thread_in(slack, root)


async def test_of_a_long_slack_thread_the_first_and_the_newest_messages_are_read() -> None:
    async with slack_scene() as (slack, app, channel):
        address = await slack_thread(slack, channel, 1200)
        before = datetime.now(UTC) + timedelta(minutes=30)
        page = await app.thread_history.read(address, before=before, limit=50)
        assert require(page.root).text == "the beginning"
        assert [one.text for one in page.messages] == [f"reply {n}" for n in range(1150, 1200)]
        assert (page.omitted, page.is_partial) == (1150, False)
        oldest = app.thread_history.parse_sent_at(page.messages[0].message_ref)
        further = await app.thread_history.read(address, before=oldest, limit=50)
        assert [one.text for one in further.messages] == [f"reply {n}" for n in range(1100, 1150)]
        assert further.omitted == 1100


async def test_an_app_with_one_history_call_a_minute_uses_what_it_got() -> None:
    async with slack_scene(SlackSettings(is_history_scarce=True)) as (slack, app, channel):
        address = await slack_thread(slack, channel, 60)
        before = datetime.now(UTC) + timedelta(minutes=30)
        page = await app.thread_history.read(address, before=before, limit=50)
        assert [one.text for one in page.messages][:2] == ["the beginning", "reply 0"]
        assert (len(page.messages), page.omitted, page.is_partial) == (15, 46, True)
        with pytest.raises(SurfaceRateLimited):
            await app.thread_history.read(address, before=before, limit=50)


async def test_links_lead_only_to_what_the_person_may_read() -> None:
    async with slack_scene() as (slack, app, channel):
        here = await slack_thread(slack, channel, 1)
        world = slack.workspace
        secret = Channel(channel_id="G0SECRET", name="secret", kind="group", members=dict.fromkeys(world.members))
        world.channels["G0SECRET"] = world.channel_names["secret"] = secret
        said = await slack.say("bob", "G0SECRET", "the password")
        elsewhere = await slack.say("bob", channel, "a public word")
        hidden, shown, forged = (
            f"https://x.slack.com/archives/{place}/p{ts.replace('.', '')}"
            for place, ts in (("G0SECRET", said), (channel, elsewhere), (channel, "1" * 16))
        )
        read = app.thread_history.read_linked
        alice = world.names["alice"].user_id
        found = await read(here, f"see {hidden} and {shown}, {forged}", person_id=alice)
        assert {link: one and one.text for link, one in found.items()} == {
            hidden: None,
            shown: "a public word",
            forged: None,
        }
        inside = replace(here, channel_id="G0SECRET", thread_key=said)
        (one,) = (await read(inside, hidden, person_id=alice)).values()
        assert require(one).text == "the password"


async def test_slack_is_not_asked_about_a_thread_that_begins_with_the_request() -> None:
    async with slack_scene() as (slack, app, channel):
        root = await slack.say("alice", channel, "@threadhand hello")
        address = thread_in(slack, root)
        before = datetime.fromtimestamp(float(root), UTC)
        calls = len(slack.calls)
        assert await app.thread_history.read(address, before=before, limit=20) == ChatPage()
        assert [one.method for one in list(slack.calls)[calls:]] == []


async def test_a_long_discord_thread_says_what_is_left_out() -> None:
    async with DiscordSimulator() as discord, close_after(bot(discord, Program())) as app:
        await app.start()
        channel = next(one for one in discord.view().channels if not one.is_direct).channel_id
        root = await discord.say("alice", channel, "the beginning")
        await discord.start_thread("alice", channel, root, "Long")
        for number in range(120):
            await discord.say("bob", channel, f"reply {number}", thread_id=root)
            await asyncio.sleep(0.002)  # ids are ordered by milliseconds
        address = Address(platform="discord", workspace_id="3001", channel_id=channel, thread_key=root)
        before = datetime.now(UTC) + timedelta(seconds=2)
        page = await app.thread_history.read(address, before=before, limit=50)
        assert require(page.root).text == "the beginning"
        assert [one.text for one in page.messages] == [f"reply {n}" for n in range(70, 120)]
        assert page.omitted == 71
        oldest = app.thread_history.parse_sent_at(page.messages[0].message_ref)
        further = await app.thread_history.read(address, before=oldest, limit=50)
        assert [one.text for one in further.messages] == [f"reply {n}" for n in range(20, 70)]
