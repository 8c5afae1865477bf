"""The Web API refuses what the real one refuses, with its codes."""

import math
import time
from collections.abc import Awaitable
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from tests.integration.simulator.slack.conftest import seen


async def refusal(call: Awaitable[Any]) -> dict[str, Any]:
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response.data


async def code(call: Awaitable[Any]) -> str:
    return (await refusal(call))["error"]


def general(slack: SlackSimulator) -> str:
    return slack.channel("general").channel_id


async def test_who_calls_is_told_by_the_token(slack: SlackSimulator, client: Any) -> None:
    answer = await client.auth_test()
    assert answer["user_id"] == slack.workspace.bot.user_id
    assert answer["team_id"] == slack.workspace.team_id
    assert "chat:write" in answer.headers["x-oauth-scopes"]
    wrong = AsyncWebClient("xoxb-other", base_url=slack.api_url)
    assert await code(wrong.auth_test()) == "invalid_auth"
    nobody = AsyncWebClient(base_url=slack.api_url)
    assert await code(nobody.auth_test()) == "not_authed"
    assert await code(client.api_call("apps.connections.open")) == "not_allowed_token_type"
    assert await code(client.api_call("chat.nothing")) == "unknown_method"


async def test_arguments_come_from_query_form_and_json(slack: SlackSimulator) -> None:
    url, channel = f"{slack.api_url}chat.postMessage", general(slack)
    headers = {"Authorization": f"Bearer {slack.settings.bot_token}"}
    blocks = '[{"type": "divider"}]'
    async with aiohttp.ClientSession(headers=headers) as session:

        async def post(**how: Any) -> dict[str, Any]:
            async with session.post(url, **how) as response:
                return await response.json()

        form = await post(data={"channel": channel, "text": "a", "blocks": blocks})
        assert form["message"]["blocks"][0]["type"] == "divider"
        assert (await post(json={"channel": channel, "text": "b"}))["ok"]
        assert (await post(params={"channel": channel, "text": "c"}))["ok"]
        assert (await post(data=b"{", headers={"Content-Type": "application/json"}))["error"] == "invalid_json"
        bad = await post(data={"channel": channel, "blocks": "{["})
        assert bad["error"] == "invalid_blocks_format"
        nothing = await post(json={"text": "d"})
        assert nothing["error"] == "invalid_arguments"
        assert nothing["response_metadata"]["messages"] == ["[ERROR] missing required field: channel"]
    texts = [message.elements for message in seen(slack).messages]
    assert len(texts) == 3


async def test_posting_where_it_is_not_possible_is_refused(slack: SlackSimulator, client: Any) -> None:
    workspace = slack.workspace
    alice = slack.member("alice").user_id
    channel = general(slack)
    outside = workspace.add_channel("outside", members=(alice,)).channel_id
    secret = workspace.add_channel("secret", kind="group", members=(alice,)).channel_id
    root = await slack.say("alice", channel, "root")
    reply = await slack.say("alice", channel, "reply", thread_id=root)
    post = client.chat_postMessage
    empty = client.api_call("chat.postMessage", json={"channel": channel})
    assert await code(empty) == "no_text"
    assert await code(post(channel=outside, text="a")) == "not_in_channel"
    assert await code(post(channel=secret, text="a")) == "channel_not_found"
    assert await code(post(channel=channel, text="a", thread_ts="1.0")) == "thread_not_found"
    assert await code(post(channel=channel, text="a", thread_ts=reply)) == "cannot_reply_to_message"
    workspace.channels[channel].is_archived = True
    assert await code(post(channel=channel, text="a")) == "is_archived"


async def test_only_own_messages_can_be_changed(slack: SlackSimulator, client: Any) -> None:
    channel, theirs = general(slack), await slack.say("alice", "general", "hi")
    own = (await client.chat_postMessage(channel=channel, text="a"))["ts"]
    update, delete = client.chat_update, client.chat_delete
    assert await code(update(channel=channel, ts=theirs, text="b")) == "cant_update_message"
    assert await code(update(channel=channel, ts="1.0", text="b")) == "message_not_found"
    assert await code(update(channel=channel, ts=own, text="b" * 4001)) == "msg_too_long"
    empty = client.api_call("chat.update", json={"channel": channel, "ts": own})
    assert await code(empty) == "no_text"
    assert await code(delete(channel=channel, ts=theirs)) == "cant_delete_message"
    await delete(channel=channel, ts=own)
    assert await code(delete(channel=channel, ts=own)) == "message_not_found"


async def test_reactions_are_counted_once(slack: SlackSimulator, client: Any) -> None:
    channel, ts = general(slack), await slack.say("alice", "general", "hi")
    where = {"channel": channel, "timestamp": ts}
    await client.reactions_add(name="eyes", **where)
    assert await code(client.reactions_add(name="eyes", **where)) == "already_reacted"
    assert await code(client.reactions_add(name="no_such_emoji", **where)) == "invalid_name"
    assert await code(client.reactions_remove(name="x", **where)) == "no_reaction"
    await slack.react("bob", channel, ts, "eyes")
    kept = (await client.reactions_get(**where))["message"]["reactions"]
    assert kept == [{"name": "eyes", "users": [slack.workspace.bot.user_id, slack.member("bob").user_id], "count": 2}]
    for name in ["+1", "-1", "100", "x", "o", "ok", "on", "up", "zzz", "zap", "yum", "eye"]:
        await client.reactions_add(name=name, **where)
    for name in ["wave", "wink", "wolf", "woman", "worm", "wrench", "yen", "yo-yo", "zero", "tv"]:
        await client.reactions_add(name=name, **where)
    assert await code(client.reactions_add(name="bug", **where)) == "too_many_reactions"


async def test_metadata_is_checked_and_shown_on_demand(slack: SlackSimulator, client: Any) -> None:
    channel = general(slack)

    def post(metadata: Any) -> Awaitable[Any]:
        return client.chat_postMessage(channel=channel, text="a", metadata=metadata)

    assert await code(post({"event_type": "a", "more": 1})) == "invalid_metadata_format"
    assert await code(post({"event_type": "a"})) == "invalid_metadata_schema"
    big = {"event_type": "a", "event_payload": {"x": "y" * 9000}}
    assert await code(post(big)) == "metadata_too_large"
    metadata = {"event_type": "run", "event_payload": {"run_id": "1"}}
    await post(metadata)
    shown = await client.conversations_history(channel=channel, include_all_metadata=True)
    assert shown["messages"][0]["metadata"] == metadata
    hidden = await client.conversations_history(channel=channel)
    assert hidden["messages"][0]["metadata"] == {"event_type": "run"}


async def test_a_history_is_read_after_a_moment_newest_first(slack: SlackSimulator, client: Any) -> None:
    channel = general(slack)
    sent = [await slack.say("alice", "general", str(number)) for number in range(4)]
    await slack.say("bob", "general", "beside", thread_id=sent[0])
    asked = {"channel": channel, "oldest": sent[0], "limit": 2}
    page = await client.conversations_history(**asked)
    assert [message["ts"] for message in page["messages"]] == [sent[3], sent[2]]
    cursor = page["response_metadata"]["next_cursor"]
    last = await client.conversations_history(**asked, cursor=cursor)
    assert [message["ts"] for message in last["messages"]] == [sent[1]]
    assert not last["has_more"]
    wrong = client.conversations_history(channel=channel, oldest="yesterday")
    assert await code(wrong) == "invalid_ts_oldest"
    wrong = client.conversations_replies(channel=channel, ts=sent[0], latest="now")
    assert await code(wrong) == "invalid_ts_latest"


async def test_people_and_channels_can_be_looked_up(slack: SlackSimulator, client: Any) -> None:
    alice = slack.member("alice").user_id
    assert (await client.users_info(user=alice))["user"]["name"] == "alice"
    assert await code(client.users_info(user="U0")) == "user_not_found"
    assert len((await client.users_list())["members"]) == 3
    names = [channel["name"] for channel in (await client.conversations_list())["channels"]]
    assert names == ["general", "random"]
    del slack.workspace.channel_names["random"].members[slack.workspace.bot.user_id]
    page = await client.users_conversations(types="im,public_channel", limit=2)
    rest = await client.users_conversations(
        types="im,public_channel", limit=2, cursor=page["response_metadata"]["next_cursor"]
    )
    own = [*page["channels"], *rest["channels"]]
    assert sorted(one.get("name", "(direct)") for one in own) == ["(direct)", "(direct)", "general"]
    assert rest["response_metadata"]["next_cursor"] == ""
    assert not any({"is_member", "num_members"} & one.keys() for one in own)
    assert await code(client.users_conversations(types="everything")) == "invalid_types"
    assert await code(client.users_conversations(user="U0")) == "user_not_found"
    assert alice in (await client.conversations_members(channel=general(slack)))["members"]
    opened = (await client.conversations_open(users=alice))["channel"]["id"]
    info = (await client.conversations_info(channel=opened))["channel"]
    assert (info["is_im"], info["user"]) == (True, alice)
    posted = await client.chat_postMessage(channel=alice, text="hi")
    assert posted["channel"] == opened
    link = await client.chat_getPermalink(channel=opened, message_ts=posted["ts"])
    assert posted["ts"].replace(".", "") in link["permalink"]
    assert (await client.team_info())["team"]["id"] == slack.workspace.team_id
    assert (await client.bots_info())["bot"]["user_id"] == slack.workspace.bot.user_id


@pytest.mark.parametrize(("method", "per_minute"), [("conversations.list", 20), ("conversations.info", 50)])
async def test_a_method_is_limited_by_its_tier(method: str, per_minute: int) -> None:
    async with SlackSimulator() as slack:
        client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        began, passed = time.monotonic(), 0
        response: Any = None
        while response is None:
            try:
                await client.api_call(method, params={"channel": general(slack)})
                passed += 1
            except SlackApiError as error:
                response = error.response
        refilled = (time.monotonic() - began) * per_minute / 60
        assert per_minute <= passed <= per_minute + refilled
        assert (response.status_code, response["error"]) == (429, "ratelimited")
        assert 1 <= int(response.headers["Retry-After"]) <= math.ceil(60 / per_minute)
        assert (await client.users_list())["ok"], "each method has a limit of its own"
