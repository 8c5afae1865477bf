"""Application commands: what Discord takes, and what it refuses."""

import pytest

from core.tasks import spawn
from simulator.discord.json_reading import Json
from tests.integration.simulator.discord.bot import Rest
from tests.integration.simulator.discord.socket import opened

COMMANDS = "/applications/1001/commands"
GUILD = "/applications/1001/guilds/3001/commands"


def command(name: str = "stop", **more: object) -> Json:
    return {"name": name, "description": "Stops it", "type": 1, **more}


def option(name: str = "text", kind: int = 3, **more: object) -> Json:
    return {"name": name, "description": "A text", "type": kind, **more}


async def test_commands_are_made_read_changed_and_removed(rest: Rest) -> None:
    status, made = await rest("POST", COMMANDS, command())
    assert status == 201
    status, again = await rest("POST", COMMANDS, command(description="Ends it"))
    assert (status, again["id"], again["description"]) == (200, made["id"], "Ends it")
    path = f"{COMMANDS}/{made['id']}"
    assert (await rest("GET", path))[1]["name"] == "stop"
    assert (await rest("PATCH", path, {"description": "Third"}))[1]["description"] == "Third"
    assert (await rest("PATCH", path, {"name": "Not This"}))[1]["code"] == 50035
    assert (await rest("DELETE", path))[0] == 204
    assert (await rest("GET", path))[1]["code"] == 10063
    assert await rest("GET", COMMANDS) == (200, [])


async def test_a_list_replaces_the_one_before_and_keeps_ids(rest: Rest) -> None:
    _, first = await rest("PUT", COMMANDS, [command("run"), command("stop")])
    _, second = await rest("PUT", COMMANDS, [command("stop"), command("files")])
    assert [item["name"] for item in second] == ["stop", "files"]
    assert second[0]["id"] == first[1]["id"]
    _, body = await rest("PUT", COMMANDS, [command("good"), command("BAD")])
    assert body["errors"]["1"]["name"]["_errors"][0]["code"] == "APPLICATION_COMMAND_INVALID_NAME"
    assert len((await rest("GET", COMMANDS))[1]) == 2
    assert (await rest("PUT", COMMANDS, command()))[1]["code"] == 50035
    assert (await rest("PUT", COMMANDS, [command(), command()]))[1]["code"] == 50035
    many = [command(f"c{n}") for n in range(101)]
    assert (await rest("PUT", COMMANDS, many))[1]["code"] == 30032


async def test_commands_of_the_guild_are_apart(rest: Rest) -> None:
    _, (made,) = await rest("PUT", GUILD, [command()])
    assert made["guild_id"] == "3001"
    assert (await rest("GET", COMMANDS))[1] == []
    assert (await rest("GET", "/applications/7/commands"))[1]["code"] == 10002
    assert (await rest("GET", "/applications/1001/guilds/7/commands"))[1]["code"] == 10004


@pytest.mark.parametrize(
    "body",
    [
        command(""),
        command("x" * 33),
        command("two words"),
        command("Upper"),
        {"name": "x"},
        command(description=""),
        command(description="x" * 101),
        command(type=9),
        command(options=[option(str(n)) for n in range(26)]),
        command(options=[option("a"), option("a")]),
        command(options=[option("a"), option("b", required=True)]),
        command(options=[option(kind=12)]),
        command(options=[option("Bad Name")]),
        command(options=[option("sub", 1), option("text")]),
        command(options=[option("sub", 1, options=[option("inner", 1)])]),
        command(options=[option("group", 2, options=[option("inner", 2)])]),
        command(options=[option(choices=[{"name": "x", "value": "x" * 101}])]),
        command(options=[option(choices=[{"name": str(n), "value": "x"} for n in range(26)])]),
        command(options=[option(kind=11, choices=[{"name": "x", "value": "x"}])]),
        command(options=[option(f"o{n}", choices=[{"name": "n" * 100, "value": "v" * 100}] * 25) for n in range(2)]),
        command(type=3, description="a menu has none"),
        command(name_localizations={"xx": "name"}),
        command(name_localizations={"de": "Zwei Worte"}),
        command(description_localizations={"de": "x" * 101}),
        command(options=[option("a", name_localizations={"de": "b"}), option("b")]),
    ],
)
async def test_a_command_that_discord_refuses(rest: Rest, body: Json) -> None:
    status, answer = await rest("POST", COMMANDS, body)
    assert (status, answer["code"]) == (400, 50035)


async def test_translations_are_listed_on_request_and_drawn(rest: Rest) -> None:
    inner = option(name_localizations={"de": "wort"})
    await rest("PUT", COMMANDS, [command(name_localizations={"de": "halt"}, options=[inner])])
    (bare,) = (await rest("GET", COMMANDS))[1]
    assert "name_localizations" not in str(bare)
    (whole,) = (await rest("GET", f"{COMMANDS}?with_localizations=true"))[1]
    assert whole["options"][0]["name_localizations"] == {"de": "wort"}
    rest.simulator.settings.locale = "de"
    assert [one.name for one in rest.simulator.view().commands] == ["halt"]


async def test_a_command_for_servers_alone_is_not_called_in_private(rest: Rest) -> None:
    for more in ({"contexts": [0]}, {"dm_permission": False}):
        await rest("PUT", COMMANDS, [command(**more)])
        with pytest.raises(ValueError, match="server alone"):
            await rest.simulator.command("alice", "5001", "stop", {})


async def test_options_are_typed(rest: Rest) -> None:
    options = [
        option("count", 4),
        option("share", 10),
        option("loud", 5),
        option("who", 6),
        option("mode", choices=[{"name": "Fast", "value": "f"}]),
        option("short", max_length=3),
    ]
    await rest("PUT", COMMANDS, [command(options=options)])
    for name, value in (("count", "many"), ("who", "carol"), ("mode", "Slow"), ("short", "long")):
        with pytest.raises(ValueError, match=name if name != "who" else "carol"):
            await rest.simulator.command("alice", "4001", "stop", {name: value})
    good = {"count": "3", "share": "0.5", "loud": "true", "who": "@bob", "mode": "Fast"}
    async with opened(rest.simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        calling = spawn(rest.simulator.command("alice", "4001", "stop", good), name="a person calls")
        told = await socket.event("INTERACTION_CREATE")
        values = {item["name"]: item["value"] for item in told["data"]["options"]}
        assert values == {"count": 3, "share": 0.5, "loud": True, "who": "2002", "mode": "f"}
        assert told["data"]["resolved"]["users"]["2002"]["username"] == "bob"
        path = f"/interactions/{told['id']}/{told['token']}/callback"
        answer = {"type": 4, "data": {"content": "done"}}
        assert (await rest("POST", path, answer, token=None))[0] == 204
        assert await calling == told["id"]
