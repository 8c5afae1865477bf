"""The payloads about the guild, the application and the start of a gateway session."""

from simulator.discord.json_reading import Json, timestamp
from simulator.discord.payloads import channel_json, member_json, user_json
from simulator.discord.rules.permissions import VIEW, bot_permissions
from simulator.discord.world import Guild, World


def roles_json(world: World, guild: Guild) -> list[Json]:
    """The role that everybody has, whose id is the guild's, and those that were made."""
    made = enumerate(guild.roles.items(), start=1)
    held = world.settings.bot_permissions
    return [
        _role_json(guild.guild_id, "@everyone", 0, held),
        *(_role_json(role_id, name, position, held) for position, (role_id, name) in made),
    ]


def _role_json(role_id: str, name: str, position: int, permissions: int) -> Json:
    return {
        "id": role_id,
        "name": name,
        "color": 0,
        "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        "hoist": False,
        "icon": None,
        "unicode_emoji": None,
        "position": position,
        "permissions": str(permissions),
        "managed": False,
        "mentionable": False,
        "flags": 0,
    }


def guild_json(world: World, guild: Guild) -> Json:
    """The guild without what only GUILD_CREATE carries."""
    return {
        "id": guild.guild_id,
        "name": guild.name,
        "icon": None,
        "splash": None,
        "discovery_splash": None,
        "owner_id": next(iter(guild.people.values()), world.bot).user_id,
        "afk_channel_id": None,
        "afk_timeout": 300,
        "verification_level": 0,
        "default_message_notifications": 0,
        "explicit_content_filter": 0,
        "roles": roles_json(world, guild),
        "emojis": [],
        "stickers": [],
        "features": [],
        "mfa_level": 0,
        "application_id": None,
        "system_channel_id": None,
        "system_channel_flags": 0,
        "rules_channel_id": None,
        "vanity_url_code": None,
        "description": None,
        "banner": None,
        "premium_tier": world.settings.guild_tier,
        "premium_subscription_count": 0,
        "preferred_locale": "en-US",
        "public_updates_channel_id": None,
        "safety_alerts_channel_id": None,
        "nsfw": False,
        "nsfw_level": 0,
        "premium_progress_bar_enabled": False,
        "hub_type": None,
        "incidents_data": None,
    }


def guild_create_json(world: World, guild: Guild) -> Json:
    channels = [one for one in world.channels.values() if one.guild_id == guild.guild_id]
    members = [world.bot, *guild.people.values()]
    hidden = world.settings.hidden_channels | {
        one.channel_id for one in channels if not bot_permissions(world, one) & VIEW
    }
    return {
        **guild_json(world, guild),
        "joined_at": timestamp(guild.created_at),
        "large": False,
        "unavailable": False,
        "member_count": len(members),
        "members": [member_json(guild, user) for user in members],
        "channels": [
            channel_json(world, channel)
            for channel in channels
            if not channel.is_thread and channel.channel_id not in hidden
        ],
        "threads": [
            channel_json(world, channel)
            for channel in channels
            if channel.is_thread and not channel.is_archived and channel.parent_id not in hidden
        ],
        "presences": [],
        "voice_states": [],
        "stage_instances": [],
        "guild_scheduled_events": [],
        "soundboard_sounds": [],
    }


def application_json(world: World) -> Json:
    owner = next(iter(world.people.values()), world.bot)
    return {
        "id": world.bot.user_id,
        "name": world.bot.name,
        "icon": None,
        "description": "",
        "rpc_origins": [],
        "bot_public": True,
        "bot_require_code_grant": False,
        "bot": user_json(world.bot),
        "verify_key": "0" * 64,
        "owner": user_json(owner),
        "team": None,
        "summary": "",
        **_flags_json(world),
        "interactions_endpoint_url": None,
        "role_connections_verification_url": None,
        "approximate_guild_count": len(world.guilds),
    }


def _flags_json(world: World) -> Json:
    flags = world.settings.application_flags
    return {"flags": flags, "flags_new": str(flags)}


def is_on(guild_id: str, shard: tuple[int, int]) -> bool:
    number, count = shard
    return (int(guild_id) >> 22) % count == number


def ready_json(world: World, session_id: str, shard: tuple[int, int]) -> Json:
    here = [guild_id for guild_id in world.guilds if is_on(guild_id, shard)]
    return {
        "v": 10,
        "user": {**user_json(world.bot), "verified": True, "mfa_enabled": True, "flags": 0},
        "user_settings": {},
        "session_id": session_id,
        "session_type": "normal",
        "resume_gateway_url": world.gateway_url,
        "guilds": [{"id": guild_id, "unavailable": True} for guild_id in here],
        "private_channels": [],
        "relationships": [],
        "presences": [],
        "guild_join_requests": [],
        "application": {"id": world.bot.user_id, **_flags_json(world)},
        "shard": list(shard),
        "_trace": [],
    }
