"""Messages over plain HTTP: what is taken, what is refused and how."""

import pytest

from simulator.discord.json_reading import Json
from simulator.discord.world import COMPONENTS_V2
from simulator.view import SentFile
from tests.integration.simulator.discord.bot import Rest

GENERAL = "/channels/4001/messages"


async def test_unknown_places(rest: Rest) -> None:
    assert (await rest("GET", "/nowhere"))[0] == 404
    assert (await rest("PUT", GENERAL))[0] == 405
    assert (await rest("GET", "/channels/77"))[1]["code"] == 10003
    assert (await rest("GET", f"{GENERAL}/77"))[1]["code"] == 10008
    assert (await rest("PATCH", f"{GENERAL}/77", {"content": "x"}))[1]["code"] == 10008


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, 50006),
        ({"content": "   "}, 400, 50006),
        ({"content": "x" * 2001}, 400, 50035),
        ({"content": 5}, 400, 50035),
        ({"content": "x", "nonce": "n" * 26}, 400, 50035),
        ({"content": "x", "embeds": [{}] * 11}, 400, 50035),
        ({"embeds": [{"description": "x" * 4097}]}, 400, 50035),
        ({"embeds": [{"description": "x" * 4000}, {"description": "x" * 2001}]}, 400, 50035),
        ({"content": "x", "message_reference": {"message_id": "1"}}, 400, 50035),
        ({"content": "x", "allowed_mentions": {"parse": ["nobody"]}}, 400, 50035),
        ({"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}, 400, 50035),
        ({"content": "x", "allowed_mentions": {"users": ["a"]}}, 400, 50035),
        ({"content": "x", "attachments": [{"id": 0}]}, 400, 50035),
        ({"content": "x", "flags": COMPONENTS_V2}, 400, 50035),
        ({"flags": COMPONENTS_V2}, 400, 50006),
        (["no object"], 400, 50035),
    ],
)
async def test_a_message_that_discord_refuses(rest: Rest, body: object, status: int, code: int) -> None:
    answer = await rest("POST", GENERAL, body)
    assert (answer[0], answer[1]["code"]) == (status, code)
    assert rest.simulator.view().channels[0].messages == ()


async def test_broken_json_is_told(rest: Rest) -> None:
    headers = {"Authorization": "Bot test-token", "Content-Type": "application/json"}
    url = rest.simulator.api_url + GENERAL
    async with rest.session.post(url, data=b"{", headers=headers) as response:
        assert (response.status, (await response.json())["code"]) == (400, 50109)
    headers["Content-Type"] = "text/plain"
    async with rest.session.post(url, data=b"{}", headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize(
    ("allowed", "pinged", "is_everyone"),
    [
        (None, ["alice", "bob"], True),
        ({"parse": []}, [], False),
        ({"parse": ["users"]}, ["alice", "bob"], False),
        ({"users": ["2002"]}, ["bob"], False),
        ({"parse": ["everyone"]}, [], True),
    ],
)
async def test_allowed_mentions_decide_who_is_pinged(
    rest: Rest, allowed: Json | None, pinged: list[str], is_everyone: bool
) -> None:
    body: Json = {"content": "<@2001> <@2002> @everyone"}
    if allowed is not None:
        body["allowed_mentions"] = allowed
    _, message = await rest("POST", GENERAL, body)
    assert [user["username"] for user in message["mentions"]] == pinged
    assert message["mention_everyone"] is is_everyone


async def test_a_reply_pings_the_one_it_answers_unless_told_not_to(rest: Rest) -> None:
    asked = await rest.simulator.say("alice", "4001", "question")
    reference = {"message_reference": {"message_id": asked}}
    _, reply = await rest("POST", GENERAL, {"content": "a", **reference})
    assert reply["type"] == 19
    assert reply["referenced_message"]["content"] == "question"
    assert [user["username"] for user in reply["mentions"]] == ["alice"]
    quiet = {"parse": ["users"], "replied_user": False}
    _, reply = await rest("POST", GENERAL, {"content": "a", **reference, "allowed_mentions": quiet})
    assert reply["mentions"] == []
    gone = {"message_reference": {"message_id": "1", "fail_if_not_exists": False}}
    assert (await rest("POST", GENERAL, {"content": "a", **gone}))[1]["type"] == 0


async def test_only_own_messages_are_edited(rest: Rest) -> None:
    theirs = await rest.simulator.say("alice", "4001", "mine")
    assert (await rest("PATCH", f"{GENERAL}/{theirs}", {"content": "x"}))[1]["code"] == 50005
    _, own = await rest("POST", GENERAL, {"content": "a"})
    _, edited = await rest("PATCH", f"{GENERAL}/{own['id']}", {"content": "b"})
    assert edited["content"] == "b"
    assert edited["edited_timestamp"] is not None
    assert (await rest("PATCH", f"{GENERAL}/{own['id']}", {"content": ""}))[1]["code"] == 50006
    assert (await rest("GET", f"{GENERAL}/{own['id']}"))[1]["content"] == "b"


async def test_a_message_with_text_becomes_a_layout_only_without_it(rest: Rest) -> None:
    _, message = await rest("POST", GENERAL, {"content": "plain"})
    path = f"{GENERAL}/{message['id']}"
    layout: Json = {"flags": COMPONENTS_V2, "components": [{"type": 10, "content": "hello"}]}
    assert (await rest("PATCH", path, layout))[1]["code"] == 50035
    assert (await rest("PATCH", path, {**layout, "content": None}))[0] == 200


async def test_history_comes_newest_first_in_pages(rest: Rest) -> None:
    ids = [await rest.simulator.say("alice", "4001", str(n)) for n in range(5)]

    async def page(query: str) -> list[str]:
        return [message["content"] for message in (await rest("GET", f"{GENERAL}?{query}"))[1]]

    assert await page("limit=2") == ["4", "3"]
    assert await page(f"limit=2&before={ids[3]}") == ["2", "1"]
    assert await page(f"limit=2&after={ids[1]}") == ["3", "2"]
    assert await page(f"limit=3&around={ids[2]}") == ["3", "2", "1"]
    assert await page(f"after={ids[4]}") == []
    for query in ("limit=0", "limit=101", "limit=x", "before=x"):
        assert (await rest("GET", f"{GENERAL}?{query}"))[0] == 400


async def test_permissions_can_be_taken_away(rest: Rest) -> None:
    settings = rest.simulator.settings
    settings.missing_permissions.add("PUT /channels/*/reactions/*")
    message_id = await rest.simulator.say("alice", "4001", "x")
    path = f"{GENERAL}/{message_id}/reactions/%F0%9F%91%80/@me"
    assert await rest("PUT", path) == (403, {"message": "Missing Permissions", "code": 50013})
    settings.hidden_channels.add("4001")
    assert (await rest("GET", GENERAL))[1]["code"] == 50001


async def test_without_the_content_intent_history_is_blank_too(rest: Rest) -> None:
    rest.simulator.settings.has_message_content_intent = False
    file = SentFile(name="a.txt", content=b"a")
    hidden = await rest.simulator.say("alice", "4001", "hidden", files=[file])
    shown = await rest.simulator.say("alice", "4001", "@threadhand shown")
    _, message = await rest("GET", f"{GENERAL}/{hidden}")
    assert (message["content"], message["attachments"]) == ("", [])
    assert (await rest("GET", f"{GENERAL}/{shown}"))[1]["content"] == "<@1001> shown"
