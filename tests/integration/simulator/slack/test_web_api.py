"""One recorded conversation for each part of Slack's Web API: what is taken, and what is refused with which code."""

from collections.abc import Awaitable
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from tests.integration.simulator.conversations import filled, part_of

Line = tuple[str, dict[str, Any], str] | tuple[str, dict[str, Any], str, Any]
"""A method, its arguments, the code of the refusal, and a part of the answer. `{0}` to `{3}` are messages of alice,
`{reply}` is one to the first of them, `{last}` the newest message that was posted, `{cursor}` that of the last page."""
HERE = {"channel": "{general}"}
SAID, POSTED = {**HERE, "ts": "{0}"}, {**HERE, "ts": "{last}"}
TO_REACT = {**HERE, "timestamp": "{0}"}
METADATA = {"event_type": "run", "event_payload": {"run_id": "1"}}
PAGE = {**HERE, "oldest": "{0}", "limit": 2}
OWN = {"types": "im,public_channel", "limit": 2}
STREAM = {**HERE, "thread_ts": "{0}", "recipient_user_id": "{alice}", "recipient_team_id": "{team}"}
MANY = "+1 -1 100 x o ok on up zzz zap yum eye wave wink wolf woman worm wrench yen yo-yo zero tv"
CONVERSATIONS: dict[str, list[Line]] = {
    "who calls": [
        ("auth.test", {}, "", {"user_id": "{bot}", "team_id": "{team}"}),
        ("apps.connections.open", {}, "not_allowed_token_type"),
        ("chat.nothing", {}, "unknown_method"),
    ],
    "posts": [
        ("chat.postMessage", HERE, "no_text"),
        ("chat.postMessage", {"channel": "{outside}", "text": "a"}, "not_in_channel"),
        ("chat.postMessage", {"channel": "{secret}", "text": "a"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "{archived}", "text": "a"}, "is_archived"),
        ("chat.postMessage", {**HERE, "text": "a", "thread_ts": "1.0"}, "thread_not_found"),
        ("chat.postMessage", {**HERE, "text": "a", "thread_ts": "{reply}"}, "cannot_reply_to_message"),
    ],
    "changes": [
        ("chat.update", {**SAID, "text": "b"}, "cant_update_message"),
        ("chat.update", {**HERE, "ts": "1.0", "text": "b"}, "message_not_found"),
        ("chat.postMessage", {**HERE, "text": "a"}, ""),
        ("chat.update", {**POSTED, "text": "b" * 4001}, "msg_too_long"),
        ("chat.update", POSTED, "no_text"),
        ("chat.delete", SAID, "cant_delete_message"),
        ("chat.delete", POSTED, ""),
        ("chat.delete", POSTED, "message_not_found"),
    ],
    "reactions": [
        ("reactions.add", {"name": "eyes", **TO_REACT}, ""),
        ("reactions.add", {"name": "eyes", **TO_REACT}, "already_reacted"),
        ("reactions.add", {"name": "no_such_emoji", **TO_REACT}, "invalid_name"),
        ("reactions.remove", {"name": "x", **TO_REACT}, "no_reaction"),
        ("reactions.get", TO_REACT, "", {"message": {"reactions": [{"name": "eyes", "users": ["{bot}"], "count": 1}]}}),
        *(("reactions.add", {"name": name, **TO_REACT}, "") for name in MANY.split()),
        ("reactions.add", {"name": "bug", **TO_REACT}, "too_many_reactions"),
    ],
    "metadata": [
        *(
            ("chat.postMessage", {**HERE, "text": "a", "metadata": metadata}, code)
            for metadata, code in (
                ({"event_type": "a", "more": 1}, "invalid_metadata_format"),
                ({"event_type": "a"}, "invalid_metadata_schema"),
                ({"event_type": "a", "event_payload": {"x": "y" * 9000}}, "metadata_too_large"),
                (METADATA, ""),
            )
        ),
        (
            "conversations.history",
            {**HERE, "limit": 1, "include_all_metadata": True},
            "",
            {"messages": [{"metadata": METADATA}]},
        ),
        ("conversations.history", {**HERE, "limit": 1}, "", {"messages": [{"metadata": {"event_type": "run"}}]}),
    ],
    "history": [
        ("conversations.history", PAGE, "", {"messages": [{"ts": "{3}"}, {"ts": "{2}"}], "has_more": True}),
        ("conversations.history", {**PAGE, "cursor": "{cursor}"}, "", {"messages": [{"ts": "{1}"}], "has_more": False}),
        ("conversations.history", {**HERE, "oldest": "yesterday"}, "invalid_ts_oldest"),
        ("conversations.replies", {**SAID, "latest": "now"}, "invalid_ts_latest"),
    ],
    "people and channels": [
        ("users.info", {"user": "{alice}"}, "", {"user": {"name": "alice"}}),
        ("users.info", {"user": "U0"}, "user_not_found"),
        ("users.list", {}, "", {"members": [{}, {}, {}]}),
        ("users.conversations", OWN, "", {"channels": [{}, {}]}),
        ("users.conversations", {**OWN, "cursor": "{cursor}"}, "", {"response_metadata": {"next_cursor": ""}}),
        ("users.conversations", {"types": "everything"}, "invalid_types"),
        ("users.conversations", {"user": "U0"}, "user_not_found"),
        ("conversations.members", HERE, "", {"members": ["{bot}", "{alice}", "{bob}"]}),
        ("conversations.open", {"users": "{alice}"}, "", {"channel": {"id": "{direct}"}}),
        ("conversations.info", {"channel": "{direct}"}, "", {"channel": {"is_im": True, "user": "{alice}"}}),
        ("chat.postMessage", {"channel": "{alice}", "text": "hi"}, "", {"channel": "{direct}"}),
        ("chat.getPermalink", {"channel": "{direct}", "message_ts": "{last}"}, "", {"channel": "{direct}"}),
        ("team.info", {}, "", {"team": {"id": "{team}"}}),
        ("bots.info", {}, "", {"bot": {"user_id": "{bot}"}}),
    ],
    "streams": [
        ("chat.startStream", STREAM, ""),
        *(
            ("chat.appendStream", {**POSTED, "chunks": [chunk]}, "invalid_chunks")
            for chunk in ({"type": "other"}, {"type": "task_update", "id": "1"})
        ),
        ("chat.update", {**POSTED, "text": "no"}, "streaming_state_conflict"),
        ("chat.stopStream", POSTED, ""),
        ("chat.appendStream", {**POSTED, "markdown_text": "more"}, "message_not_in_streaming_state"),
        ("chat.update", {**POSTED, "text": "over"}, ""),
    ],
}


async def code(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response.data["error"]


def general(slack: SlackSimulator) -> str:
    return slack.channel("general").channel_id


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation(slack: SlackSimulator, client: AsyncWebClient, name: str) -> None:
    alice, bot = slack.member("alice").user_id, slack.workspace.bot.user_id
    ids = {str(number): await slack.say("alice", "general", str(number)) for number in range(4)}
    ids |= {
        "general": general(slack),
        "reply": await slack.say("bob", "general", "beside", thread_id=ids["0"]),
        "outside": slack.workspace.add_channel("outside", members=(alice,)).channel_id,
        "secret": slack.workspace.add_channel("secret", kind="group", members=(alice,)).channel_id,
        "archived": slack.channel("random").channel_id,
        "direct": slack.workspace.direct_with(alice, bot).channel_id,
        "alice": alice,
        "bob": slack.member("bob").user_id,
        "bot": bot,
        "team": slack.workspace.team_id,
    }
    slack.workspace.channels[ids["archived"]].is_archived = True
    for method, arguments, error, *expected in CONVERSATIONS[name]:
        call = client.api_call(method, json=filled(arguments, ids))
        if error:
            assert await code(call) == error, (method, arguments)
            continue
        answer: Any = (await call).data
        for part in filled(expected, ids):
            assert part_of(answer, part) == part, method
        ids["last"] = answer.get("ts", ids.get("last", ""))
        ids["cursor"] = answer.get("response_metadata", {}).get("next_cursor", "")


async def test_who_calls_is_told_by_the_token(slack: SlackSimulator, client: AsyncWebClient) -> None:
    assert "chat:write" in (await client.auth_test()).headers["x-oauth-scopes"]
    assert await code(AsyncWebClient("xoxb-other", base_url=slack.api_url).auth_test()) == "invalid_auth"
    assert await code(AsyncWebClient(base_url=slack.api_url).auth_test()) == "not_authed"
