"""Interactions: told to the bot through the gateway, valid for three seconds, their token for fifteen minutes."""

import asyncio
import secrets
import time

from simulator.discord.gateway.events import tell_interaction
from simulator.discord.json_reading import Json, snowflake
from simulator.discord.payloads import ALL_PERMISSIONS, channel_json, member_json, message_json, user_json
from simulator.discord.rules.permissions import bot_permissions
from simulator.discord.world import Channel, Interaction, Message, User, World

COMMAND, COMPONENT, AUTOCOMPLETE, MODAL_SUBMIT = 2, 3, 4, 5
_INTERACTIONS_KEPT = 2000


def start_interaction(
    world: World,
    kind: int,
    user: User,
    channel: Channel,
    payload: Json,
    *,
    source: Message | None = None,
    opened_by: Interaction | None = None,
) -> Interaction:
    interaction = Interaction(
        interaction_id=snowflake(),
        token=secrets.token_urlsafe(48),
        kind=kind,
        user=user,
        channel_id=channel.channel_id,
        created_at=time.time(),
        answered=asyncio.get_running_loop().create_future(),
        source=source,
        opened_by=opened_by,
    )
    if world.faults.take("INTERACTION_CREATE", "expire_trigger") is not None:
        interaction.created_at -= world.settings.token_seconds + 1
    world.interactions[interaction.token] = interaction
    while len(world.interactions) > _INTERACTIONS_KEPT:
        del world.interactions[next(iter(world.interactions))]
    tell_interaction(world, _interaction_json(world, interaction, channel, payload))
    return interaction


async def wait_for_answer(world: World, interaction: Interaction) -> None:
    """Raises TimeoutError where the bot has not called back in time."""
    async with asyncio.timeout(world.settings.answer_seconds):
        await asyncio.shield(interaction.answered)


def is_answerable(world: World, interaction: Interaction) -> bool:
    return time.time() - interaction.created_at < world.settings.answer_seconds


def is_token_alive(world: World, interaction: Interaction) -> bool:
    return time.time() - interaction.created_at < world.settings.token_seconds


def metadata(world: World, interaction: Interaction) -> Json:
    """What a message tells of the interaction that it belongs to."""
    body: Json = {
        "id": interaction.interaction_id,
        "type": interaction.kind,
        "user": user_json(interaction.user),
        "authorizing_integration_owners": {"0": world.channels[interaction.channel_id].guild_id or "0"},
    }
    if interaction.kind == COMPONENT and interaction.source is not None:
        body["interacted_message_id"] = interaction.source.message_id
    if interaction.opened_by is not None:
        body["triggering_interaction_metadata"] = metadata(world, interaction.opened_by)
    return body


def _interaction_json(world: World, interaction: Interaction, channel: Channel, payload: Json) -> Json:
    guild = world.guild_of(channel)
    body: Json = {
        "id": interaction.interaction_id,
        "application_id": world.bot.user_id,
        "type": interaction.kind,
        "data": payload,
        "token": interaction.token,
        "version": 1,
        "channel_id": channel.channel_id,
        "channel": {**channel_json(world, channel), "permissions": ALL_PERMISSIONS},
        "app_permissions": str(bot_permissions(world, channel)),
        "locale": world.settings.locale,
        "entitlements": [],
        "entitlement_sku_ids": [],
        "authorizing_integration_owners": {"0": channel.guild_id or "0"},
        "context": 1 if guild is None else 0,
        "attachment_size_limit": world.settings.file_bytes_max,
    }
    if guild is None:
        body["user"] = user_json(interaction.user)
    else:
        body["guild_id"] = guild.guild_id
        body["guild"] = {"id": guild.guild_id, "locale": "en-US", "features": []}
        body["guild_locale"] = "en-US"
        member = member_json(guild, interaction.user)
        body["member"] = {**member, "permissions": ALL_PERMISSIONS}
    if not world.settings.names_interaction_channels:
        del body["channel"]
    if interaction.source is not None:
        body["message"] = message_json(world, interaction.source)
    return body
