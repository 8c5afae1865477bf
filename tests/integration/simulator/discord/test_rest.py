"""One recorded conversation for each part of Discord's REST API: what is taken, and what is refused with which code."""

from typing import Any

import pytest

from simulator.discord.json_reading import Json
from simulator.discord.rules.permissions import SEND, SEND_IN_THREADS, VIEW
from simulator.discord.world import ANNOUNCEMENTS, COMPONENTS_V2, FORUM
from tests.integration.simulator.conversations import filled, part_of
from tests.integration.simulator.discord.bot import Rest

GENERAL = "/channels/4001/messages"
COMMANDS = "/applications/1001/commands"
EYES = "reactions/%F0%9F%91%80/@me"
LAYOUT: Json = {"flags": COMPONENTS_V2, "components": [{"type": 10, "content": "hello"}]}
Line = tuple[str, object, int] | tuple[str, object, int, Any]
"""A call, its body, the code of the refusal or else the status, and a part of the answer. `{last}` is the id of
what was made last, `{said}` a message of alice."""


def command(name: str = "stop", **more: object) -> Json:
    return {"name": name, "description": "Stops it", "type": 1, **more}


def option(name: str = "text", kind: int = 3, **more: object) -> Json:
    return {"name": name, "description": "A text", "type": kind, **more}


def pings(names: list[str], *, everyone: bool = False) -> Json:
    return {"mentions": [{"username": one} for one in names], "mention_everyone": everyone}


def said_to_all(**allowed: object) -> Json:
    return {"content": "<@2001> <@2002> @everyone", **({"allowed_mentions": allowed} if allowed else {})}


REPLY: Json = {"content": "a", "message_reference": {"message_id": "{said}"}}
CONVERSATIONS: dict[str, list[Line]] = {
    "unknown places": [
        ("GET /nowhere", None, 404),
        (f"PUT {GENERAL}", None, 405),
        ("GET /channels/77", None, 10003),
        (f"GET {GENERAL}/77", None, 10008),
        (f"PATCH {GENERAL}/77", {"content": "x"}, 10008),
        ("GET /guilds/3999", None, 404),
        ("GET /applications/7/commands", None, 10002),
        ("GET /applications/1001/guilds/7/commands", None, 10004),
    ],
    "calls that only read": [
        *(
            (f"GET {path}", None, 200)
            for path in (
                "/gateway",
                "/applications/@me",
                "/users/@me/guilds",
                "/users/2001",
                "/guilds/3001",
                "/guilds/3001/channels",
                "/applications/1001/guilds/3001/commands",
            )
        ),
        (f"POST {GENERAL}/{{said}}/threads", {"name": "t"}, 201),
        ("GET /channels/{said}/thread-members", None, 200),
        ("GET /channels/{said}/thread-members/1001", None, 200),
        (f"PUT {GENERAL}/{{said}}/{EYES}", None, 204),
        (f"GET {GENERAL}/{{said}}/reactions/%F0%9F%91%80", None, 200, [{"id": "1001"}]),
    ],
    "who is pinged": [
        (f"POST {GENERAL}", said_to_all(), 200, pings(["alice", "bob"], everyone=True)),
        (f"POST {GENERAL}", said_to_all(parse=[]), 200, pings([])),
        (f"POST {GENERAL}", said_to_all(parse=["users"]), 200, pings(["alice", "bob"])),
        (f"POST {GENERAL}", said_to_all(users=["2002"]), 200, pings(["bob"])),
        (f"POST {GENERAL}", said_to_all(parse=["everyone"]), 200, pings([], everyone=True)),
    ],
    "replies": [
        (f"POST {GENERAL}", REPLY, 200, {"type": 19, "referenced_message": {"content": "0"}, **pings(["alice"])}),
        (f"POST {GENERAL}", {**REPLY, "allowed_mentions": {"parse": ["users"], "replied_user": False}}, 200, pings([])),
        (
            f"POST {GENERAL}",
            {"content": "a", "message_reference": {"message_id": "1", "fail_if_not_exists": False}},
            200,
            {"type": 0},
        ),
    ],
    "edits": [
        (f"PATCH {GENERAL}/{{said}}", {"content": "x"}, 50005),
        (f"POST {GENERAL}", {"content": "a"}, 200, {"edited_timestamp": None}),
        (f"PATCH {GENERAL}/{{last}}", {"content": ""}, 50006),
        (f"PATCH {GENERAL}/{{last}}", {"content": "b"}, 200, {"content": "b"}),
        (f"PATCH {GENERAL}/{{last}}", LAYOUT, 50035),  # a message with text becomes a layout without it
        (f"PATCH {GENERAL}/{{last}}", {**LAYOUT, "content": None}, 200),
    ],
    "history": [
        (f"GET {GENERAL}?limit=2", None, 200, [{"content": "4"}, {"content": "3"}]),
        (f"GET {GENERAL}?limit=2&before={{3}}", None, 200, [{"content": "2"}, {"content": "1"}]),
        (f"GET {GENERAL}?limit=2&after={{1}}", None, 200, [{"content": "3"}, {"content": "2"}]),
        (f"GET {GENERAL}?limit=3&around={{2}}", None, 200, [{"content": "3"}, {"content": "2"}, {"content": "1"}]),
        (f"GET {GENERAL}?after={{4}}", None, 200, []),
        *((f"GET {GENERAL}?{query}", None, 50035) for query in ("limit=0", "limit=101", "limit=x", "before=x")),
    ],
    "threads": [
        *(
            (f"POST {GENERAL}/{{said}}/threads", body, 50035)
            for body in ({}, {"name": ""}, {"name": "x" * 101}, {"name": "x", "auto_archive_duration": 61})
        ),
        ("GET /guilds/3001/threads/active", None, 200, {"threads": []}),
        ("POST /channels/5001/threads", {"name": "x"}, 50024),
        (f"POST {GENERAL}/{{said}}/threads", {"name": "t"}, 201, {"type": 11, "parent_id": "4001"}),
        ("POST /channels/{said}/threads", {"name": "deeper"}, 50024),
        ("POST /channels/{said}/messages", {"content": "a"}, 200),
        ("PATCH /channels/{said}", {"archived": True}, 200, {"thread_metadata": {"archived": True}}),
        ("GET /channels/4001/threads/archived/public", None, 200, {"threads": [{"id": "{said}"}]}),
        ("PATCH /channels/{said}/messages/{last}", {"content": "b"}, 50083),
        (f"PUT /channels/{{said}}/messages/{{last}}/{EYES}", None, 50083),
        ("POST /channels/{said}/messages", {"content": "a post wakes it"}, 200),
        ("GET /guilds/3001/threads/active", None, 200, {"threads": [{}], "members": [{"user_id": "1001"}]}),
        ("GET /channels/4001/threads/archived/public", None, 200, {"threads": []}),
    ],
    "commands": [
        (f"POST {COMMANDS}", command(), 201),
        (f"POST {COMMANDS}", command(description="Ends it"), 200, {"id": "{last}", "description": "Ends it"}),
        (f"GET {COMMANDS}/{{last}}", None, 200, {"name": "stop"}),
        (f"PATCH {COMMANDS}/{{last}}", {"description": "Third"}, 200, {"description": "Third"}),
        (f"PATCH {COMMANDS}/{{last}}", {"name": "Not This"}, 50035),
        (f"PUT {COMMANDS}", [command(), command("files")], 200, [{"name": "stop", "id": "{last}"}, {"name": "files"}]),
        (
            f"PUT {COMMANDS}",
            [command("good"), command("BAD")],
            50035,
            {"errors": {"1": {"name": {"_errors": [{"code": "APPLICATION_COMMAND_INVALID_NAME"}]}}}},
        ),
        *((f"PUT {COMMANDS}", body, 50035) for body in (command(), [command(), command()])),
        (f"PUT {COMMANDS}", [command(f"c{n}") for n in range(101)], 30032),
        (f"GET {COMMANDS}", None, 200, [{}, {}]),
        (f"DELETE {COMMANDS}/{{last}}", None, 204),
        (f"GET {COMMANDS}/{{last}}", None, 10063),
        ("PUT /applications/1001/guilds/3001/commands", [command("here")], 200, [{"guild_id": "3001"}]),
        (f"GET {COMMANDS}", None, 200, [{"name": "files"}]),
    ],
    "translations": [
        (
            f"PUT {COMMANDS}",
            [command(name_localizations={"de": "halt"}, options=[option(name_localizations={"de": "wort"})])],
            200,
        ),
        (f"GET {COMMANDS}?with_localizations=true", None, 200, [{"options": [{"name_localizations": {"de": "wort"}}]}]),
    ],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation(rest: Rest, name: str) -> None:
    ids = {str(n): await rest.simulator.say("alice", "4001", str(n)) for n in range(5)}
    ids["said"] = ids["0"]
    for call, body, code, *expected in CONVERSATIONS[name]:
        method, path = filled(call, ids).split(" ")
        status, answer = await rest(method, path, filled(body, ids))
        assert code in (status, answer and answer.get("code") if isinstance(answer, dict) else None), (call, answer)
        for part in filled(expected, ids):
            assert part_of(answer, part) == part, call
        if method == "POST" and "id" in answer:
            ids["last"] = answer["id"]


REFUSED_MESSAGES: list[tuple[object, int]] = [
    ({}, 50006),
    ({"content": "   "}, 50006),
    ({"flags": COMPONENTS_V2}, 50006),
    ({"content": "x" * 2001}, 50035),
    ({"content": "x", "nonce": "n" * 26}, 50035),
    ({"embeds": [{"description": "x" * 4097}]}, 50035),
    ({"embeds": [{"description": "x" * 4000}, {"description": "x" * 2001}]}, 50035),
    ({"content": "x", "message_reference": {"message_id": "1"}}, 50035),
    ({"content": "x", "allowed_mentions": {"parse": ["nobody"]}}, 50035),
    ({"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}, 50035),
    ({"content": "x", "attachments": [{"id": 0}]}, 50035),
    ({"content": "x", "flags": COMPONENTS_V2}, 50035),
]
REFUSED_COMMANDS = [
    command(""),
    command("x" * 33),
    command("Upper"),
    command(description=""),
    command(description="x" * 101),
    command(options=[option(str(n)) for n in range(26)]),
    command(options=[option("a"), option("b", required=True)]),
    command(options=[option(choices=[{"name": "x", "value": "x" * 101}])]),
    command(options=[option(choices=[{"name": str(n), "value": "x"} for n in range(26)])]),
]


async def test_messages_and_commands_that_discord_refuses(rest: Rest) -> None:
    for path, body, code in (
        *((GENERAL, *row) for row in REFUSED_MESSAGES),
        *((COMMANDS, body, 50035) for body in REFUSED_COMMANDS),
    ):
        status, answer = await rest("POST", path, body)
        assert (status, answer["code"]) == (400, code), body
    assert rest.simulator.view().channels[0].messages == ()


@pytest.mark.parametrize(
    ("permission", "in_channel", "in_thread"),
    [(VIEW, 50001, 50001), (SEND, 50013, None), (SEND_IN_THREADS, None, 50013)],
)
async def test_writing_needs_permissions(
    rest: Rest, permission: int, in_channel: int | None, in_thread: int | None
) -> None:
    said = await rest.simulator.say("alice", "4001", "hello")
    await rest("POST", f"{GENERAL}/{said}/threads", {"name": "t"})
    rest.simulator.settings.channel_overwrites["4001"] = [
        {"id": "3001", "type": 0, "allow": "0", "deny": str(permission)}
    ]
    for path, code in ((GENERAL, in_channel), (f"/channels/{said}/messages", in_thread)):
        assert (await rest("POST", path, {"content": "x"}))[1].get("code") == code


async def test_forums_announcements_locked_threads_and_other_servers(rest: Rest) -> None:
    simulator = rest.simulator
    forum = simulator.add_channel("ideas", FORUM)
    assert (await rest("POST", f"/channels/{forum.channel_id}/messages", {"content": "x"}))[1]["code"] == 50008
    news = simulator.add_channel("news", ANNOUNCEMENTS).channel_id
    said = await simulator.say("alice", news, "hello")
    assert (await rest("POST", f"/channels/{news}/messages/{said}/threads", {"name": "t"}))[1]["type"] == 10
    simulator.lock_thread(said, is_archived=True)
    assert (await rest("POST", f"/channels/{said}/messages", {"content": "wake"}))[1]["code"] == 50083
    with pytest.raises(ValueError, match="locked"):
        await simulator.say("alice", news, "hello", thread_id=said)
    other = simulator.add_guild("Other", people=("carol",))
    carol = other.people["carol"].user_id
    simulator.world.home.roles["77"] = "helpers"
    for guild_id, person, status in ((other.guild_id, carol, 200), ("3001", carol, 404), (other.guild_id, "2002", 404)):
        assert (await rest("GET", f"/guilds/{guild_id}/members/{person}"))[0] == status
    roles = {one["id"] for one in (await rest("GET", f"/guilds/{other.guild_id}/roles"))[1]}
    assert roles == {other.guild_id}
    place = next(one.channel_id for one in simulator.world.channels.values() if one.guild_id == other.guild_id)
    _, thread = await rest("POST", f"/channels/{place}/threads", {"name": "t", "type": 11})
    _, active = await rest("GET", f"/guilds/{other.guild_id}/threads/active")
    assert [one["id"] for one in active["threads"]] == [thread["id"]]
    assert (await rest("PUT", f"/channels/{thread['id']}/thread-members/2002"))[0] == 404, "bob is in the other server"
