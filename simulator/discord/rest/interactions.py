"""The first answer to an interaction: the callback."""

from simulator.discord.gateway.events import tell_message
from simulator.discord.json_reading import Json, int_of, object_of, objects_of, snowflake, text_of
from simulator.discord.payloads import message_json
from simulator.discord.people.interactions import COMMAND, COMPONENT, MODAL_SUBMIT, is_answerable, metadata
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import ALREADY_ANSWERED, UNKNOWN_INTERACTION, UNKNOWN_MESSAGE, FormErrors, Refused
from simulator.discord.rules.commands import check_choices
from simulator.discord.rules.component_tree import complete
from simulator.discord.rules.message_drafts import Scope, draft, revise
from simulator.discord.rules.modals import check_modal
from simulator.discord.world import EPHEMERAL, LOADING, Form, Interaction, Message, World

MESSAGE, DEFERRED, DEFERRED_UPDATE, UPDATE, CHOICES, MODAL = 4, 5, 6, 7, 8, 9
_COMMAND_ANSWER = 20


def answer(world: World, call: Call) -> Reply:
    """Once and within three seconds; `with_response=1` asks for the message that it made."""
    interaction = world.interactions.get(call.arguments["token"])
    if interaction is None or interaction.interaction_id != call.arguments["interaction"]:
        raise Refused(UNKNOWN_INTERACTION)
    if interaction.answered.done():
        raise Refused(ALREADY_ANSWERED)
    if not is_answerable(world, interaction):
        raise Refused(UNKNOWN_INTERACTION)
    body = call.fields()
    errors = FormErrors()
    errors.choice(("type",), body.get("type"), _allowed(interaction))
    errors.raise_if_any()
    kind = int_of(body, "type")
    try:
        message = _carry_out(world, call, interaction, kind, object_of(body, "data"))
    except Refused as refused:
        if refused.errors is None:
            raise
        raise Refused((refused.status, refused.code, refused.message), {"data": refused.errors}) from None
    interaction.answered.set_result(None)
    world.touch()
    if call.query.get("with_response") not in ("1", "true"):
        return Reply()
    return Reply(body=_response(world, interaction, kind, message))


def _allowed(interaction: Interaction) -> tuple[object, ...]:
    if interaction.kind == COMMAND:
        return MESSAGE, DEFERRED, MODAL
    updates = () if interaction.source is None else (DEFERRED_UPDATE, UPDATE)
    if interaction.kind == MODAL_SUBMIT:
        return (MESSAGE, DEFERRED, *updates)
    if interaction.kind == COMPONENT:
        return (MESSAGE, DEFERRED, *updates, MODAL)
    return (CHOICES,)


def _carry_out(world: World, call: Call, interaction: Interaction, kind: int, fields: Json) -> Message | None:
    if kind == CHOICES:
        errors = FormErrors()
        check_choices(errors, ("choices",), fields.get("choices"), is_text=True)
        errors.raise_if_any()
        interaction.choices = objects_of(fields, "choices")
        return None
    if kind == MODAL:
        _open_form(world, interaction, fields)
        return None
    if kind in (DEFERRED_UPDATE, UPDATE):
        return _update_source(world, call, interaction, kind, fields)
    if kind == DEFERRED:
        flags = int_of(fields, "flags") & EPHEMERAL | LOADING
        message = Message(message_id=snowflake(), channel_id=interaction.channel_id, author=world.bot, flags=flags)
    else:
        scope = Scope(channel_id=interaction.channel_id, is_interaction=True)
        message = draft(world, call, fields, scope)
    message.kind = _COMMAND_ANSWER if interaction.kind == COMMAND else message.kind
    interaction.original = message
    place(world, interaction, message)
    return message


def place(world: World, interaction: Interaction, message: Message) -> None:
    """Puts a message of an interaction in its channel; an ephemeral one is for its person alone."""
    message.interaction = metadata(world, interaction)
    if message.flags & EPHEMERAL:
        message.visible_to = interaction.user.user_id
    interaction.messages[message.message_id] = message
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)


def _update_source(world: World, call: Call, interaction: Interaction, kind: int, fields: Json) -> Message:
    source = interaction.source
    if source is None or source.message_id not in world.channels[source.channel_id].messages:
        raise Refused(UNKNOWN_MESSAGE)
    interaction.original = source
    interaction.messages[source.message_id] = source
    if kind == UPDATE:
        revise(world, call, fields, source)
        tell_message(world, "MESSAGE_UPDATE", source)
    return source


def _open_form(world: World, interaction: Interaction, modal: Json) -> None:
    errors = FormErrors()
    check_modal(errors, modal)
    errors.raise_if_any()
    form = Form(
        form_id=snowflake(),
        person=interaction.user,
        channel_id=interaction.channel_id,
        title=text_of(modal, "title"),
        custom_id=text_of(modal, "custom_id"),
        components=complete(world, objects_of(modal, "components"), []),
        opened_by=interaction,
    )
    for form_id, other in list(world.forms.items()):
        if other.person is form.person:
            del world.forms[form_id]
    world.forms[form.form_id] = form


def _response(world: World, interaction: Interaction, kind: int, message: Message | None) -> Json:
    told: Json = {"id": interaction.interaction_id, "type": interaction.kind}
    resource: Json = {"type": kind}
    if message is not None:
        told["response_message_id"] = message.message_id
        told["response_message_loading"] = bool(message.flags & LOADING)
        told["response_message_ephemeral"] = bool(message.flags & EPHEMERAL)
    if message is not None and kind in (MESSAGE, UPDATE):
        resource["message"] = message_json(world, message)
    return {"interaction": told, "resource": resource}
