"""What a person sees of a simulated Discord."""

import time

from simulator.discord.files import page_url
from simulator.discord.json_reading import Json, object_of, objects_of, text_of
from simulator.discord.people.message_view import elements_of, options_of
from simulator.discord.people.slash_commands import SlashCommand, localized, slash_commands
from simulator.discord.rules.commands import ATTACHMENT, BOOLEAN
from simulator.discord.rules.component_tree import named_attachment, walk
from simulator.discord.rules.modals import fields_of, is_required
from simulator.discord.world import COMPONENTS_V2, DIRECT_CHANNEL, Attachment, Channel, Form, Message, World
from simulator.view import (
    CommandOption,
    FormField,
    PlatformView,
    SeenChannel,
    SeenCommand,
    SeenFile,
    SeenForm,
    SeenMessage,
    SeenReaction,
    SeenShortcut,
    SeenThread,
)

_MESSAGES_SEEN = 300
_SYSTEM_KINDS = (18, 21)


def view_of(world: World, *, is_bot_connected: bool) -> PlatformView:
    mib = world.settings.file_bytes_max // 1024 // 1024
    threads: dict[str, list[SeenThread]] = {}
    for channel in world.channels.values():
        if channel.is_thread and channel.parent_id is not None:
            seen = SeenThread(thread_id=channel.channel_id, title=channel.name, messages=_messages(world, channel))
            threads.setdefault(channel.parent_id, []).append(seen)
    return PlatformView(
        platform="discord",
        workspace=world.home.name,
        people=tuple(world.people),
        bot_name=world.bot.name,
        is_bot_connected=is_bot_connected,
        channels=tuple(
            _channel(world, channel, tuple(threads.get(channel.channel_id, ())))
            for channel in world.channels.values()
            if not channel.is_thread
        ),
        forms=tuple(_form(form) for form in world.forms.values()),
        commands=tuple(_command(item, world.settings.locale) for item in slash_commands(world)),
        shortcuts=tuple(
            SeenShortcut(name=text_of(command, "name"), is_for_messages=True)
            for commands in world.commands.values()
            for command in commands.values()
            if command.get("type") == 3
        ),
        faults=world.faults.seen(),
        limits={
            "message": "2,000 characters",
            "layout": "40 components, 4,000 characters",
            "file": f"{mib} MiB, 10 a message",
            "answer": f"{world.settings.answer_seconds:g} s",
        },
    )


def _channel(world: World, channel: Channel, threads: tuple[SeenThread, ...]) -> SeenChannel:
    typing = set(_typing(world, channel))
    for thread in threads:
        typing |= set(_typing(world, world.channels[thread.thread_id]))
    return SeenChannel(
        channel_id=channel.channel_id,
        name=channel.name,
        is_direct=channel.kind == DIRECT_CHANNEL,
        messages=_messages(world, channel),
        threads=threads,
        typing=tuple(sorted(typing)),
    )


def _typing(world: World, channel: Channel) -> list[str]:
    now = time.time()
    users = [world.user(user_id) for user_id, until in channel.typing_until.items() if until > now]
    return [user.name for user in users if user is not None]


def _messages(world: World, channel: Channel) -> tuple[SeenMessage, ...]:
    messages = list(channel.messages.values())[-_MESSAGES_SEEN:]
    return tuple(_message(world, item) for item in messages if item.kind not in _SYSTEM_KINDS)


def _message(world: World, message: Message) -> SeenMessage:
    person = None if message.visible_to is None else world.user(message.visible_to)
    is_in_thread = world.channels[message.channel_id].is_thread
    return SeenMessage(
        message_id=message.message_id,
        author=message.author.name,
        is_bot=message.author.is_bot,
        sent_at=message.sent_at,
        elements=elements_of(world, message),
        edits=message.edits,
        reactions=tuple(
            SeenReaction(emoji=emoji, people=_names(world, users)) for emoji, users in message.reactions.items()
        ),
        files=tuple(_file(world, file) for file in _shown_files(message)),
        thread_id=message.channel_id if is_in_thread else None,
        visible_to=None if person is None else person.name,
    )


def _names(world: World, user_ids: list[str]) -> tuple[str, ...]:
    users = [world.user(user_id) for user_id in user_ids]
    return tuple(user.name for user in users if user is not None)


def _shown_files(message: Message) -> list[Attachment]:
    """In a v2 message only what a file component names can be seen."""
    if not message.flags & COMPONENTS_V2:
        return message.attachments
    named = {attachment.filename: attachment for attachment in message.attachments}
    files = [object_of(item, "file") for item in walk(message.components) if item.get("type") == 13]
    found = [named_attachment(text_of(file, "url"), named) for file in files]
    return [attachment for attachment in found if attachment is not None]


def _file(world: World, attachment: Attachment) -> SeenFile:
    return SeenFile(
        file_id=attachment.attachment_id,
        name=attachment.shown_name,
        mime_type=attachment.content_type,
        size_bytes=len(attachment.content),
        url=page_url(world, attachment),
    )


def _form(form: Form) -> SeenForm:
    return SeenForm(
        form_id=form.form_id,
        person=form.person.name,
        title=form.title,
        fields=tuple(
            FormField(
                field_id=text_of(field, "custom_id"),
                label=label,
                is_long=field.get("style") == 2,
                is_required=is_required(field),
                options=options_of(field),
            )
            for label, field in fields_of(form.components)
        ),
    )


def _command(item: SlashCommand, locale: str) -> SeenCommand:
    return SeenCommand(
        name=item.name_in(locale),
        description=localized(item.leaf, "description", locale),
        options=tuple(_option(option, locale) for option in objects_of(item.leaf, "options")),
    )


def _option(option: Json, locale: str) -> CommandOption:
    choices = tuple(text_of(choice, "name") for choice in objects_of(option, "choices"))
    if option.get("type") == BOOLEAN:
        choices = ("true", "false")
    kind = "choice" if choices else "text"
    return CommandOption(
        name=text_of(option, "name"),
        kind="file" if option.get("type") == ATTACHMENT else kind,
        is_required=option.get("required") is True,
        description=localized(option, "description", locale),
        choices=choices,
        is_suggested=option.get("autocomplete") is True,
    )
