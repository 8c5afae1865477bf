"""What the simulated Slack and the bot say to each other, by the types of the npm package @slack/types, and the bot's
blocks also by the models of slack_sdk."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from slack_sdk.models.blocks import Block

from simulator.administration import AppPost, Forward, Membership, PasteTable, administer
from simulator.slack.server import SlackSimulator
from simulator.view import SentFile
from tests.chaos.harness import Stage
from tests.integration.simulator.witnesses.published_types import (
    PublishedTypes,
    build_schemas,
    install_packages,
)
from tests.integration.simulator.witnesses.recording_proxy import RecordingProxy
from tests.integration.simulator.witnesses.stage import play_stories, recorded

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MESSAGES = {
    # by subtype
    "": "GenericMessageEvent",
    "bot_message": "BotMessageEvent",
    "channel_join": "ChannelJoinMessageEvent",
    "channel_leave": "ChannelLeaveMessageEvent",
    "file_share": "FileShareMessageEvent",
    "message_changed": "MessageChangedEvent",
    "message_deleted": "MessageDeletedEvent",
    "thread_broadcast": "ThreadBroadcastMessageEvent",
}
EVENTS = {
    "app_mention": "AppMentionEvent",
    "app_home_opened": "AppHomeOpenedEvent",
    "app_uninstalled": "AppUninstalledEvent",
    "tokens_revoked": "TokensRevokedEvent",
    "reaction_added": "ReactionAddedEvent",
    "reaction_removed": "ReactionRemovedEvent",
    "member_joined_channel": "MemberJoinedChannelEvent",
    "assistant_thread_started": "AssistantThreadStartedEvent",
    "agent_session_stopped": "AgentSessionStoppedEvent",
}
BODIES = {
    "blocks": "T.KnownBlock[]",
    "attachments": "T.MessageAttachment[]",
    "view": "T.View",
    "chunks": "T.AnyChunk[]",
    "metadata": "T.MessageMetadata",
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> PublishedTypes:
    types = {f"message {subtype}".strip(): f"T.{name}" for subtype, name in MESSAGES.items()}
    types |= {name: f"T.{written}" for name, written in EVENTS.items()}
    folder = install_packages(tmp_path_factory.mktemp("types"))
    published = build_schemas(folder, "@slack/types", types | BODIES)
    # any object with a type is a Block: without it, events have known blocks alone
    published.definitions["Block"] = {"not": {}}
    return published


async def test_slack_and_the_bot_say_what_the_types_allow(published: PublishedTypes) -> None:
    async with recorded("slack") as (stage, proxy):
        await play_stories(stage)
        await act_as_people(stage)
        await use_controls(stage)
        await asyncio.sleep(1.0)
        check(published, proxy)
    assert {"message", "app_mention", "blocks", "view"} <= published.seen.keys()
    assert published.report() == ""
    blocks = [block for one in proxy.exchanges for block in find_blocks(one.body)]
    assert {"section", "plan", "actions", "input"} <= {block["type"] for block in blocks}
    for block in blocks:
        parsed = Block.parse(block)
        assert parsed is not None, f"slack_sdk knows no such block: {block}"
        parsed.validate_json()


def check(published: PublishedTypes, proxy: RecordingProxy) -> None:
    for frame in cast("list[dict[str, Any]]", proxy.frames_in):
        if frame["type"] == "events_api":
            event = frame["payload"]["event"]
            published.check(f"{event['type']} {event.get('subtype', '')}".strip(), whole(event))
    for one in proxy.exchanges:
        for name, value in (*find_bodies(one.body), *find_bodies(one.answer)):
            # without include_all_metadata, conversations.history answers only the type of the metadata
            if name != "metadata" or value.keys() != {"event_type"}:
                published.check(name, value)


def whole(event: dict[str, Any]) -> dict[str, Any]:
    """The event with the fields that Slack's documentation shows it without, although the types require them.

    These are the place of the inner messages (reference/events/message/message_changed), and the channels of the files
    (reference/events/message/file_share).
    """
    place = {name: event.get(name) for name in ("channel", "channel_type", "event_ts")}
    inner = {name for name in ("message", "previous_message") if name in event}
    filled = {**event, **{name: whole(place | event[name]) for name in inner}}
    if "files" in event:
        filled["files"] = [{"channels": None, "groups": None} | file for file in event["files"]]
    return filled


def find_bodies(value: object) -> Iterator[tuple[str, Any]]:
    """The outermost blocks, views and so on of a request or an answer."""
    if isinstance(value, list):
        for item in value:
            yield from find_bodies(item)
    if isinstance(value, dict):
        for name, item in value.items():
            if name in BODIES:
                yield name, item
            else:
                yield from find_bodies(item)


def find_blocks(body: object) -> Iterator[dict[str, Any]]:
    """The blocks of the messages and views of a request."""
    for name, value in find_bodies(body):
        if name in ("blocks", "view"):
            yield from value if name == "blocks" else value["blocks"]


async def act_as_people(stage: Stage) -> None:
    slack, channel = stage.platform, stage.channel_id
    assert isinstance(slack, SlackSimulator)
    said = await stage.say("Hello", files=(SentFile(name="a.bin", content=b"a"),))
    await stage.until(lambda: stage.shows("Hi there."), "it answers")
    for place in (None, said):
        other = await slack.say("bob", channel, "beside @alice :wave: *b*", thread_id=place)
        await slack.react("alice", channel, other, "eyes")
        await slack.react("alice", channel, other, "eyes", is_removed=True)
        await slack.edit("bob", channel, other, f"beside @{stage.view().bot_name}")
        for action in (
            Forward(
                person="alice", channel_id=channel, message_id=other, thread_id=place, text="see"
            ),
            PasteTable(
                person="bob", channel_id=channel, rows=[["a", "b"], ["1", "2"]], thread_id=place
            ),
            AppPost(
                channel_id=channel,
                text="alert",
                thread_id=place,
                attachments=[{"text": "x", "color": "#ff0000"}],
            ),
            AppPost(channel_id=channel, text="alert", thread_id=place, user_id="U0OTHERAPP"),
        ):
            await administer(slack, action)
        await slack.delete("bob", channel, other)


async def use_controls(stage: Stage) -> None:
    slack, channel = stage.platform, stage.channel_id
    assert isinstance(slack, SlackSimulator)
    for text in ("help", "budget", "agents", "follow", "files"):
        await slack.command("alice", channel, "threadhand", {"text": text})
    message_id = await slack.say("bob", channel, "numbers")
    for place in ((channel, message_id), ()):
        await slack.use_shortcut("alice", "Ask Threadhand", *place)
        await stage.until(lambda: stage.view().forms, "the form opens")
        form = stage.view().forms[0]
        await slack.submit("alice", form.form_id, {form.fields[0].field_id: "Hello"})
        await stage.until(lambda: not stage.view().forms, "the form closes")
    await slack.open_app("alice", tab="home")
    await slack.open_app("alice")
    await slack.open_assistant("alice")
    direct = slack.workspace.direct_with(slack.member("alice").user_id, slack.workspace.bot.user_id)
    await slack.say("alice", direct.channel_id, "Write an essay")
    stage.thread_id = ""
    await stage.say("Fail, please.")
    await stage.until(lambda: stage.button("Retry"), "it fails")
    await stage.until(stage.is_settled, "it answers")
    await administer(slack, Membership(channel_id=channel, is_member=False))
    await administer(slack, Membership(channel_id=channel, is_member=True))
