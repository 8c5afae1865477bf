"""Messages, from both sides: people's actions and the Web API."""

from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from simulator.view import Markdown, SentFile
from tests.integration.simulator.slack.waiting import seen, until


def general(slack: SlackSimulator) -> str:
    return slack.channel("general").channel_id


async def test_a_mention_comes_as_app_mention_and_as_message(slack: SlackSimulator, bot: Any) -> None:
    csv = SentFile(name="a.csv", content=b"1,2", mime_type="text/csv")
    ts = await slack.say("alice", general(slack), "@threadhand hi @bob", files=[csv])
    await until(lambda: len(bot.events) == 2)
    mention, message = sorted(bot.events, key=lambda event: event["type"])
    alice, bob = slack.member("alice").user_id, slack.member("bob").user_id
    text = f"<@{slack.workspace.bot.user_id}> hi <@{bob}>"
    assert mention["type"] == "app_mention"
    assert "files" not in mention
    assert message["subtype"] == "file_share"
    assert message["files"][0]["name"] == "a.csv"
    assert {mention["ts"], message["ts"]} == {ts}
    assert {mention["user"], message["user"]} == {alice}
    assert {mention["text"], message["text"]} == {text}
    assert bot.bodies[0]["event_id"] != bot.bodies[1]["event_id"]


async def test_a_posted_message_is_seen_and_an_update_counts(slack: SlackSimulator, client: AsyncWebClient) -> None:
    root = await slack.say("alice", "general", "@threadhand hi")
    posted = await client.chat_postMessage(channel=general(slack), text="*one*", thread_ts=root)
    await client.chat_update(channel=general(slack), ts=posted["ts"], text="two")
    await client.reactions_add(channel=general(slack), name="eyes", timestamp=root)
    channel = seen(slack)
    reply = channel.threads[0].messages[1]
    assert reply.elements == (Markdown(text="two", flavour="mrkdwn"),)
    assert (reply.edits, reply.author, reply.thread_id) == (1, "threadhand", root)
    assert channel.messages[0].reactions[0].emoji == "eyes"
    assert channel.messages[0].reactions[0].people == ("threadhand",)


async def test_an_unknown_channel_is_refused(client: AsyncWebClient) -> None:
    with pytest.raises(SlackApiError) as refusal:
        await client.chat_postMessage(channel="C0NOTHERE", text="hi")
    assert refusal.value.response["error"] == "channel_not_found"
