"""Where people talk under load: so many workspaces of a simulated Slack, so many servers of a simulated Discord."""

from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from yarl import URL

from simulator.discord.server import DiscordSimulator
from simulator.slack.people.interactions import BusyPeople
from simulator.slack.server import SlackSimulator

PERSON = "alice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A channel of a workspace or server. Looked up once: a look at all that was said costs more the more there is."""

    people: BusyPeople | DiscordSimulator
    bot_name: str
    workspace_id: str
    channel_id: str

    async def mention(self, words: str) -> str:
        """The message's id."""
        return await self.say(f"@{self.bot_name} {words}")

    async def say(self, words: str, *, thread_id: str | None = None) -> str:
        """The message's id."""
        return await self.people.say(PERSON, self.channel_id, words, thread_id=thread_id)


def slack_places(slack: SlackSimulator, workspaces: int) -> tuple[Place, ...]:
    """One channel of each. The workspaces are made, and have not installed the bot."""
    others = [
        slack.add_workspace(f"workspace{number}", bot_token=f"xoxb-load-{number}") for number in range(1, workspaces)
    ]
    return tuple(
        Place(
            people=people,
            bot_name=people.workspace.bot.name,
            workspace_id=people.workspace.team_id,
            channel_id=people.workspace.channel_names["general"].channel_id,
        )
        for people in (slack, *others)
    )


def slack_channels(slack: SlackSimulator, names: Sequence[str]) -> tuple[Place, ...]:
    """The channels of the first workspace, which has not installed the bot."""
    workspace = slack.workspace
    return tuple(
        Place(
            people=slack,
            bot_name=workspace.bot.name,
            workspace_id=workspace.team_id,
            channel_id=workspace.channel_names[name].channel_id,
        )
        for name in names
    )


def discord_places(discord: DiscordSimulator, servers: int) -> tuple[Place, ...]:
    """One channel of each. The servers are made, with the bot in them."""
    for number in range(1, servers):
        discord.add_guild(f"server{number}", people=(PERSON,))
    return tuple(
        Place(
            people=discord,
            bot_name=discord.world.bot.name,
            workspace_id=channel.guild_id,
            channel_id=channel.channel_id,
        )
        for channel in discord.world.channels.values()
        if channel.guild_id
    )


async def install(program_url: URL, places: Sequence[Place]) -> None:
    """Each workspace installs the bot as its administrator does: to the program's page, to Slack's, and back."""
    for place in places:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            begin = program_url / "slack/install"
            async with browser.get(begin, allow_redirects=False) as sent:
                page = URL(sent.headers["Location"]).update_query(team=place.workspace_id)
            async with browser.get(page) as end:
                assert end.status == 200, await end.text()
