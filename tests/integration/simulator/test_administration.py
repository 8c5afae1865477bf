"""What apps, moderators and admins do, over the control API: people see it, and the bot meets the refusals."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from simulator.control import Services, serve_control
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings


@dataclass(slots=True)
class Control:
    url: str
    session: aiohttp.ClientSession
    slack: SlackSimulator
    discord: DiscordSimulator

    async def act(self, platform: str, kind: str, **fields: Any) -> dict[str, Any]:
        fields.setdefault("channel_id", "general")
        if kind == "revoke_token":
            fields.clear()
        async with self.session.post(f"{self.url}/{platform}/actions/{kind}", json=fields) as got:
            return {**await got.json(), "status": got.status}

    async def texts(self, platform: str, thread_id: str | None = None) -> list[str]:
        query = {"channel": "general"} | ({"thread_id": thread_id} if thread_id else {})
        async with self.session.get(f"{self.url}/{platform}/transcript", params=query) as got:
            return [one["text"] for one in (await got.json())["messages"]]

    async def slack_error(self) -> str:
        client = AsyncWebClient(token=self.slack.settings.bot_token, base_url=self.slack.api_url)
        try:
            await client.chat_postMessage(channel=self.channel("slack"), text="hi")
        except SlackApiError as error:
            return str(error.response.data["error"])
        return ""

    async def discord_error(self, channel_id: str = "") -> int:
        url = f"{self.discord.api_url}/channels/{channel_id or self.channel('discord')}/messages"
        headers = {"Authorization": f"Bot {self.discord.token}"}
        async with self.session.post(url, json={"content": "hi"}, headers=headers) as got:
            return 0 if got.status == 200 else (await got.json())["code"]

    def channel(self, platform: str) -> str:
        view = (self.slack if platform == "slack" else self.discord).view()
        return next(one.channel_id for one in view.channels if one.name == "general")


@asynccontextmanager
async def control() -> AsyncGenerator[Control, None]:
    async with (
        SlackSimulator(settings=SlackSettings(rate_scale=0)) as slack,
        DiscordSimulator() as discord,
        serve_control(Services(slack=slack, discord=discord)) as url,
        aiohttp.ClientSession() as session,
    ):
        yield Control(url, session, slack, discord)


async def test_apps_write_and_people_forward_and_paste() -> None:
    async with control() as made:
        for platform, extra in (
            ("slack", {"attachments": [{"title": "Disk full", "fallback": "x"}]}),
            ("discord", {"embeds": [{"title": "Disk full"}]}),
        ):
            alert = await made.act(platform, "post_as_app", text="Alert", app_name="Ops", **extra)
            assert alert["status"] == 200
            said = await made.act(platform, "say", person="alice", text="look")
            words = {"text": "see"} if platform == "slack" else {}
            place = {"person": "bob", "message_id": said["id"]}
            assert (await made.act(platform, "forward", **place, **words))["id"]
            first, *_ = await made.texts(platform)
            assert "Alert" in first
        section = {"type": "section", "text": {"type": "mrkdwn", "text": "Disk full"}}
        shown = await made.act("slack", "post_as_app", blocks=[section])
        message = made.slack.workspace.channels[made.channel("slack")].messages[shown["id"]]
        assert message.blocks == [section]
        pasted = await made.act("slack", "paste_table", person="alice", text="sum", rows=[["a", "1"]])
        message = made.slack.workspace.channels[made.channel("slack")].messages[pasted["id"]]
        assert message.attachments[0]["fallback"] == "[no preview available]"


async def test_people_open_threads_and_answer_messages_in_discord() -> None:
    async with control() as made:
        said = await made.act("discord", "say", person="alice", text="look")
        opened = await made.act("discord", "open_thread", person="bob", name="free")
        begun = await made.act("discord", "open_thread", person="bob", name="from it", message_id=said["id"])
        assert begun["id"] == said["id"] != opened["id"]
        answer = await made.act("discord", "reply", person="bob", message_id=said["id"], text="yes")
        reference = made.discord.world.message(made.channel("discord"), answer["id"]).reference
        assert reference is not None
        assert reference["message_id"] == said["id"]


async def test_what_moderators_of_discord_close_refuses_the_bot() -> None:
    async with control() as made:
        thread = (await made.act("discord", "open_thread", person="bob", name="free"))["id"]
        place = {"thread_id": thread}
        assert (await made.act("discord", "archive", **place))["status"] == 200
        assert made.discord.world.channels[thread].is_archived
        await made.act("discord", "archive", **place, is_archived=False)
        await made.act("discord", "lock", **place, is_archived=True)
        assert await made.discord_error(thread) == 50083
        await made.act("discord", "permissions", denied=["SEND_MESSAGES"])
        assert await made.discord_error() == 50013
        await made.act("discord", "permissions", granted=["SEND_MESSAGES"])
        assert await made.discord_error() == 0
        said = await made.act("discord", "say", person="alice", text="look")
        await made.act("discord", "purge", message_ids=[said["id"]])
        assert "look" not in await made.texts("discord")
        await made.act("discord", "remove", **place)
        assert await made.discord_error(thread) == 10003


async def test_what_admins_of_slack_close_refuses_the_bot() -> None:
    async with control() as made:
        closings: tuple[tuple[str, dict[str, Any], dict[str, Any], str], ...] = (
            ("archive", {}, {"is_archived": False}, "is_archived"),
            ("membership", {"is_member": False}, {"is_member": True}, "not_in_channel"),
            ("permissions", {"is_read_only": True}, {"is_read_only": False}, "restricted_action_read_only_channel"),
        )
        for kind, closed, opened, error in closings:
            assert (await made.act("slack", kind, **closed))["status"] == 200
            assert await made.slack_error() == error
            await made.act("slack", kind, **opened)
            assert await made.slack_error() == ""
        place = made.channel("slack")
        await made.act("slack", "remove")
        assert place not in made.slack.workspace.channels


async def test_a_revoked_token_opens_nothing() -> None:
    async with control() as made:
        await made.act("slack", "revoke_token")
        assert await made.slack_error() == "account_inactive"
        before = made.discord.token
        fresh = await made.act("discord", "revoke_token")
        assert fresh["id"] == made.discord.token != before


async def test_a_fault_names_the_error_that_slack_answers_with() -> None:
    async with control() as made:
        fault = {"fault": "refuse", "method": "chat.*", "code": "msg_blocked_from_retention"}
        async with made.session.post(f"{made.url}/slack/faults", json=fault) as armed:
            assert armed.status == 200
        assert await made.slack_error() == "msg_blocked_from_retention"


@pytest.mark.parametrize(
    ("platform", "kind", "fields"),
    [
        ("slack", "lock", {"thread_id": "1.0"}),
        ("slack", "reply", {"person": "bob", "message_id": "1.0", "text": "x"}),
        ("slack", "permissions", {"denied": ["SEND_MESSAGES"]}),
        ("discord", "membership", {"is_member": False}),
        ("discord", "paste_table", {"person": "bob", "rows": [["a"]]}),
        ("discord", "permissions", {"denied": ["SING"]}),
        ("discord", "lock", {"thread_id": "1"}),
        ("discord", "post_as_app", {"text": "x", "attachments": [{}]}),
        ("discord", "post_as_app", {"text": "x", "blocks": [{}]}),
    ],
)
async def test_what_a_platform_has_not_is_refused_with_a_sentence(
    platform: str, kind: str, fields: dict[str, Any]
) -> None:
    async with control() as made:
        refused = await made.act(platform, kind, **fields)
        assert refused["status"] == 400
        assert refused["message"]
