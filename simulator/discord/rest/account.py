"""Who the bot is, and where the gateway is."""

from simulator.discord.gateway.guild_payloads import application_json, guild_json, roles_json
from simulator.discord.json_reading import Json
from simulator.discord.payloads import channel_json, member_json, user_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import CANNOT_MESSAGE_USER, UNKNOWN_GUILD, UNKNOWN_MEMBER, UNKNOWN_USER, Refused
from simulator.discord.world import Guild, World


def me(world: World, call: Call) -> Reply:
    return Reply(body={**user_json(world.bot), "verified": True, "mfa_enabled": True, "locale": "en-US"})


def application(world: World, call: Call) -> Reply:
    return Reply(body=application_json(world))


def user(world: World, call: Call) -> Reply:
    found = world.user(call.arguments["user"])
    if found is None:
        raise Refused(UNKNOWN_USER)
    return Reply(body=user_json(found))


def gateway(world: World, call: Call) -> Reply:
    return Reply(body={"url": world.gateway_url})


def gateway_for_bots(world: World, call: Call) -> Reply:
    limit: Json = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
    shards = world.settings.shards
    return Reply(body={"url": world.gateway_url, "shards": shards, "session_start_limit": limit})


def guild(world: World, call: Call) -> Reply:
    return Reply(body=guild_json(world, _guild(world, call)))


def guilds(world: World, call: Call) -> Reply:
    return Reply(body=[_membership(world, found) for found in world.guilds.values()])


def _membership(world: World, guild: Guild) -> Json:
    return {
        "id": guild.guild_id,
        "name": guild.name,
        "icon": None,
        "banner": None,
        "owner": False,
        "permissions": str(world.settings.bot_permissions),
        "features": [],
    }


def guild_channels(world: World, call: Call) -> Reply:
    guild_id = _guild(world, call).guild_id
    everything = world.channels.values()
    own = [one for one in everything if one.guild_id == guild_id and not one.is_thread]
    return Reply(body=[channel_json(world, channel) for channel in own])


def guild_roles(world: World, call: Call) -> Reply:
    return Reply(body=roles_json(world, _guild(world, call)))


def guild_member(world: World, call: Call) -> Reply:
    found_guild = _guild(world, call)
    members = (world.bot, *found_guild.people.values())
    found = next((one for one in members if one.user_id == call.arguments["user"]), None)
    if found is None:
        raise Refused(UNKNOWN_MEMBER)
    return Reply(body=member_json(found_guild, found))


def open_direct_channel(world: World, call: Call) -> Reply:
    person = world.user(str(call.fields().get("recipient_id")))
    if person is None:
        raise Refused(UNKNOWN_USER)
    for channel in world.channels.values():
        if channel.recipient is person:
            return Reply(body=channel_json(world, channel))
    raise Refused(CANNOT_MESSAGE_USER)


def _guild(world: World, call: Call) -> Guild:
    found = world.guilds.get(call.arguments["guild"])
    if found is None:
        raise Refused(UNKNOWN_GUILD)
    return found
