"""Reactions, typing."""

import asyncio
import time
import unicodedata

from simulator.discord.gateway.events import tell_reaction, tell_typing
from simulator.discord.payloads import user_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import MISSING_PERMISSIONS, TOO_MANY_REACTIONS, UNKNOWN_EMOJI, UNKNOWN_USER, Refused
from simulator.discord.rest.messages import refuse_archived
from simulator.discord.rules.permissions import ADD_REACTIONS, MANAGE_MESSAGES, READ_HISTORY, require, require_writing
from simulator.discord.world import TYPING_SECONDS, Channel, Message, User, World

_REACTIONS_MAX = 20
_EMOJI_CHARACTERS_MAX = 16


def add_reaction(world: World, call: Call) -> Reply:
    message, emoji = _message(world, call), _emoji(call)
    # the first reaction with an emoji needs Add Reactions, every other one only the history
    is_new = emoji not in message.reactions
    require(world, _place(world, message), READ_HISTORY | (ADD_REACTIONS if is_new else 0))
    react(world, message, world.bot, emoji)
    return Reply()


def remove_reaction(world: World, call: Call) -> Reply:
    message, emoji = _message(world, call), _emoji(call)
    named = call.arguments.get("user", "@me")
    user = world.bot if named == "@me" else world.user(named)
    if user is None:
        raise Refused(UNKNOWN_USER)
    if user is not world.bot and world.channels[message.channel_id].recipient is not None:
        raise Refused(MISSING_PERMISSIONS)
    if user is not world.bot:
        require(world, _place(world, message), MANAGE_MESSAGES)
    unreact(world, message, user, emoji)
    return Reply()


def list_reactions(world: World, call: Call) -> Reply:
    message = _message(world, call)
    ids = message.reactions.get(_emoji(call), [])[: call.number("limit", 25, 1, 100)]
    users = [world.user(user_id) for user_id in ids]
    return Reply(body=[user_json(user) for user in users if user is not None])


def remove_all_reactions(world: World, call: Call) -> Reply:
    message = _message(world, call)
    require(world, _place(world, message), MANAGE_MESSAGES)
    for emoji, users in list(message.reactions.items()):
        for user in [user for user in map(world.user, users) if user is not None]:
            unreact(world, message, user, emoji)
    return Reply()


def type_in(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    require_writing(world, channel)
    # typing lasts ten seconds, or until the person has sent a message
    channel.typing_until[world.bot.user_id] = time.time() + TYPING_SECONDS
    asyncio.get_running_loop().call_later(TYPING_SECONDS + 0.1, world.touch)
    tell_typing(world, channel, world.bot)
    return Reply()


def react(world: World, message: Message, user: User, emoji: str) -> None:
    """A second reaction by the same person with the same emoji changes nothing."""
    if emoji not in message.reactions and len(message.reactions) >= _REACTIONS_MAX:
        raise Refused(TOO_MANY_REACTIONS)
    users = message.reactions.setdefault(emoji, [])
    if user.user_id not in users:
        users.append(user.user_id)
        tell_reaction(world, message, user, emoji, is_removed=False)


def unreact(world: World, message: Message, user: User, emoji: str) -> None:
    users = message.reactions.get(emoji, [])
    if user.user_id in users:
        users.remove(user.user_id)
        if not users:
            del message.reactions[emoji]
        tell_reaction(world, message, user, emoji, is_removed=True)


def is_emoji(text: str) -> bool:
    """A character that is drawn as an emoji: a symbol, a flag, a keycap; no letter and no word."""
    if not 0 < len(text) <= _EMOJI_CHARACTERS_MAX or text.isascii():
        return False
    return any(unicodedata.category(character) in ("So", "Sk", "Sm", "Me", "Po") for character in text) and not any(
        character.isalpha() for character in text
    )


def _emoji(call: Call) -> str:
    emoji = call.arguments["emoji"]
    if not is_emoji(emoji):
        raise Refused(UNKNOWN_EMOJI)
    return emoji


def _place(world: World, message: Message) -> Channel:
    return world.channels[message.channel_id]


def _message(world: World, call: Call) -> Message:
    message = world.message(call.arguments["channel"], call.arguments["message"])
    refuse_archived(world, message)
    return message
