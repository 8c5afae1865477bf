"""The workspace as a person sees it: blocks, reactions, files, threads and forms of the page."""

from simulator.slack.events.payloads import as_payloads
from simulator.slack.people.block_view import draw_blocks, draw_message
from simulator.slack.people.forms import open_forms
from simulator.slack.shapes import page_url
from simulator.slack.world import Channel, Message, StoredFile, Workspace
from simulator.view import (
    CommandOption,
    PlatformView,
    SeenChannel,
    SeenCommand,
    SeenFault,
    SeenFile,
    SeenHome,
    SeenMessage,
    SeenReaction,
    SeenShortcut,
    SeenThread,
)

_TITLE_CHARS = 80


def platform_view(workspace: Workspace, *, is_connected: bool, faults: tuple[SeenFault, ...] = ()) -> PlatformView:
    """Everything that the page shows of one workspace."""
    return PlatformView(
        platform="slack",
        workspace=workspace.settings.workspace_name,
        people=tuple(member.name for member in workspace.members.values() if not member.is_bot),
        bot_name=workspace.bot.name,
        is_bot_connected=is_connected,
        faults=faults,
        channels=tuple(_channel(workspace, channel) for channel in workspace.channels.values()),
        forms=open_forms(workspace),
        commands=tuple(
            SeenCommand(
                name=command.name.removeprefix("/"),
                description=command.description,
                options=(CommandOption(name="text", kind="text", is_required=False),),
            )
            for command in workspace.settings.commands
        ),
        shortcuts=tuple(
            SeenShortcut(name=one.name, is_for_messages=one.kind == "message") for one in workspace.settings.shortcuts
        ),
        has_home=workspace.settings.has_home,
        homes=tuple(
            SeenHome(
                person=workspace.members[view.user_id].name,
                elements=tuple(draw_blocks(workspace, as_payloads(view.content["blocks"]))),
            )
            for view in workspace.views.values()
            if view.is_home
        ),
        limits={"commands": "not in threads", "message": "4,000 characters are best"},
    )


def _channel(workspace: Workspace, channel: Channel) -> SeenChannel:
    return SeenChannel(
        channel_id=channel.channel_id,
        name=channel.name,
        is_direct=channel.kind == "im",
        messages=tuple(seen_message(workspace, message) for message in channel.top.values()),
        threads=tuple(_thread(workspace, channel, root) for root in channel.top.values() if root.replies),
        typing=tuple(f"{workspace.bot.name} {status}" for status in channel.statuses.values()),
    )


def _thread(workspace: Workspace, channel: Channel, root: Message) -> SeenThread:
    messages = [channel.messages[ts] for ts in sorted((*root.replies, *root.whispers))]
    return SeenThread(
        thread_id=root.ts,
        title=root.text[:_TITLE_CHARS],
        messages=tuple(seen_message(workspace, message) for message in (root, *messages)),
    )


def seen_message(workspace: Workspace, message: Message) -> SeenMessage:
    """One message as the page draws it, drawn anew only where it changed."""
    if message.drawn is None:
        message.drawn = _drawn(workspace, message)
    return message.drawn


def _drawn(workspace: Workspace, message: Message) -> SeenMessage:
    names = workspace.members
    visible_to = message.visible_to
    return SeenMessage(
        message_id=message.ts,
        author=str(message.overrides.get("username") or names[message.user_id].name),
        is_bot=message.is_bot,
        sent_at=float(message.ts),
        elements=draw_message(workspace, message),
        edits=message.edits,
        reactions=tuple(
            SeenReaction(emoji=name, people=tuple(names[user].name for user in users))
            for name, users in message.reactions.items()
        ),
        files=tuple(_file(workspace, workspace.files[key]) for key in message.file_ids),
        thread_id=message.thread_ts if message.is_reply else None,
        visible_to=names[visible_to].name if visible_to is not None else None,
    )


def _file(workspace: Workspace, stored: StoredFile) -> SeenFile:
    return SeenFile(
        file_id=stored.file_id,
        name=stored.name,
        mime_type=stored.mime_type,
        size_bytes=len(stored.content),
        url=page_url(workspace, stored),
    )
