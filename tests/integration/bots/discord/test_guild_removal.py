"""A server that takes the bot away."""

from bots.discord.app import DiscordApp
from simulator.discord.world import Event
from tests.support.closing import close_after
from tests.support.waiting import until


async def test_a_server_that_takes_the_bot_away_is_told(discord, program) -> None:
    left: list[tuple[str, str]] = []

    async def leave(platform: str, workspace_id: str) -> None:
        left.append((platform, workspace_id))

    async with close_after(
        DiscordApp(
            token=discord.world.token,
            receive=program.receive,
            cursors=program,
            api_url=discord.api_url,
            on_uninstall=leave,
        )
    ) as app:
        await app.start()
        guild_id = discord.world.home.guild_id
        unavailable = {"id": guild_id, "unavailable": True}
        discord.world.publish(Event(name="GUILD_DELETE", payload=unavailable, intent=1))
        discord.world.publish(Event(name="GUILD_DELETE", payload={"id": guild_id}, intent=1))
        await until(lambda: left)
    assert left == [("discord", guild_id)]
