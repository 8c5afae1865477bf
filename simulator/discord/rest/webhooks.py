"""What follows the first answer to an interaction: follow-up messages and changes, by its token."""

from simulator.discord.gateway.events import tell_message
from simulator.discord.payloads import message_json
from simulator.discord.people.interactions import is_token_alive
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import INVALID_WEBHOOK_TOKEN, UNKNOWN_MESSAGE, UNKNOWN_WEBHOOK, Refused
from simulator.discord.rest.interactions import place
from simulator.discord.rest.messages import remove
from simulator.discord.rules.message_drafts import Scope, draft, revise
from simulator.discord.world import LOADING, Interaction, Message, World


def follow_up(world: World, call: Call) -> Reply:
    """The first one after a deferral fills the deferred message."""
    interaction = _interaction(world, call)
    original = interaction.original
    if original is not None and original.flags & LOADING:
        _revise(world, call, original)
        return Reply(body=message_json(world, original))
    scope = Scope(channel_id=interaction.channel_id, is_interaction=True)
    message = draft(world, call, call.fields(), scope)
    place(world, interaction, message)
    return Reply(body=message_json(world, message))


def get_message(world: World, call: Call) -> Reply:
    return Reply(body=message_json(world, _message(world, call)))


def edit_message(world: World, call: Call) -> Reply:
    message = _message(world, call)
    _revise(world, call, message)
    return Reply(body=message_json(world, message))


def delete_message(world: World, call: Call) -> Reply:
    remove(world, _message(world, call))
    return Reply()


def _revise(world: World, call: Call, message: Message) -> None:
    """Filling a deferred message is no edit."""
    was_loading = bool(message.flags & LOADING)
    revise(world, call, call.fields(), message)
    if was_loading:
        message.edits, message.edited_at = 0, None
    tell_message(world, "MESSAGE_UPDATE", message)


def _interaction(world: World, call: Call) -> Interaction:
    """An interaction that was never answered has no webhook yet."""
    interaction = world.interactions.get(call.arguments["token"])
    if interaction is None or call.arguments["application"] != world.bot.user_id:
        raise Refused(UNKNOWN_WEBHOOK)
    if not is_token_alive(world, interaction):
        raise Refused(INVALID_WEBHOOK_TOKEN)
    if not interaction.answered.done():
        raise Refused(UNKNOWN_WEBHOOK)
    return interaction


def _message(world: World, call: Call) -> Message:
    interaction, named = _interaction(world, call), call.arguments["message"]
    message = interaction.original if named == "@original" else interaction.messages.get(named)
    channel = world.channels.get(interaction.channel_id)
    if message is None or channel is None or message.message_id not in channel.messages:
        raise Refused(UNKNOWN_MESSAGE)
    return message
