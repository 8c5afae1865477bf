"""What people said in a thread before the agent was called reaches the model, marked as overheard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bots.discord.app import DiscordApp
from bots.inbound.actions import Outcome, UserAction
from bots.slack.app import SlackApp
from core.domain.threads import Address, ChatMessage
from simulator.discord import DiscordSimulator
from simulator.slack import SlackSimulator


class NoCursors:
    async def forward(self, platform: str, scope: str, cursor: str) -> None:
        return None

    async def cursors(self, platform: str) -> dict[str, str]:
        return {}


async def ignored(inbound: UserAction) -> Outcome:
    return Outcome(is_ignored=True)


@asynccontextmanager
async def slack_scene() -> AsyncIterator[tuple[SlackSimulator, SlackApp, str]]:
    async with SlackSimulator() as slack:
        app = SlackApp(
            bot_token=slack.settings.bot_token,
            app_token=slack.settings.app_token,
            api_url=slack.api_url,
            receive=ignored,
        )
        await app.start()
        try:
            channel = next(one for one in slack.view().channels if not one.is_direct)
            yield slack, app, channel.channel_id
        finally:
            await app.close()


async def heard_in(
    app: SlackApp | DiscordApp, address: Address, **more: object
) -> list[ChatMessage]:
    before = datetime.now(UTC) + timedelta(seconds=2)
    values = {"before": before, "limit": 20, **more}
    return list(await app.thread_history.read(address, **values))


async def test_slack_tells_what_others_said_in_the_thread() -> None:
    async with slack_scene() as (slack, app, channel):
        root = await slack.say("alice", channel, "the build is red")
        await slack.say("bob", channel, "since @alice merged", thread_id=root)
        address = Address(
            platform="slack",
            workspace_id=app.identity.team_id,
            channel_id=channel,
            thread_key=root,
        )
        await app.surface._client.write(
            "chat.postMessage", {"channel": channel, "thread_ts": root, "text": "mine"}
        )
        heard = await heard_in(app, address)
        assert [(one.author.name, one.text) for one in heard] == [
            ("alice", "the build is red"),
            ("bob", "since @alice merged"),
        ]
        assert [one.text for one in await heard_in(app, address, limit=1)] == [
            "since @alice merged"
        ]
        assert [one.text for one in await heard_in(app, address, after=heard[0].sent_at)] == [
            "since @alice merged"
        ]


async def test_slack_is_not_asked_about_a_thread_that_begins_with_the_request() -> None:
    async with slack_scene() as (slack, app, channel):
        root = await slack.say("alice", channel, "@threadhand hello")
        address = Address(platform="slack", workspace_id="T", channel_id=channel, thread_key=root)
        before = datetime.fromtimestamp(float(root), UTC)
        calls = len(slack.calls)
        assert await app.thread_history.read(address, before=before, limit=20) == ()
        assert [one.method for one in list(slack.calls)[calls:]] == []


async def test_discord_tells_what_others_said_in_the_thread() -> None:
    async with DiscordSimulator() as discord:
        app = DiscordApp(
            token=discord.token, receive=ignored, cursors=NoCursors(), api_url=discord.api_url
        )
        await app.start()
        try:
            channel = next(one for one in discord.view().channels if not one.is_direct).channel_id
            dm = next(one for one in discord.view().channels if one.is_direct).channel_id
            await discord.say("alice", dm, "first @bob")
            await discord.say("alice", dm, "second")
            address = Address(
                platform="discord", workspace_id="@me", channel_id=dm, thread_key="dm"
            )
            heard = await heard_in(app, address)
            assert [one.text for one in heard] == ["first @Bob", "second"]
            unopened = replace(
                address, workspace_id="3001", channel_id=channel, thread_key="1000000000000"
            )
            assert await heard_in(app, unopened) == []
        finally:
            await app.close()
