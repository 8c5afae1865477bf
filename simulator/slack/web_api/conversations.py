"""conversations.replies, history, info, open, list and members, and users.conversations."""

import re
from collections.abc import Iterable

from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.shapes import channel_form, message_form
from simulator.slack.web_api.call import Call, Method, missing_scope, paged
from simulator.slack.world import Channel, Message

_TIME = re.compile(r"\d{1,10}(\.\d{1,6})?")
_SCOPE_FAMILIES = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
_LEFT_OUT = frozenset({"is_member", "num_members"})
"""What users.conversations does not tell of a channel."""
_KINDS = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}


def _readable(call: Call, right: str) -> Channel:
    channel = call.channel()
    call.needs(f"{_SCOPE_FAMILIES[channel.kind]}:{right}")
    return channel


def _historic(call: Call) -> Channel:
    channel = _readable(call, "history")
    if call.workspace.bot.user_id not in channel.members:
        raise Refused("not_in_channel")
    return channel


def _time(call: Call, name: str) -> str:
    """A bound of a range of time; "" where it is not given."""
    given = call.text(name)
    if given and not _TIME.fullmatch(given):
        raise Refused(f"invalid_ts_{name}")
    return given


def _window(call: Call, messages: Iterable[Message]) -> list[Message]:
    oldest, latest = _time(call, "oldest") or "0", _time(call, "latest")
    is_inclusive = call.flag("inclusive")
    return [
        message
        for message in messages
        if message.visible_to is None
        and (message.ts > oldest or (is_inclusive and message.ts == oldest))
        and (not latest or message.ts < latest or (is_inclusive and message.ts == latest))
    ]


def _listing(call: Call, messages: list[Message], limit: int) -> Payload:
    page, cursor = paged(call, messages, limit=limit)
    has_metadata = call.flag("include_all_metadata")
    body: Payload = {
        "messages": [
            message_form(call.workspace, message, has_metadata=has_metadata, is_listed=True) for message in page
        ],
        "has_more": bool(cursor),
    }
    if cursor:
        body["response_metadata"] = {"next_cursor": cursor}
    return body


def get_replies(call: Call) -> Payload:
    channel = _historic(call)
    root = channel.messages.get(call.text("ts"))
    if root is None or root.visible_to is not None:
        raise Refused("thread_not_found")
    if root.is_reply:
        return _listing(call, [root], 1000)
    replies = _window(call, (channel.messages[ts] for ts in root.replies))
    return _listing(call, [root, *replies], 1000)


def get_history(call: Call) -> Payload:
    channel = _historic(call)
    return _listing(call, _window(call, reversed(channel.top.values())), 100)


def get_info(call: Call) -> Payload:
    channel = _readable(call, "read")
    return {"channel": channel_form(call.workspace, channel)}


def open_direct(call: Call) -> Payload:
    workspace = call.workspace
    if call.text("channel"):
        return {"channel": {"id": call.channel().channel_id}}
    users = [user for user in call.text("users").split(",") if user]
    if not users:
        raise Refused("users_list_not_supplied")
    if len(users) > 1:
        raise missing_scope(workspace, "mpim:write")
    member = workspace.members.get(users[0])
    if member is None:
        raise Refused("user_not_found")
    if member.is_bot:
        raise Refused("cannot_dm_bot")
    had_one = member.user_id in workspace.direct
    channel = workspace.direct_with(member.user_id, workspace.bot.user_id)
    form: Payload = {"id": channel.channel_id}
    if call.flag("return_im"):
        form = channel_form(workspace, channel)
    return {"channel": form, "no_op": had_one, "already_open": had_one}


def list_channels(call: Call) -> Payload:
    page, cursor = paged(call, _of_kinds(call))
    return {
        "channels": [channel_form(call.workspace, channel) for channel in page],
        "response_metadata": {"next_cursor": cursor},
    }


def list_own(call: Call) -> Payload:
    """Those that a member is in; of the others' private ones only what they share with the bot."""
    user_id = call.text("user", call.workspace.bot.user_id)
    if user_id not in call.workspace.members:
        raise Refused("user_not_found")
    page, cursor = paged(call, [one for one in _of_kinds(call) if user_id in one.members])
    forms = [channel_form(call.workspace, channel) for channel in page]
    kept = [{key: form[key] for key in form.keys() - _LEFT_OUT} for form in forms]
    return {"channels": kept, "response_metadata": {"next_cursor": cursor}}


def _of_kinds(call: Call) -> list[Channel]:
    """The channels of the `types` that the bot may know of."""
    kinds = [kind.strip() for kind in call.text("types", "public_channel").split(",")]
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise Refused("invalid_types")
    for kind in kinds:
        call.needs(f"{_SCOPE_FAMILIES[_KINDS[kind]]}:read")
    wanted = {_KINDS[kind] for kind in kinds}
    return [
        channel
        for channel in call.workspace.channels.values()
        if channel.kind in wanted
        and (channel.kind == "channel" or call.workspace.bot.user_id in channel.members)
        and not (channel.is_archived and call.flag("exclude_archived"))
    ]


def list_members(call: Call) -> Payload:
    page, cursor = paged(call, list(_readable(call, "read").members))
    return {"members": page, "response_metadata": {"next_cursor": cursor}}


METHODS = {
    "conversations.history": Method(run=get_history, tier="t3", required=("channel",)),
    "conversations.info": Method(run=get_info, tier="t3", required=("channel",)),
    "conversations.list": Method(run=list_channels, tier="t2"),
    "conversations.members": Method(run=list_members, tier="t4", required=("channel",)),
    "conversations.open": Method(run=open_direct, tier="t3", scopes=("im:write",)),
    "conversations.replies": Method(run=get_replies, tier="t3", required=("channel", "ts")),
    "users.conversations": Method(run=list_own, tier="t3"),
}
