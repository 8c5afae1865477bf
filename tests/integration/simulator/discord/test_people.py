"""What people may do, and what they see."""

import json

import pytest

from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.discord.files import FILES_MAX
from simulator.discord.json_reading import Json
from simulator.discord.world import COMPONENTS_V2, clean_filename
from simulator.serving import PortInUse
from simulator.view import Button, Divider, Markdown, Picture, Select, SelectOption, SentFile
from tests.integration.simulator.discord.bot import TOKEN, Rest, form

MESSAGES = "/channels/4001/messages"


async def test_a_reply_pings_whom_it_answers_but_not_its_own_author(simulator: DiscordSimulator) -> None:
    first = await simulator.say("bob", "4001", "who is in?")
    for person, pinged in (("alice", ["bob"]), ("bob", [])):
        message_id = await simulator.say(person, "4001", "me", reply_to=first)
        stored = simulator.world.channels["4001"].messages[message_id]
        assert [user.name for user in stored.mentions] == pinged


@pytest.mark.parametrize(
    ("person", "channel", "text", "thread", "sentence"),
    [
        ("carol", "4001", "x", None, "no person"),
        ("alice", "77", "x", None, "no channel"),
        ("alice", "4001", "x", "77", "no channel or thread"),
        ("alice", "5002", "x", None, "no channel of alice"),
        ("alice", "4001", " ", None, "needs a text"),
        ("alice", "4001", "x" * 2001, None, "2000 characters"),
    ],
)
async def test_a_message_that_cannot_be_said(
    simulator: DiscordSimulator, person: str, channel: str, text: str, thread: str | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        await simulator.say(person, channel, text, thread_id=thread)


async def test_files_that_cannot_be_sent(simulator: DiscordSimulator) -> None:
    large = SentFile(name="a.bin", content=b"x" * (10 * 1024 * 1024 + 1))
    with pytest.raises(ValueError, match="larger than 10 MiB"):
        await simulator.say("alice", "4001", "x", files=[large])
    many = [SentFile(name="a", content=b"")] * (FILES_MAX + 1)
    with pytest.raises(ValueError, match="at most 10 files"):
        await simulator.say("alice", "4001", "x", files=many)
    await simulator.say("alice", "4001", "", files=[SentFile(name="empty.txt", content=b"")])
    (message,) = simulator.view().channels[0].messages
    assert (message.files[0].name, message.files[0].size_bytes) == ("empty.txt", 0)


@pytest.mark.parametrize(
    ("name", "clean", "title"),
    [
        ("data.csv", "data.csv", None),
        ("my data.csv", "my_data.csv", "my data"),
        ("../../etc/x", "x", None),
        ("..\\..\\boot.ini", "boot.ini", None),
        ("bad\n\x00name.txt", "badname.txt", "badname"),
        ("\u202efdp.exe", "fdp.exe", "fdp"),
        ("данные.csv", "unknown.csv", "данные"),
        (".hidden", "hidden", ".hidden"),
        ("", "unknown", None),
    ],
)
def test_file_names_are_cleaned(name: str, clean: str, title: str | None) -> None:
    assert clean_filename(name) == (clean, title)


async def test_people_change_only_what_is_theirs(simulator: DiscordSimulator) -> None:
    message_id = await simulator.say("alice", "4001", "first")
    with pytest.raises(ValueError, match="only the author"):
        await simulator.edit("bob", "4001", message_id, "x")
    with pytest.raises(ValueError, match="only the author"):
        await simulator.delete("bob", "4001", message_id)
    with pytest.raises(ValueError, match="no message"):
        await simulator.edit("alice", "4002", message_id, "x")
    with pytest.raises(ValueError, match="no emoji"):
        await simulator.react("bob", "4001", message_id, "thumbs")
    await simulator.edit("alice", "4001", message_id, "second")
    (message,) = simulator.view().channels[0].messages
    assert (message.elements[0], message.edits) == (Markdown(text="second", flavour="discord"), 1)
    with pytest.raises(ValueError, match="gone"):
        await simulator.press("alice", "4001", message_id, "nothing")
    with pytest.raises(ValueError, match="gone"):
        await simulator.submit("alice", "77", {})
    await simulator.delete("alice", "4001", message_id)
    assert simulator.view().channels[0].messages == ()


async def test_a_layout_is_drawn(rest: Rest) -> None:
    row: Json = {
        "type": 1,
        "components": [
            {"type": 2, "style": 4, "label": "Stop", "custom_id": "stop", "disabled": True},
            {"type": 2, "style": 5, "label": "Docs", "url": "https://example.org"},
            {"type": 2, "style": 1, "emoji": {"name": "🔁"}, "custom_id": "retry"},
        ],
    }
    options = [{"label": "A", "value": "a"}]
    select: Json = {"type": 3, "custom_id": "s", "placeholder": "Choose", "options": options}
    container: Json = {
        "type": 17,
        "components": [
            {"type": 10, "content": "# Plan <@2001>"},
            {"type": 14},
            {"type": 14, "divider": False},
            {"type": 12, "items": [{"media": {"url": "attachment://a.png"}, "description": "p"}]},
            {"type": 13, "file": {"url": "attachment://b.txt"}},
        ],
    }
    body: Json = {"flags": COMPONENTS_V2, "components": [container, row, {"type": 1, "components": [select]}]}
    files = [("files[0]", "a.png", b"p"), ("files[1]", "b.txt", b"b"), ("files[2]", "c.txt", b"c")]
    status, message = await rest("POST", MESSAGES, form=form(json.dumps(body), *files))
    assert status == 200, message
    (seen,) = rest.simulator.view().channels[0].messages
    picture = seen.elements[3]
    assert isinstance(picture, Picture)
    assert picture.alt == "p"
    async with rest.session.get(picture.url) as response:
        assert await response.read() == b"p"
    assert seen.elements == (
        Divider(),
        Markdown(text="# Plan @alice", flavour="discord"),
        Divider(),
        picture,
        Divider(),
        Button(control_id="stop", label="Stop", style="danger", is_disabled=True),
        Button(control_id="", label="Docs", style="link", url="https://example.org"),
        Button(control_id="retry", label="🔁", style="primary"),
        Select(control_id="s", placeholder="Choose", options=(SelectOption(value="a", label="A"),)),
    )
    assert [file.name for file in seen.files] == ["b.txt"]
    for control, sentence in (("stop", "disabled"), ("", "gone")):
        with pytest.raises(ValueError, match=sentence):
            await rest.simulator.press("alice", "4001", seen.message_id, control)
    path, same = f"{MESSAGES}/{message['id']}", message["components"]
    assert (await rest("PATCH", path, {"components": same}))[1]["code"] == 50035
    same[0]["components"][4]["file"] = {"url": "attachment://b.txt"}
    assert (await rest("PATCH", path, {"components": same}))[0] == 200


async def test_an_embed_is_drawn_unless_it_is_suppressed(rest: Rest) -> None:
    embed: Json = {"title": "T", "description": "D", "fields": [{"name": "N", "value": "V"}], "footer": {"text": "F"}}
    _, message = await rest("POST", MESSAGES, {"content": "c", "embeds": [embed]})
    (seen,) = rest.simulator.view().channels[0].messages
    assert [getattr(item, "text", "-") for item in seen.elements] == ["c", "-", "T", "D", "**N**\nV", "F"]
    await rest("PATCH", f"{MESSAGES}/{message['id']}", {"flags": 4})
    (seen,) = rest.simulator.view().channels[0].messages
    assert len(seen.elements) == 1


async def test_a_port_in_use_is_told() -> None:
    async with DiscordSimulator(token=TOKEN, settings=DiscordSettings()) as first:
        port = int(first.gateway_url.split(":")[2].strip("/"))
        with pytest.raises(PortInUse, match="in use"):
            async with DiscordSimulator(port=port, token=TOKEN):
                pass
