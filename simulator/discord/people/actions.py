"""What people do in a simulated Discord."""

import re
import time
from collections.abc import Sequence

from simulator.discord.gateway.events import tell_channel, tell_message
from simulator.discord.json_reading import Json, objects_of, snowflake, text_of, timestamp
from simulator.discord.payloads import member_json, message_json, snapshot_json, user_json
from simulator.discord.people.interactions import COMMAND, COMPONENT, MODAL_SUBMIT, start_interaction, wait_for_answer
from simulator.discord.rest.errors import Refused
from simulator.discord.rest.messages import remove, remove_all, unarchive
from simulator.discord.rest.reactions import is_emoji, react, unreact
from simulator.discord.rest.threads import add_member
from simulator.discord.rules.component_tree import find
from simulator.discord.rules.components import BUTTON, SELECTS, STRING_SELECT
from simulator.discord.rules.mentions import author_of_reference
from simulator.discord.rules.message_drafts import CONTENT_MAX
from simulator.discord.rules.modals import refuse_unfit, submitted
from simulator.discord.world import FORUM, Attachment, Channel, Message, User, World
from simulator.view import SentFile

FILES_MAX = 10
REPLY = 19
_LINK_STYLE = 5
_USER_SELECT = 5


def find_person(world: World, name: str) -> User:
    person = world.people.get(name)
    if person is None:
        raise ValueError(f"there is no person named {name!r}")
    return person


def find_place(world: World, person: User, channel_id: str, thread_id: str | None) -> Channel:
    """The channel or the thread, where the person may write."""
    channel = world.channels.get(thread_id or channel_id)
    if channel is None or (thread_id is not None and channel.parent_id != channel_id):
        raise ValueError(f"there is no channel or thread {thread_id or channel_id!r}")
    if person not in world.everybody(channel) or channel.recipient not in (None, person):
        raise ValueError(f"{channel.name} is no channel of {person.name}")
    return channel


def find_message(world: World, person: User, channel_id: str, message_id: str) -> Message:
    """A message of the channel or of one of its threads that the person can see."""
    find_place(world, person, channel_id, None)
    for channel in world.channels.values():
        if channel_id not in (channel.channel_id, channel.parent_id):
            continue
        message = channel.messages.get(message_id)
        if message is not None and message.visible_to in (None, person.user_id):
            return message
    raise ValueError(f"there is no message {message_id!r} in this channel")


def say(
    world: World,
    person: User,
    place: Channel,
    text: str,
    files: Sequence[SentFile],
    *,
    reply_to: str = "",
    is_moderator: bool = False,
) -> Message:
    """With `reply_to`, the message answers another one of this channel or thread, and pings its author, as
    Discord's own box does unless the person turns it off."""
    if len(text) > CONTENT_MAX:
        raise ValueError(f"a message holds at most {CONTENT_MAX} characters")
    if not text.strip() and not files:
        raise ValueError("a message needs a text or a file")
    attachments = attach(world, place, files)
    if place.kind == FORUM:
        raise ValueError("a forum has posts, and no messages of its own")
    if place.is_locked and not is_moderator:
        raise ValueError("the thread is locked")
    unarchive(world, place)
    parent = world.channels.get(place.parent_id or "")
    # the message that a forum's post begins with has the id of the post
    is_first = parent is not None and parent.kind == FORUM and not place.messages
    message = Message(
        message_id=place.channel_id if is_first else snowflake(),
        channel_id=place.channel_id,
        author=person,
        attachments=attachments,
    )
    if reply_to:
        message.kind = REPLY
        message.reference = {
            "type": 0,
            "channel_id": place.channel_id,
            "message_id": reply_to,
            "guild_id": place.guild_id,
        }
    _write(world, message, text)
    if place.is_thread:
        for user in (person, *message.mentions):
            add_member(world, place, user)
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)
    return message


def post_poll(world: World, person: User, place: Channel, question: str, votes: dict[str, int]) -> Message:
    """A poll that runs for a day; `votes` are those that each answer has already."""
    if not 0 < len(question) <= 300 or not 0 < len(votes) <= 10:
        raise ValueError("a poll has a question of at most 300 characters and 1 to 10 answers")
    if any(not 0 < len(answer) <= 55 for answer in votes):
        raise ValueError("an answer of a poll has 1 to 55 characters")
    message = Message(message_id=snowflake(), channel_id=place.channel_id, author=person)
    message.poll = {
        "question": {"text": question},
        "answers": [{"answer_id": number, "poll_media": {"text": answer}} for number, answer in enumerate(votes, 1)],
        "expiry": timestamp(message.sent_at + 86_400),
        "allow_multiselect": False,
        "layout_type": 1,
        "results": {
            "is_finalized": False,
            "answer_counts": [
                {"id": number, "count": count, "me_voted": False} for number, count in enumerate(votes.values(), 1)
            ],
        },
    }
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)
    return message


async def use_shortcut(world: World, person: User, name: str, message: Message) -> str:
    """Uses an entry of the message's menu; the bot is shown the message whole, whatever its intents."""
    commands = [one for some in world.commands.values() for one in some.values()]
    found = next((one for one in commands if (one.get("type"), one.get("name")) == (3, name)), None)
    if found is None or message.visible_to is not None:
        raise ValueError(f"the message has no {name} in its menu")
    payload: Json = {
        "id": found.get("id"),
        "name": name,
        "type": 3,
        "target_id": message.message_id,
        "resolved": {"messages": {message.message_id: message_json(world, message)}},
    }
    channel = world.channels[message.channel_id]
    interaction = start_interaction(world, COMMAND, person, channel, payload)
    await wait_for_answer(world, interaction)
    return interaction.interaction_id


def post_as_app(world: World, place: Channel, name: str, text: str, embeds: Sequence[Json]) -> Message:
    """Another bot writes, as alerts do: mostly in embeds."""
    bot = world.apps.setdefault(name, User(user_id=snowflake(), name=name, is_bot=True))
    message = Message(message_id=snowflake(), channel_id=place.channel_id, author=bot, embeds=list(embeds))
    _write(world, message, text)
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)
    return message


def attach(world: World, place: Channel, files: Sequence[SentFile]) -> list[Attachment]:
    if len(files) > FILES_MAX:
        raise ValueError(f"a message holds at most {FILES_MAX} files")
    for file in files:
        if len(file.content) > world.settings.file_bytes_max:
            mib = world.settings.file_bytes_max // 1024 // 1024
            raise ValueError(f"{file.name} is larger than {mib} MiB, the limit of this server")
    return [world.add_attachment(place.channel_id, file.name, file.content, file.mime_type) for file in files]


def _write(world: World, message: Message, text: str) -> None:
    """Turns `@name` into a mention, as Discord's own box does."""
    answered = author_of_reference(world, message)
    message.mentions = [answered] if answered and answered is not message.author else []
    present = world.everybody(world.channels[message.channel_id])
    names = sorted(present, key=lambda user: len(user.name), reverse=True)
    for user in names:
        pattern = rf"(?<![\w<])@{re.escape(user.name)}(?!\w)"
        text, count = re.subn(pattern, f"<@{user.user_id}>", text, flags=re.IGNORECASE)
        if user is not answered and (count or f"<@{user.user_id}>" in text):
            message.mentions.append(user)
    message.content = text.strip()
    message.is_everyone_mentioned = re.search(r"@(everyone|here)\b", text) is not None


def edit(world: World, message: Message, person: User, text: str, now: float) -> None:
    if message.author is not person:
        raise ValueError("only the author can edit a message")
    if len(text) > CONTENT_MAX or not text.strip():
        raise ValueError(f"a message holds 1 to {CONTENT_MAX} characters")
    _write(world, message, text)
    message.edited_at = now
    message.edits += 1
    tell_message(world, "MESSAGE_UPDATE", message)


def delete(world: World, message: Message, person: User) -> None:
    """A person deletes what they wrote, and dismisses what only they can see."""
    if message.author is not person and message.visible_to != person.user_id:
        raise ValueError("only the author can delete a message")
    remove(world, message)


def lock(world: World, thread: Channel, *, is_archived: bool) -> None:
    """A moderator locks a thread, and closes it too if `is_archived`."""
    thread.is_locked, thread.is_archived = True, is_archived
    tell_channel(world, "THREAD_UPDATE", thread)


def archive(world: World, thread: Channel, *, is_archived: bool) -> None:
    """A moderator closes a thread, or opens it again."""
    thread.is_archived, thread.archived_at = is_archived, time.time()
    tell_channel(world, "THREAD_UPDATE", thread)


def forward(world: World, person: User, place: Channel, forwarded: Message) -> Message:
    """A person forwards a message: it comes as a snapshot, without words of their own (docs.discord.com, Message
    Snapshots)."""
    message = Message(message_id=snowflake(), channel_id=place.channel_id, author=person)
    message.reference = {
        "type": 1,
        "channel_id": forwarded.channel_id,
        "message_id": forwarded.message_id,
        "guild_id": world.channels[forwarded.channel_id].guild_id,
    }
    message.snapshots = [{"message": snapshot_json(world, forwarded)}]
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)
    return message


def purge(world: World, channel: Channel, message_ids: Sequence[str]) -> None:
    """A moderator deletes several messages at once."""
    remove_all(world, channel, list(message_ids))


def set_reaction(world: World, message: Message, person: User, emoji: str, *, is_removed: bool) -> None:
    if not is_emoji(emoji):
        raise ValueError(f"{emoji!r} is no emoji")
    if message.visible_to is not None:
        raise ValueError("a message that only you can see takes no reactions")
    try:
        (unreact if is_removed else react)(world, message, person, emoji)
    except Refused as refused:
        raise ValueError(refused.message) from None


async def press(world: World, message: Message, person: User, control_id: str, value: str) -> None:
    component = find(message.components, control_id)
    if component is None:
        raise ValueError("this control is gone")
    if component.get("disabled"):
        raise ValueError("this control is disabled")
    payload: Json = {"custom_id": control_id, "component_type": component.get("type"), "id": component.get("id")}
    if component.get("type") in SELECTS:
        payload |= _chosen(world, world.channels[message.channel_id], component, value)
    elif component.get("type") != BUTTON or component.get("style") == _LINK_STYLE:
        raise ValueError("this is nothing to press")
    channel = world.channels[message.channel_id]
    interaction = start_interaction(world, COMPONENT, person, channel, payload, source=message)
    await wait_for_answer(world, interaction)


def _chosen(world: World, channel: Channel, select: Json, value: str) -> Json:
    """Several values are parted by commas."""
    values = [part.strip() for part in value.split(",") if part.strip()]
    if not values:
        raise ValueError("choose an option")
    if select.get("type") == STRING_SELECT:
        known = {text_of(option, "value") for option in objects_of(select, "options")}
        values = [value] if value in known else values
        if unknown := set(values) - known:
            raise ValueError(f"there is no option {', '.join(sorted(unknown))}")
        return {"values": values}
    if select.get("type") != _USER_SELECT:
        raise ValueError("the simulator offers no roles or channels to choose")
    users = [user for user in world.everybody(channel) if user.user_id in values]
    if len(users) != len(values):
        raise ValueError("there is no such person")
    resolved: Json = {"users": {user.user_id: user_json(user) for user in users}}
    if (guild := world.guild_of(channel)) is not None:
        resolved["members"] = {user.user_id: member_json(guild, user, with_user=False) for user in users}
    return {"values": values, "resolved": resolved}


async def submit(world: World, person: User, form_id: str, values: dict[str, str]) -> None:
    """The form stays open where the bot does not answer."""
    form = world.forms.get(form_id)
    if form is None or form.person is not person:
        raise ValueError("this form is gone")
    refuse_unfit(form.components, values)
    payload: Json = {"custom_id": form.custom_id, "components": submitted(form.components, values)}
    channel = world.channels[form.channel_id]
    opened_by = form.opened_by
    interaction = start_interaction(
        world, MODAL_SUBMIT, person, channel, payload, source=opened_by.source, opened_by=opened_by
    )
    await wait_for_answer(world, interaction)
    if world.forms.pop(form_id, None) is not None:
        world.touch()
