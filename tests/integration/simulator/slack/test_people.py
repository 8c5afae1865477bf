"""What people do, what the app hears of it, and what the page shows."""

import asyncio

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator
from simulator.view import Divider, Markdown, Picture, Select
from tests.integration.simulator.slack.conftest import Recorder, seen
from tests.integration.simulator.slack.test_web_api import general
from tests.support.waiting import until
from tests.unit.simulator.slack.test_blocks import plain


async def test_a_direct_message_is_no_mention(slack: SlackSimulator, bot: Recorder) -> None:
    direct = slack.view().channels[0]
    assert direct.is_direct
    await slack.say("alice", direct.channel_id, "@threadhand hi")
    await until(lambda: bot.events)
    await asyncio.sleep(0.05)
    assert bot.kinds() == ["message"]
    assert bot.events[0]["channel_type"] == "im"
    with pytest.raises(ValueError, match="bob is not in"):
        await slack.say("bob", direct.channel_id, "hi")


async def test_another_apps_message_has_the_whole_profile_of_its_bot(slack: SlackSimulator, bot: Recorder) -> None:
    await slack.post_as_app("general", "down", name="Monitor", user_id="U0MONITOR")
    await until(lambda: bot.events)
    profile = bot.events[0]["bot_profile"]
    assert profile.keys() >= {"id", "name", "app_id", "team_id", "icons", "updated", "deleted"}
    assert (profile["name"], profile["user_id"]) == ("Monitor", "U0MONITOR")


async def test_an_edit_and_a_deletion_are_told(slack: SlackSimulator, bot: Recorder) -> None:
    ts = await slack.say("alice", "general", "one")
    await slack.edit("alice", "general", ts, "two @bob")
    await slack.delete("alice", "general", ts)
    await until(lambda: len(bot.events) == 3)
    _, edited, deleted = bot.events
    assert edited["subtype"] == "message_changed"
    assert edited["previous_message"]["text"] == "one"
    assert edited["message"]["text"] == f"two <@{slack.member('bob').user_id}>"
    assert edited["message"]["edited"]["user"] == slack.member("alice").user_id
    assert (deleted["subtype"], deleted["deleted_ts"]) == ("message_deleted", ts)
    with pytest.raises(ValueError, match="no message"):
        await slack.edit("alice", "general", ts, "three")


async def test_a_deleted_root_stays_as_a_tombstone(slack: SlackSimulator, bot: Recorder) -> None:
    root = await slack.say("alice", "general", "root")
    await slack.say("bob", "general", "reply", thread_id=root)
    await slack.delete("alice", "general", root)
    await until(lambda: len(bot.events) == 3)
    event = bot.events[-1]
    assert (event["subtype"], event["message"]["subtype"]) == ("message_changed", "tombstone")
    (thread,) = seen(slack).threads
    assert len(thread.messages) == 2
    replies = await bot.client.conversations_replies(channel=general(slack), ts=root)
    assert replies["messages"][0]["user"] == "USLACKBOT"


async def test_a_reaction_comes_and_goes(slack: SlackSimulator, bot: Recorder) -> None:
    ts = await slack.say("alice", "general", "hi")
    await slack.react("bob", "general", ts, "x")
    with pytest.raises(ValueError, match="bob has reacted"):
        await slack.react("bob", "general", ts, "x")
    await slack.react("bob", "general", ts, "x", is_removed=True)
    await until(lambda: len(bot.events) == 3)
    assert bot.kinds()[1:] == ["reaction_added", "reaction_removed"]
    added = bot.events[1]
    assert (added["reaction"], added["item"]["ts"], added["user"]) == ("x", ts, slack.member("bob").user_id)
    assert seen(slack).messages[0].reactions == ()


async def test_special_characters_are_escaped_and_shown_as_typed(slack: SlackSimulator) -> None:
    ts = await slack.say("alice", "general", "<b> & @nobody @here")
    message = slack.channel("general").messages[ts]
    assert message.text == "&lt;b&gt; &amp; @nobody <!here>"


async def test_two_watchers_both_see_a_change(slack: SlackSimulator) -> None:
    first, second = slack.changes(), slack.changes()
    for watcher in (first, second):
        await anext(watcher)
    waiting = [asyncio.ensure_future(anext(watcher)) for watcher in (first, second)]
    await asyncio.sleep(0)
    await slack.say("alice", "general", "hi")
    await asyncio.wait_for(asyncio.gather(*waiting), 30)


async def test_the_keywords_make_the_settings() -> None:
    async with SlackSimulator(bot_token="xoxb-a", people=("carol",), bot_name="helper") as slack:
        client = AsyncWebClient("xoxb-a", base_url=slack.api_url)
        assert (await client.auth_test())["user"] == "helper"
        assert slack.view().people == ("carol",)
    with pytest.raises(ValueError, match="already somebody"):
        SlackSimulator(settings=SlackSettings(people=("a", "a")))


async def test_every_kind_of_element_is_drawn(slack: SlackSimulator, client: AsyncWebClient) -> None:
    alice = slack.member("alice").user_id
    done = await client.files_upload_v2(content=b"x", filename="a.png")
    picture = {"id": done["files"][0]["id"]}
    rich = {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [
                    {"type": "text", "text": "hi "},
                    {"type": "user", "user_id": alice},
                    {"type": "emoji", "name": "eyes"},
                ],
            }
        ],
    }
    cell = {"type": "raw_text", "text": "a|b"}
    blocks = [
        {"type": "header", "text": plain("Top")},
        {"type": "image", "slack_file": picture, "alt_text": "a picture"},
        rich,
        {"type": "table", "rows": [[cell, cell], [rich, {"type": "raw_number", "value": 2, "text": "2"}]]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": f"by <@{alice}>"}]},
        {"type": "section", "text": plain("who?"), "accessory": {"type": "users_select", "action_id": "who"}},
        {"type": "container", "title": plain("more"), "child_blocks": [{"type": "divider"}]},
    ]
    await client.chat_postMessage(channel=general(slack), text="a", blocks=blocks)
    (message,) = seen(slack).messages
    header, image, text, table, context, question, menu, title, divider = message.elements
    assert header == Markdown(text="Top", flavour="plain", size="header")
    assert isinstance(image, Picture)
    assert "/open/" in image.url
    assert text == Markdown(text="hi @alice:eyes:", flavour="mrkdwn")
    rows = "| a\\|b | a\\|b |\n|---|---|\n| hi @alice:eyes: | 2 |"
    assert table == Markdown(text=rows, flavour="markdown")
    assert context == Markdown(text="by @alice", flavour="mrkdwn", size="small")
    assert question == Markdown(text="who?", flavour="plain")
    assert isinstance(menu, Select)
    assert [option.label for option in menu.options] == ["threadhand", "alice", "bob"]
    assert (title, divider) == (Markdown(text="more", flavour="plain"), Divider())
