"""A message as the bot sends it: checked against every limit, then made or changed."""

import time
from dataclasses import dataclass

from simulator.discord.files import FILES_MAX, Upload
from simulator.discord.json_reading import Json, as_list, as_object, int_of, objects_of, snowflake, text_of
from simulator.discord.rest.call import Call
from simulator.discord.rest.errors import EMPTY_MESSAGE, FormErrors, Refused, invalid
from simulator.discord.rules.component_tree import complete
from simulator.discord.rules.components import check_components
from simulator.discord.rules.embeds import check_embeds
from simulator.discord.rules.mentions import apply_mentions, check_allowed_mentions
from simulator.discord.world import (
    COMPONENTS_V2,
    EPHEMERAL,
    LOADING,
    SUPPRESS_EMBEDS,
    SUPPRESS_NOTIFICATIONS,
    Attachment,
    Message,
    World,
)

CONTENT_MAX = 2000
_REPLY = 19
_LEGACY_FIELDS = ("content", "embeds", "poll", "sticker_ids")
_CREATE_FLAGS = SUPPRESS_EMBEDS | SUPPRESS_NOTIFICATIONS | COMPONENTS_V2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a draft goes: only the answer to an interaction may be ephemeral."""

    channel_id: str
    is_interaction: bool = False


def draft(world: World, call: Call, body: Json, scope: Scope) -> Message:
    """A new message by the bot, not yet added to its channel. Raises Refused for what Discord refuses."""
    flags = int_of(body, "flags") & (_CREATE_FLAGS | (EPHEMERAL if scope.is_interaction else 0))
    errors = FormErrors()
    _check(errors, body, call.uploads, [], is_v2=bool(flags & COMPONENTS_V2))
    nonce = body.get("nonce")
    if isinstance(nonce, str):
        errors.length(("nonce",), nonce, 25)
    elif nonce is not None and not isinstance(nonce, int):
        errors.add(("nonce",), "NONCE_TYPE_INVALID", "Value must be an integer or a string.")
    if flags & COMPONENTS_V2:
        _refuse_unknown(world)
        _refuse_legacy_fields(errors, body)
    errors.raise_if_any()
    message = Message(
        message_id=snowflake(),
        channel_id=scope.channel_id,
        author=world.bot,
        content=text_of(body, "content").strip(),
        flags=flags,
        embeds=_embeds(objects_of(body, "embeds")),
        attachments=_attach(world, scope.channel_id, body, call.uploads),
    )
    components = objects_of(body, "components")
    message.components = complete(world, components, message.attachments)
    message.nonce = nonce if isinstance(nonce, str | int) else None
    _refuse_empty(message)
    _refer(world, message, body)
    apply_mentions(world, message, body.get("allowed_mentions"))
    return message


def revise(world: World, call: Call, body: Json, message: Message) -> None:
    """Changes a message of the bot as the body says; fields that it does not name stay."""
    was_v2 = bool(message.flags & COMPONENTS_V2)
    is_v2 = was_v2 or bool(int_of(body, "flags") & COMPONENTS_V2)
    kept = _kept(message, body)
    errors = FormErrors()
    _check(errors, body, call.uploads, kept, is_v2=is_v2)
    if is_v2:
        _refuse_unknown(world)
        _refuse_legacy_fields(errors, body)
        left = {"content": message.content, "embeds": message.embeds}
        for name in [name for name, value in left.items() if value and name not in body]:
            _legacy(errors, name)
    errors.raise_if_any()
    revised = _revised(world, call, body, message, kept)
    _refuse_empty(revised)
    for attachment in message.attachments:
        if attachment not in revised.attachments:
            world.attachments.pop(attachment.attachment_id, None)
    message.content, message.embeds = revised.content, revised.embeds
    message.components, message.attachments = revised.components, revised.attachments
    for attachment in message.attachments:
        world.attachments[attachment.attachment_id] = attachment
    message.flags = message.flags & ~LOADING | (COMPONENTS_V2 if is_v2 else 0)
    if body.get("flags") is not None:
        suppress = int_of(body, "flags") & SUPPRESS_EMBEDS
        message.flags = message.flags & ~SUPPRESS_EMBEDS | suppress
    message.edited_at = time.time()
    message.edits += 1
    if "content" in body or "components" in body:
        apply_mentions(world, message, body.get("allowed_mentions"))


def _revised(world: World, call: Call, body: Json, message: Message, kept: list[Attachment]) -> Message:
    new = _attach(world, message.channel_id, body, call.uploads)
    revised = Message(
        message_id=message.message_id,
        channel_id=message.channel_id,
        author=message.author,
        content=text_of(body, "content").strip() if "content" in body else message.content,
        embeds=_embeds(objects_of(body, "embeds")) if "embeds" in body else message.embeds,
        components=message.components,
        attachments=[*kept, *new],
    )
    if "components" in body:
        components = objects_of(body, "components")
        revised.components = complete(world, components, revised.attachments)
    return revised


def _check(errors: FormErrors, body: Json, uploads: list[Upload], kept: list[Attachment], *, is_v2: bool) -> None:
    if body.get("content") is not None:
        errors.length(("content",), body.get("content"), CONTENT_MAX)
    if body.get("embeds") is not None:
        check_embeds(errors, body.get("embeds"))
    check_allowed_mentions(errors, body)
    _check_attachments(errors, body, uploads, kept)
    if body.get("components") is not None:
        names = {attachment.filename for attachment in kept}
        names |= {_name(upload, body) for upload in uploads}
        components = body.get("components")
        check_components(errors, components, is_v2=is_v2, filenames=frozenset(names))


def _check_attachments(errors: FormErrors, body: Json, uploads: list[Upload], kept: list[Attachment]) -> None:
    """Each entry names an upload by its index, or an attachment that the message has already."""
    path, value = ("attachments",), body.get("attachments")
    if len(uploads) + len(kept) > FILES_MAX:
        errors.size(path, [None] * (len(uploads) + len(kept)), FILES_MAX)
    if value is None:
        return
    if as_list(value) is None:
        errors.add(path, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    known = {str(upload.index) for upload in uploads}
    known |= {attachment.attachment_id for attachment in kept}
    for index, item in enumerate(objects_of(body, "attachments")):
        if str(item.get("id")) not in known:
            message = f"The attachment id {str(item.get('id'))[:30]} was not found."
            errors.add((*path, index), "ATTACHMENT_NOT_FOUND", message)
        if item.get("description") is not None:
            errors.length((*path, index, "description"), item.get("description"), 1024)


def _refuse_legacy_fields(errors: FormErrors, body: Json) -> None:
    for name in _LEGACY_FIELDS:
        if body.get(name):
            _legacy(errors, name)


def _legacy(errors: FormErrors, name: str) -> None:
    message = f"The '{name}' field cannot be used when using MessageFlags.IS_COMPONENTS_V2"
    errors.add((name,), "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", message)


def _refuse_empty(message: Message) -> None:
    if not (message.content or message.embeds or message.components or message.attachments):
        raise Refused(EMPTY_MESSAGE)


def _told(upload: Upload, body: Json) -> Json:
    """What the body's `attachments` say of an upload."""
    entries = objects_of(body, "attachments")
    found = next((item for item in entries if str(item.get("id")) == str(upload.index)), None)
    return found or {}


def _name(upload: Upload, body: Json) -> str:
    return text_of(_told(upload, body), "filename") or upload.filename


def _attach(world: World, channel_id: str, body: Json, uploads: list[Upload]) -> list[Attachment]:
    attachments: list[Attachment] = []
    for upload in sorted(uploads, key=lambda upload: upload.index):
        attachment = world.add_attachment(channel_id, _name(upload, body), upload.content, upload.content_type)
        told = _told(upload, body)
        attachment.description = text_of(told, "description") or None
        attachment.title = text_of(told, "title") or attachment.title
        attachments.append(attachment)
    return attachments


def _kept(message: Message, body: Json) -> list[Attachment]:
    """Those that the body names again; all where it does not speak of attachments."""
    if body.get("attachments") is None:
        return message.attachments
    named = {str(item.get("id")) for item in objects_of(body, "attachments")}
    return [file for file in message.attachments if file.attachment_id in named]


def _embeds(embeds: list[Json]) -> list[Json]:
    return [{"type": "rich", **embed} for embed in embeds]


def _refer(world: World, message: Message, body: Json) -> None:
    """Makes the message a reply. The message that it answers must stand in the same channel."""
    reference = as_object(body.get("message_reference"))
    if reference is None:
        return
    found = world.channels[message.channel_id].messages.get(str(reference.get("message_id")))
    if found is not None and found.visible_to is None:
        message.kind = _REPLY
        message.reference = {
            "type": 0,
            "channel_id": message.channel_id,
            "message_id": found.message_id,
            "guild_id": world.channels[message.channel_id].guild_id,
        }
    elif reference.get("fail_if_not_exists") is not False:
        path = ("message_reference",)
        raise invalid(path, "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message")


def _refuse_unknown(world: World) -> None:
    if not world.settings.knows_layouts:
        raise Refused(EMPTY_MESSAGE)
