"""What people may do, and what they see."""

import json

import pytest

from simulator.discord.json_reading import Json
from simulator.discord.world import COMPONENTS_V2, clean_filename
from simulator.view import Button, Divider, Markdown, Picture, Select, SelectOption
from tests.integration.simulator.discord.bot import Rest, form
from tests.support.narrow import require_type

MESSAGES = "/channels/4001/messages"


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
    picture = require_type(seen.elements[3], Picture)
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
