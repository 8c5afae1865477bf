"""What the simulated Discord and the bot say to each other, by the types of the npm package discord-api-types."""

from typing import Any, cast

import aiohttp
import pytest

from simulator.administration import Archive, Lock, OpenThread, Permissions, Purge, administer
from simulator.discord.rest.routes import find_route
from simulator.discord.server import DiscordSimulator
from simulator.discord.world import ANNOUNCEMENTS, FORUM
from simulator.view import SentFile
from tests.chaos.harness import Stage
from tests.integration.simulator.witnesses.published_types import (
    PublishedTypes,
    build_schemas,
    install_packages,
)
from tests.integration.simulator.witnesses.recording_proxy import RecordingProxy
from tests.integration.simulator.witnesses.stage import play_stories, recorded

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EVENTS = [
    "READY",
    "GUILD_CREATE",
    "CHANNEL_CREATE",
    "CHANNEL_UPDATE",
    "CHANNEL_DELETE",
    "THREAD_CREATE",
    "THREAD_UPDATE",
    "THREAD_DELETE",
    "THREAD_MEMBER_UPDATE",
    "THREAD_MEMBERS_UPDATE",
    "MESSAGE_CREATE",
    "MESSAGE_UPDATE",
    "MESSAGE_DELETE",
    "MESSAGE_DELETE_BULK",
    "MESSAGE_REACTION_ADD",
    "MESSAGE_REACTION_REMOVE",
    "INTERACTION_CREATE",
    "GUILD_MEMBERS_CHUNK",
    "GUILD_MEMBER_ADD",
    "GUILD_MEMBER_UPDATE",
    "TYPING_START",
]
_MESSAGE = "/channels/{channel}/messages/{message}"
_WEBHOOK = "/webhooks/{application}/{token}"
_COMMANDS = "/applications/{application}/commands"
ROUTES = {
    # a call: the types of its body and of its answer
    "GET /gateway": ("", "RESTGetAPIGatewayResult"),
    "GET /gateway/bot": ("", "RESTGetAPIGatewayBotResult"),
    "GET /users/@me": ("", "RESTGetAPICurrentUserResult"),
    "GET /users/@me/guilds": ("", "RESTGetAPICurrentUserGuildsResult"),
    "POST /users/@me/channels": (
        "RESTPostAPICurrentUserCreateDMChannelJSONBody",
        "RESTPostAPICurrentUserCreateDMChannelResult",
    ),
    "GET /users/{user}": ("", "RESTGetAPIUserResult"),
    "GET /applications/@me": ("", "RESTGetCurrentApplicationResult"),
    "GET /oauth2/applications/@me": ("", "RESTGetAPIOAuth2CurrentApplicationResult"),
    "GET /guilds/{guild}": ("", "RESTGetAPIGuildResult"),
    "GET /guilds/{guild}/channels": ("", "RESTGetAPIGuildChannelsResult"),
    "GET /guilds/{guild}/roles": ("", "RESTGetAPIGuildRolesResult"),
    "GET /guilds/{guild}/members/{user}": ("", "RESTGetAPIGuildMemberResult"),
    "GET /guilds/{guild}/threads/active": ("", "RESTGetAPIGuildThreadsResult"),
    "GET /channels/{channel}": ("", "RESTGetAPIChannelResult"),
    "PATCH /channels/{channel}": ("RESTPatchAPIChannelJSONBody", "RESTPatchAPIChannelResult"),
    "GET /channels/{channel}/messages": ("", "RESTGetAPIChannelMessagesResult"),
    "POST /channels/{channel}/messages": (
        "RESTPostAPIChannelMessageJSONBody",
        "RESTPostAPIChannelMessageResult",
    ),
    f"GET {_MESSAGE}": ("", "RESTGetAPIChannelMessageResult"),
    f"PATCH {_MESSAGE}": ("RESTPatchAPIChannelMessageJSONBody", "RESTPatchAPIChannelMessageResult"),
    f"GET {_MESSAGE}/reactions/{{emoji}}": ("", "RESTGetAPIChannelMessageReactionUsersResult"),
    f"POST {_MESSAGE}/threads": (
        "RESTPostAPIChannelMessagesThreadsJSONBody",
        "RESTPostAPIChannelMessagesThreadsResult",
    ),
    "POST /channels/{channel}/threads": (
        "RESTPostAPIChannelThreadsJSONBody",
        "RESTPostAPIChannelThreadsResult",
    ),
    "GET /channels/{channel}/threads/archived/public": (
        "",
        "RESTGetAPIChannelThreadsArchivedPublicResult",
    ),
    "GET /channels/{channel}/thread-members/{user}": ("", "RESTGetAPIChannelThreadMemberResult"),
    f"GET {_COMMANDS}": ("", "RESTGetAPIApplicationCommandsResult"),
    f"PUT {_COMMANDS}": (
        "RESTPutAPIApplicationCommandsJSONBody",
        "RESTPutAPIApplicationCommandsResult",
    ),
    "POST /interactions/{interaction}/{token}/callback": (
        "RESTPostAPIInteractionCallbackJSONBody",
        "RESTPostAPIInteractionCallbackWithResponseResult",
    ),
    f"POST {_WEBHOOK}": (
        "RESTPostAPIInteractionFollowupJSONBody",
        "RESTPostAPIInteractionFollowupResult",
    ),
    f"GET {_WEBHOOK}/messages/{{message}}": ("", "RESTGetAPIInteractionFollowupResult"),
    f"PATCH {_WEBHOOK}/messages/{{message}}": (
        "RESTPatchAPIInteractionFollowupJSONBody",
        "RESTPatchAPIInteractionFollowupResult",
    ),
}
REFUSAL = "a refusal"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> PublishedTypes:
    types = {name: f"T.Gateway{_in_capitals(name)}DispatchData" for name in EVENTS}
    for call, (body, answer) in ROUTES.items():
        types |= {f"{call}: body": f"T.{body}"} if body else {}
        types[f"{call}: answer"] = f"T.{answer}"
    folder = install_packages(tmp_path_factory.mktemp("types"))
    return build_schemas(folder, "discord-api-types/v10", {**types, REFUSAL: "T.RESTError"})


def _in_capitals(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


async def test_discord_and_the_bot_say_what_the_types_allow(published: PublishedTypes) -> None:
    async with recorded("discord") as (stage, proxy):
        await play_stories(stage)
        await act_as_people(stage)
        await act_as_moderators(stage)
        await read_everything(stage, proxy)
        check(published, proxy)
    assert {"MESSAGE_CREATE", "INTERACTION_CREATE", "THREAD_CREATE"} <= published.seen.keys()
    assert published.report() == ""


def check(published: PublishedTypes, proxy: RecordingProxy) -> None:
    for frame in cast("list[dict[str, Any]]", proxy.frames_in):
        if frame["op"] == 0 and frame["t"] != "RESUMED":
            published.check(frame["t"], frame["d"])
    for one in proxy.exchanges:
        if not one.path.startswith("/api/v10"):
            continue
        route, _ = find_route(one.method, one.path.removeprefix("/api/v10"))
        call = f"{one.method} {route.template}"
        if one.body not in (None, {}):
            published.check(f"{call}: body", without_null_labels(one.body))
        if one.status >= 400:
            published.check(REFUSAL, one.answer)
        elif one.answer is not None:
            published.check(f"{call}: answer", one.answer)


def without_null_labels(value: object) -> object:
    """discord.py sends the label of a text input as null if a Label component holds the text. Discord takes it."""
    if isinstance(value, list):
        return [without_null_labels(one) for one in value]
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if name != "label" or one is not None}
        return {name: without_null_labels(one) for name, one in kept.items()}
    return value


async def act_as_people(stage: Stage) -> None:
    discord, channel = stage.platform, stage.channel_id
    assert isinstance(discord, DiscordSimulator)
    said = await stage.say("Hello", files=(SentFile(name="a.bin", content=b"a"),))
    await stage.until(lambda: stage.shows("Hi there."), "it answers")
    for place in (None, said):
        other = await discord.say("bob", channel, "beside @alice :wave:", thread_id=place)
        await discord.say("alice", channel, "so", thread_id=place, reply_to=other)
        await discord.react("alice", channel, other, "👀")
        await discord.react("alice", channel, other, "👀", is_removed=True)
        await discord.edit("bob", channel, other, f"beside @{stage.view().bot_name}")
        discord.forward("alice", channel, place, channel, other)
        embed = {"title": "Down", "description": "x", "fields": [{"name": "a", "value": "b"}]}
        await discord.post_as_app(channel, "alert", embeds=[embed], thread_id=place)
        await discord.post_poll("bob", channel, "Which?", {"A": 1, "B": 0}, thread_id=place)
        await discord.delete("bob", channel, other)
    direct = next(one.channel_id for one in stage.view().channels if one.is_direct)
    await discord.say("alice", direct, "Hello")
    await stage.settled(len(stage.runs()))
    await call_commands(stage, said)


async def call_commands(stage: Stage, thread_id: str) -> None:
    discord, channel = stage.platform, stage.channel_id
    assert isinstance(discord, DiscordSimulator)
    for command in stage.view().commands:
        if not any(option.is_required for option in command.options):
            await discord.command("alice", channel, command.name, {}, thread_id=thread_id)
    await discord.suggest("alice", channel, "agent use", {}, "name", thread_id=thread_id)
    message_id = await discord.say("bob", channel, "numbers")
    await discord.use_shortcut("alice", "Ask Threadhand", channel, message_id)
    await stage.until(lambda: stage.view().forms, "the form opens")
    form = stage.view().forms[0]
    values = {field.field_id: "Hello" for field in form.fields[:1]}
    await discord.submit("alice", form.form_id, values)
    await stage.until(lambda: stage.is_settled(), "it answers")


async def act_as_moderators(stage: Stage) -> None:
    discord, channel = stage.platform, stage.channel_id
    assert isinstance(discord, DiscordSimulator)
    for kind in (ANNOUNCEMENTS, FORUM):
        made = discord.add_channel(f"kind-{kind}", kind, tags=("new",) if kind == FORUM else ())
        post = await discord.open_thread("bob", made.channel_id, "a post")
        await discord.say("bob", made.channel_id, "first", thread_id=post)
        discord.delete_channel(made.channel_id)
    opening = OpenThread(person="bob", channel_id=channel, name="t")
    thread = await administer(discord, opening)
    place = {"channel_id": channel, "thread_id": thread}
    await administer(discord, Archive(**place))
    await administer(discord, Archive(**place, is_archived=False))
    await administer(discord, Lock(**place, is_archived=True))
    messages = [await discord.say("bob", channel, "x") for _ in range(3)]
    await administer(discord, Purge(channel_id=channel, message_ids=messages))
    await administer(discord, Permissions(channel_id=channel, denied=["SEND_MESSAGES"]))
    discord.add_guild("second", people=("alice",))
    discord.delete_channel(thread)


async def read_everything(stage: Stage, proxy: RecordingProxy) -> None:
    """Makes each call that only reads, also those that the bot makes rarely."""
    discord = stage.platform
    assert isinstance(discord, DiscordSimulator)
    world, bot = discord.world, discord.world.bot.user_id
    found = {
        "application": bot,
        "user": bot,
        "guild": world.home.guild_id,
        "channel": stage.channel_id,
        "message": stage.thread_id,
        "emoji": "%E2%9C%85",
    }
    thread = {**found, "channel": min(stage.threads())}
    url, headers = proxy.url(discord.api_url), {"Authorization": f"Bot {discord.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for call in ROUTES:
            method, _, path = call.partition(" ")
            if method == "GET" and "{token}" not in path:
                place = thread if "thread-members" in path else found
                async with session.get(url + path.format(**place)) as got:
                    assert got.status in (200, 403), (path, await got.text())
