"""reactions.add, remove and get."""

from simulator.slack.emoji import is_emoji
from simulator.slack.events import message_events
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.shapes import message_form
from simulator.slack.web_api.call import Call, Method
from simulator.slack.world import Message

_KINDS_MAX = 50
_BY_ONE_USER_MAX = 23


def _target(call: Call) -> Message:
    channel = call.channel()
    if call.workspace.bot.user_id not in channel.members and channel.kind != "channel":
        raise Refused("channel_not_found")
    if channel.is_archived:
        raise Refused("is_archived")
    return call.message(channel, "timestamp")


def _name(call: Call) -> str:
    name = call.text("name").strip(":")
    if not is_emoji(name):
        raise Refused("invalid_name")
    return name


def add_reaction(call: Call) -> Payload:
    name, message, bot_id = _name(call), _target(call), call.workspace.bot.user_id
    users = message.reactions.get(name)
    if users is not None and bot_id in users:
        raise Refused("already_reacted")
    if users is None and len(message.reactions) >= _KINDS_MAX:
        raise Refused("too_many_emoji")
    if sum(bot_id in kept for kept in message.reactions.values()) >= _BY_ONE_USER_MAX:
        raise Refused("too_many_reactions")
    message.reactions.setdefault(name, []).append(bot_id)
    call.workspace.changed(message)
    message_events.tell_reaction(call.workspace, message, user_id=bot_id, name=name, is_removed=False)
    return {}


def remove_reaction(call: Call) -> Payload:
    name, message, bot_id = _name(call), _target(call), call.workspace.bot.user_id
    users = message.reactions.get(name, [])
    if bot_id not in users:
        raise Refused("no_reaction")
    users.remove(bot_id)
    if not users:
        del message.reactions[name]
    call.workspace.changed(message)
    message_events.tell_reaction(call.workspace, message, user_id=bot_id, name=name, is_removed=True)
    return {}


def get_reactions(call: Call) -> Payload:
    message = _target(call)
    form = message_form(call.workspace, message, is_listed=True)
    return {"type": "message", "channel": message.channel_id, "message": form}


METHODS = {
    "reactions.add": Method(
        run=add_reaction, tier="t3", scopes=("reactions:write",), required=("channel", "name", "timestamp")
    ),
    "reactions.get": Method(
        run=get_reactions, tier="t3", scopes=("reactions:read",), required=("channel", "timestamp")
    ),
    "reactions.remove": Method(
        run=remove_reaction, tier="t2", scopes=("reactions:write",), required=("channel", "name", "timestamp")
    ),
}
