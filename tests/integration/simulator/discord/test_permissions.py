"""The bot does in a channel what its permissions allow, by Discord's rules of roles, overwrites and locked threads."""

import pytest

from simulator.discord.json_reading import Json
from simulator.discord.rules.permissions import (
    ADD_REACTIONS,
    ATTACH,
    CREATE_THREADS,
    READ_HISTORY,
    SEND,
    SEND_IN_THREADS,
    VIEW,
)
from simulator.discord.world import ANNOUNCEMENTS, FORUM
from tests.integration.simulator.discord.bot import Rest

GENERAL = "/channels/4001"


def forbid(rest: Rest, permission: int, owner: str = "3001") -> None:
    """Takes a permission away in the channel, from everybody or from the bot."""
    overwrite: Json = {"id": owner, "type": 0, "allow": "0", "deny": str(permission)}
    rest.simulator.settings.channel_overwrites.setdefault("4001", []).append(overwrite)


async def started(rest: Rest) -> str:
    said = await rest.simulator.say("alice", "4001", "hello")
    return (await rest("POST", f"{GENERAL}/messages/{said}/threads", {"name": "t"}))[1]["id"]


@pytest.mark.parametrize(("permission", "code"), [(VIEW, 50001), (SEND, 50013), (SEND_IN_THREADS, None)])
async def test_writing_in_a_channel(rest: Rest, permission: int, code: int | None) -> None:
    forbid(rest, permission)
    _, body = await rest("POST", f"{GENERAL}/messages", {"content": "x"})
    assert body.get("code") == code


@pytest.mark.parametrize(("permission", "code"), [(VIEW, 50001), (SEND_IN_THREADS, 50013), (SEND, None)])
async def test_a_thread_has_the_permissions_of_its_channel(rest: Rest, permission: int, code: int | None) -> None:
    thread_id = await started(rest)
    forbid(rest, permission)
    _, body = await rest("POST", f"/channels/{thread_id}/messages", {"content": "x"})
    assert body.get("code") == code


async def test_threads_reactions_history_and_files_have_permissions_of_their_own(rest: Rest) -> None:
    said = await rest.simulator.say("alice", "4001", "hello")
    forbid(rest, CREATE_THREADS | ADD_REACTIONS | ATTACH | READ_HISTORY, owner="1001")
    thread = await rest("POST", f"{GENERAL}/messages/{said}/threads", {"name": "t"})
    eyes = await rest("PUT", f"{GENERAL}/messages/{said}/reactions/%F0%9F%91%80/@me")
    assert [thread[1]["code"], eyes[1]["code"]] == [50013, 50013]
    assert (await rest("GET", f"{GENERAL}/messages"))[1] == []


async def test_answers_have_the_fields_that_the_openapi_document_requires(rest: Rest) -> None:
    """github.com/discord/discord-api-spec: UserResponse, RatelimitedResponse, the components of a message."""
    media = {"url": "https://example.com/a.png"}
    container: Json = {
        "type": 17,
        "components": [{"type": 10, "content": "x"}, {"type": 14}, {"type": 12, "items": [{"media": media}]}],
    }
    _, sent = await rest("POST", f"{GENERAL}/messages", {"components": [container], "flags": 1 << 15})
    (shown,) = sent["components"]
    assert (shown["accent_color"], shown["spoiler"]) == (None, False)
    assert (shown["components"][1]["divider"], shown["components"][1]["spacing"]) == (True, 1)
    (item,) = shown["components"][2]["items"]
    assert (item["description"], item["spoiler"]) == (None, False)
    assert {"id", "url", "proxy_url"} <= item["media"].keys()
    assert (sent["author"]["flags"], sent["author"]["primary_guild"]) == (0, None)
    assert (await rest("GET", "/users/@me"))[1]["locale"] == "en-US"
    rest.simulator.misbehave("rate_limit", method="GET /users/@me", seconds=0.1)
    assert (await rest("GET", "/users/@me"))[1].keys() >= {"code", "global", "retry_after"}


async def test_forums_have_no_messages_and_announcements_threads_of_their_kind(rest: Rest) -> None:
    forum = rest.simulator.add_channel("ideas", FORUM)
    body = {"content": "x"}
    refused = await rest("POST", f"/channels/{forum.channel_id}/messages", body)
    assert refused[1]["code"] == 50008
    news = rest.simulator.add_channel("news", ANNOUNCEMENTS)
    said = await rest.simulator.say("alice", news.channel_id, "hello")
    path = f"/channels/{news.channel_id}/messages/{said}/threads"
    assert (await rest("POST", path, {"name": "t"}))[1]["type"] == 10
