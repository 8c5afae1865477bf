"""Messages of a channel: create, read, edit, delete."""

import time

from simulator.discord.gateway.events import tell_bulk_deleted, tell_channel, tell_deleted, tell_message
from simulator.discord.json_reading import Json, is_snowflake, list_of
from simulator.discord.payloads import blank, is_readable_without_intent, message_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import (
    ARCHIVED,
    MISSING_PERMISSIONS,
    NOT_FOR_TEXT,
    NOT_YOURS,
    SYSTEM_MESSAGE,
    UNKNOWN_MESSAGE,
    Refused,
    invalid,
)
from simulator.discord.rules.message_drafts import Scope, draft, revise
from simulator.discord.rules.permissions import (
    MANAGE_MESSAGES,
    READ_HISTORY,
    VIEW,
    bot_permissions,
    refuse_locked,
    require,
    require_writing,
)
from simulator.discord.world import FORUM, Channel, Message, World

_NONCES_KEPT = 1000
_USER_KINDS = (0, 19, 20, 23)


def create_message(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    if channel.kind == FORUM:
        raise Refused(NOT_FOR_TEXT)
    require_writing(world, channel, has_files=bool(call.uploads))
    body = call.fields()
    same = _same_nonce(world, body)
    if same is not None:
        return Reply(body=message_json(world, same))
    message = draft(world, call, body, Scope(channel_id=channel.channel_id))
    unarchive(world, channel)
    world.add(message)
    if message.nonce is not None:
        world.nonces[str(message.nonce)] = message
        while len(world.nonces) > _NONCES_KEPT:
            del world.nonces[next(iter(world.nonces))]
    tell_message(world, "MESSAGE_CREATE", message)
    return Reply(body=message_json(world, message))


def get_message(world: World, call: Call) -> Reply:
    require(world, world.channel(call.arguments["channel"]), READ_HISTORY)
    message = world.message(call.arguments["channel"], call.arguments["message"])
    return Reply(body=_readable(world, message))


def list_messages(world: World, call: Call) -> Reply:
    """Newest first. `after` answers the oldest that follow it, in that same order.

    Without Read Message History there are none (docs.discord.com, Get Channel Messages).
    """
    channel = world.channel(call.arguments["channel"])
    require(world, channel, VIEW)
    limit = call.number("limit", 50, 1, 100)
    for name in ("before", "after", "around"):
        if name in call.query and not is_snowflake(call.query[name]):
            message = f'Value "{call.query[name][:50]}" is not snowflake.'
            raise invalid((name,), "NUMBER_TYPE_COERCE", message)
    messages = [item for item in channel.messages.values() if item.visible_to is None]
    if not bot_permissions(world, channel) & READ_HISTORY:
        messages = []
    chosen = _chosen(messages, call, limit)
    return Reply(body=[_readable(world, message) for message in reversed(chosen)])


def edit_message(world: World, call: Call) -> Reply:
    message = world.message(call.arguments["channel"], call.arguments["message"])
    if message.author is not world.bot:
        raise Refused(NOT_YOURS)
    require(world, world.channels[message.channel_id], VIEW)
    refuse_archived(world, message)
    refuse_locked(world, world.channels[message.channel_id])
    revise(world, call, call.fields(), message)
    tell_message(world, "MESSAGE_UPDATE", message)
    return Reply(body=message_json(world, message))


def delete_message(world: World, call: Call) -> Reply:
    message = world.message(call.arguments["channel"], call.arguments["message"])
    if message.kind not in _USER_KINDS:
        raise Refused(SYSTEM_MESSAGE)
    channel = world.channels[message.channel_id]
    if message.author is not world.bot:
        if channel.recipient is not None:
            raise Refused(MISSING_PERMISSIONS)
        require(world, channel, MANAGE_MESSAGES)
    refuse_archived(world, message)
    remove(world, message)
    return Reply()


def bulk_delete(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    require(world, channel, MANAGE_MESSAGES)
    listed = list_of(call.fields(), "messages")
    if not 2 <= len(listed) <= 100:
        raise invalid(("messages",), "BASE_TYPE_BAD_LENGTH", "Must be between 2 and 100 in length.")
    if not all(str(message_id) in channel.messages for message_id in listed):
        raise Refused(UNKNOWN_MESSAGE)
    remove_all(world, channel, [str(message_id) for message_id in listed])
    return Reply()


def remove_all(world: World, channel: Channel, message_ids: list[str]) -> None:
    """Several messages at once, of which one event tells."""
    for message_id in message_ids:
        _take_away(world, channel.messages[message_id])
    tell_bulk_deleted(world, channel, message_ids)


def remove(world: World, message: Message) -> None:
    _take_away(world, message)
    tell_deleted(world, message)


def _take_away(world: World, message: Message) -> None:
    del world.channels[message.channel_id].messages[message.message_id]
    for attachment in message.attachments:
        world.attachments.pop(attachment.attachment_id, None)


def unarchive(world: World, channel: Channel) -> None:
    """A post wakes an archived thread. Who may write in a locked one is judged before."""
    if not channel.is_thread or not channel.is_archived:
        return
    channel.is_archived, channel.archived_at = False, time.time()
    tell_channel(world, "THREAD_UPDATE", channel)


def refuse_archived(world: World, message: Message) -> None:
    if world.channels[message.channel_id].is_archived:
        raise Refused(ARCHIVED)


def _readable(world: World, message: Message) -> Json:
    body = message_json(world, message)
    if world.settings.has_message_content_intent or is_readable_without_intent(world, message):
        return body
    return blank(body)


def _chosen(messages: list[Message], call: Call, limit: int) -> list[Message]:
    if "around" in call.query:
        pivot = int(call.query["around"])
        older = [item for item in messages if int(item.message_id) <= pivot]
        newer = [item for item in messages if int(item.message_id) > pivot]
        half = limit // 2
        return older[-(half + limit % 2) :] + newer[:half]
    if "after" in call.query:
        pivot = int(call.query["after"])
        return [item for item in messages if int(item.message_id) > pivot][:limit]
    if "before" in call.query:
        pivot = int(call.query["before"])
        messages = [item for item in messages if int(item.message_id) < pivot]
    return messages[-limit:]


def _same_nonce(world: World, body: Json) -> Message | None:
    """With `enforce_nonce`, a nonce of the past minutes names the message that it made."""
    nonce = body.get("nonce")
    if nonce is None or body.get("enforce_nonce") is not True:
        return None
    message = world.nonces.get(str(nonce))
    if message is None or message.sent_at + world.settings.nonce_seconds < time.time():
        return None
    return message
