"""Several servers with the same bot: what belongs to one is not found in another."""

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Rest


def channel_in(simulator: DiscordSimulator, guild_id: str) -> str:
    return next(one.channel_id for one in simulator.world.channels.values() if one.guild_id == guild_id)


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
