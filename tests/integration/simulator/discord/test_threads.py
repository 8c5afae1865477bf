"""Threads over plain HTTP: starting, archiving, members."""

import pytest

from simulator.discord.json_reading import Json
from tests.integration.simulator.discord.bot import Rest

GENERAL = "/channels/4001"


async def started(rest: Rest, name: str = "work") -> str:
    message_id = await rest.simulator.say("alice", "4001", "start")
    path = f"{GENERAL}/messages/{message_id}/threads"
    status, thread = await rest("POST", path, {"name": name})
    assert (status, thread["id"], thread["type"], thread["parent_id"]) == (201, message_id, 11, "4001")
    return message_id


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "x" * 101}, {"name": "x", "auto_archive_duration": 61}])
async def test_a_thread_that_discord_refuses(rest: Rest, body: Json) -> None:
    message_id = await rest.simulator.say("alice", "4001", "start")
    path = f"{GENERAL}/messages/{message_id}/threads"
    assert (await rest("POST", path, body))[1]["code"] == 50035
    assert rest.simulator.view().channels[0].threads == ()


async def test_threads_start_in_text_channels_alone(rest: Rest) -> None:
    thread_id = await started(rest)
    path = f"/channels/{thread_id}/threads"
    assert (await rest("POST", path, {"name": "deeper"}))[1]["code"] == 50024
    assert (await rest("POST", "/channels/5001/threads", {"name": "x"}))[1]["code"] == 50024


async def test_a_post_wakes_an_archived_thread_and_nothing_else_does(rest: Rest) -> None:
    thread_id = await started(rest)
    path = f"/channels/{thread_id}"
    _, message = await rest("POST", f"{path}/messages", {"content": "a"})
    _, thread = await rest("PATCH", path, {"archived": True})
    assert thread["thread_metadata"]["archived"] is True
    _, archived = await rest("GET", f"{GENERAL}/threads/archived/public")
    assert [item["id"] for item in archived["threads"]] == [thread_id]
    own = f"{path}/messages/{message['id']}"
    assert (await rest("PATCH", own, {"content": "b"}))[1]["code"] == 50083
    assert (await rest("PUT", f"{own}/reactions/%F0%9F%91%80/@me"))[1]["code"] == 50083
    assert (await rest("POST", f"{path}/messages", {"content": "wake"}))[0] == 200
    _, active = await rest("GET", "/guilds/3001/threads/active")
    assert [item["id"] for item in active["threads"]] == [thread_id]
    assert [item["user_id"] for item in active["members"]] == ["1001"]
    rest.simulator.lock_thread(thread_id, is_archived=True)
    assert (await rest("POST", f"{path}/messages", {"content": "wake"}))[1]["code"] == 50083
    with pytest.raises(ValueError, match="locked"):
        await rest.simulator.say("alice", "4001", "hello", thread_id=thread_id)
