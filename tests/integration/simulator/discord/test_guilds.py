"""Several servers with the same bot: what belongs to one is not found in another."""

import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Rest
from tests.integration.simulator.discord.socket import opened


def channel_in(simulator: DiscordSimulator, guild_id: str) -> str:
    return next(one.channel_id for one in simulator.world.channels.values() if one.guild_id == guild_id)


async def test_each_server_is_told_with_its_own_channels_and_people(simulator: DiscordSimulator) -> None:
    other = simulator.add_guild("Other", people=("alice", "carol"))
    async with opened(simulator) as socket:
        ready = await socket.identify()
        assert [one["id"] for one in ready["guilds"]] == ["3001", other.guild_id]
        home, told = await socket.event("GUILD_CREATE"), await socket.event("GUILD_CREATE")
    assert (home["name"], told["name"]) == ("Simulated server", "Other")
    assert [one["name"] for one in home["channels"]] == ["general", "random"]
    assert [one["user"]["username"] for one in told["members"]] == ["threadhand", "alice", "carol"]
    assert {one["guild_id"] for one in told["channels"]} == {other.guild_id}
    assert not {one["id"] for one in told["channels"]} & {one["id"] for one in home["channels"]}


async def test_a_server_that_comes_later_is_told_to_who_is_connected(simulator: DiscordSimulator) -> None:
    async with opened(simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        simulator.add_guild("Later", people=("carol",))
        assert (await socket.event("GUILD_CREATE"))["name"] == "Later"


async def test_who_is_not_in_a_server_cannot_write_there(simulator: DiscordSimulator) -> None:
    other = simulator.add_guild("Other", people=("carol",))
    with pytest.raises(ValueError, match="no channel of bob"):
        await simulator.say("bob", channel_in(simulator, other.guild_id), "hello")


async def test_a_server_has_its_own_members_roles_and_threads(simulator: DiscordSimulator, rest: Rest) -> None:
    other = simulator.add_guild("Other", people=("carol",))
    carol = other.people["carol"].user_id
    simulator.world.home.roles["77"] = "helpers"
    assert (await rest("GET", f"/guilds/{other.guild_id}/members/{carol}"))[0] == 200
    assert (await rest("GET", f"/guilds/3001/members/{carol}"))[0] == 404
    assert (await rest("GET", f"/guilds/{other.guild_id}/members/2002"))[0] == 404
    roles = {one["id"] for one in (await rest("GET", f"/guilds/{other.guild_id}/roles"))[1]}
    assert roles == {other.guild_id}
    place = channel_in(simulator, other.guild_id)
    _, thread = await rest("POST", f"/channels/{place}/threads", {"name": "t", "type": 11})
    assert thread["guild_id"] == other.guild_id
    for guild_id, found in (("3001", []), (other.guild_id, [thread["id"]])):
        _, body = await rest("GET", f"/guilds/{guild_id}/threads/active")
        assert [one["id"] for one in body["threads"]] == found
    joined = await rest("PUT", f"/channels/{thread['id']}/thread-members/2002")
    assert joined[0] == 404, "bob is in the other server alone"
    assert (await rest("GET", "/guilds/3999"))[0] == 404


async def test_a_command_of_one_server_is_offered_in_no_other(simulator: DiscordSimulator, rest: Rest) -> None:
    other = simulator.add_guild("Other", people=("alice",))
    body = {"name": "here", "description": "x"}
    await rest("POST", f"/applications/1001/guilds/{other.guild_id}/commands", body)
    with pytest.raises(ValueError, match="no command"):
        await simulator.command("alice", channel_in(simulator, "3001"), "here", {})
