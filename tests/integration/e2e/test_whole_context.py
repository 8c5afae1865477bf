"""What a request refers to comes with it: files above it, alerts, what it replies to, linked messages."""

import asyncio

from core.domain.json import JsonObject
from simulator.discord import DiscordSimulator
from simulator.slack import SlackSimulator
from simulator.view import SentFile
from tests.chaos.harness import PlatformName, Stage
from tests.integration.e2e.staging import BOTH, run_staged
from tests.support.narrow import require_type

TABLE = SentFile(name="table.csv", content=b"city,people\nOslo,7\n", mime_type="text/csv")
SCENARIO = """
conversations:
  - name: table
    when: {user: {contains: "sum up the table above"}}
    steps: [{text: "Seven people."}]
  - name: alert
    when: {user: {contains: "alert about"}}
    steps: [{text: "The disk is full."}]
  - name: quoted
    when: {user: {contains: "What do you think"}}
    steps: [{text: "I think so."}]
  - name: linked
    when: {user: {contains: "compare with"}}
    steps: [{text: "They are the same."}]
  - name: plain
    when: {user: {contains: "say hello"}}
    steps:
      - calls: [{name: read_chat, arguments: {file: "FILE"}}]
      - {text: "Hello."}
"""
ALERT: JsonObject = {
    "title": "Disk full",
    "title_link": "https://alerts.example.com/7",
    "text": "db-1 has no space left",
    "fields": [{"title": "Severity", "value": "critical", "short": True}],
    "fallback": "Disk full",
}
EMBED: JsonObject = {
    "type": "rich",
    "title": "Disk full",
    "url": "https://alerts.example.com/7",
    "description": "db-1 has no space left",
    "fields": [{"name": "Severity", "value": "critical", "inline": True}],
}


async def thread_from(stage: Stage, message_id: str) -> str:
    """Returns the thread of a message, which people must start first in Discord."""
    stage.thread_id = message_id
    await asyncio.sleep(0.005)  # Discord's ids are ordered by milliseconds
    if isinstance(stage.platform, DiscordSimulator):
        await stage.platform.start_thread("bob", stage.channel_id, message_id, "Table")
    return message_id


async def mention(stage: Stage, text: str) -> str:
    words = f"@{stage.view().bot_name} {text}"
    return await stage.platform.say("alice", stage.channel_id, words, thread_id=stage.thread_id or None)


async def post_alert(stage: Stage, thread_id: str | None = None) -> str:
    if isinstance(stage.platform, SlackSimulator):
        return await stage.platform.post_as_app(stage.channel_id, attachments=[ALERT], thread_id=thread_id)
    return await stage.platform.post_as_app(stage.channel_id, embeds=[EMBED], thread_id=thread_id)


def told(stage: Stage) -> str:
    """Returns what the last request told the model of people's messages."""
    messages = require_type(stage.last_request()["messages"], list)
    return "\n".join(str(one["content"]) for one in messages if isinstance(one, dict) and one["role"] == "user")


@BOTH
async def test_what_a_request_refers_to_comes_with_it(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO) as stage:
        table = await stage.platform.say("bob", stage.channel_id, "the numbers", files=[TABLE])
        await thread_from(stage, table)
        await mention(stage, "sum up the table above")
        await stage.settled(1)
        assert "It was not said to you." in told(stage)
        assert "[Attached file: /workspace/uploads/table.csv (text/csv, 19 bytes)]" in told(stage)
        assert stage.workspace_file("uploads/table.csv") == TABLE.content.decode()
        await thread_from(stage, await post_alert(stage))
        await mention(stage, "what is this alert about?")
        await stage.settled(2)
        for words in ("Disk full", "db-1 has no space left", "Severity: critical", "alerts.example"):
            assert words in told(stage)
        assert '"is_app": true' in told(stage)
        stage.thread_id = ""
        here = stage.channel_id
        words = f"@{stage.view().bot_name} What do you think?"
        if isinstance(stage.platform, SlackSimulator):
            await stage.platform.forward("alice", here, table, words)
        else:
            await stage.platform.say("alice", here, words, reply_to=table)
        await stage.settled(3)
        assert "> the numbers" in told(stage)
        assert "[Attached file: /workspace/uploads/table.csv" in told(stage)
        server = "3001" if platform == "discord" else ""
        link = (
            f"https://discord.com/channels/{server}/{here}/{table}"
            if server
            else f"https://simulated.slack.com/archives/{here}/p{table.replace('.', '')}"
        )
        await mention(stage, f"compare with {link}")
        await stage.settled(4)
        assert "messages that links in the request lead to" in told(stage)
        assert '"text": "the numbers"' in told(stage)
        assert stage.runs() == ["completed"] * 4
