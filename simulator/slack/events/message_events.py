"""What happens to messages, told as the platform's events."""

from simulator.slack.events.payloads import Payload
from simulator.slack.shapes import message_form
from simulator.slack.world import Channel, Message, Workspace

_SUBSCRIPTION = {"channel": "message.channels", "group": "message.groups", "im": "message.im", "mpim": "message.mpim"}


def subscription_of(channel: Channel) -> str:
    """The name under which an app subscribes to this channel's messages."""
    return _SUBSCRIPTION[channel.kind]


def is_bot_in(workspace: Workspace, channel: Channel) -> bool:
    """Whether the app hears of this channel at all."""
    return workspace.bot.user_id in channel.members


def tell_posted(workspace: Workspace, message: Message) -> None:
    """A new message; an ephemeral one is told to nobody."""
    channel = workspace.channels[message.channel_id]
    if message.visible_to is None and is_bot_in(workspace, channel):
        workspace.emit(subscription_of(channel), posted_event(workspace, channel, message))


def posted_event(workspace: Workspace, channel: Channel, message: Message) -> Payload:
    """The `message` event of a new message."""
    event = message_form(workspace, message, has_metadata=True)
    event |= {"channel": channel.channel_id, "event_ts": message.ts, "channel_type": channel.kind}
    return event


def tell_changed(workspace: Workspace, message: Message, previous: Payload) -> None:
    """An edited message; `previous` is its form before the edit."""
    channel = workspace.channels[message.channel_id]
    if message.visible_to is not None or not is_bot_in(workspace, channel):
        return
    ts = workspace.new_ts()
    workspace.emit(
        subscription_of(channel),
        {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "channel": channel.channel_id,
            "channel_type": channel.kind,
            "message": message_form(workspace, message, has_metadata=True),
            "previous_message": previous,
            "ts": ts,
            "event_ts": ts,
        },
    )


def tell_deleted(workspace: Workspace, message: Message, previous: Payload) -> None:
    """A deleted message. Of a thread's root the platform tells a change to a tombstone."""
    if message.is_tombstone:
        tell_changed(workspace, message, previous)
        return
    channel = workspace.channels[message.channel_id]
    if message.visible_to is not None or not is_bot_in(workspace, channel):
        return
    ts = workspace.new_ts()
    workspace.emit(
        subscription_of(channel),
        {
            "type": "message",
            "subtype": "message_deleted",
            "hidden": True,
            "channel": channel.channel_id,
            "channel_type": channel.kind,
            "deleted_ts": message.ts,
            "previous_message": previous,
            "ts": ts,
            "event_ts": ts,
        },
    )


def tell_reaction(workspace: Workspace, message: Message, *, user_id: str, name: str, is_removed: bool) -> None:
    """A reaction that came or went."""
    channel = workspace.channels[message.channel_id]
    if not is_bot_in(workspace, channel):
        return
    kind = "reaction_removed" if is_removed else "reaction_added"
    workspace.emit(
        kind,
        {
            "type": kind,
            "user": user_id,
            "reaction": name,
            "item": {"type": "message", "channel": channel.channel_id, "ts": message.ts},
            "item_user": message.user_id,
            "event_ts": workspace.new_ts(),
        },
    )
