"""Threads: started from a message or without one, their members, the active and the archived."""

import time

from simulator.discord.gateway.events import tell_channel, tell_message, tell_thread_members
from simulator.discord.json_reading import Json, int_of, object_of, snowflake, text_of
from simulator.discord.payloads import channel_json, message_json, thread_member_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.channels import ARCHIVE_MINUTES
from simulator.discord.rest.errors import (
    ARCHIVED,
    HAS_THREAD,
    TOO_MANY_THREADS,
    UNKNOWN_CHANNEL,
    UNKNOWN_GUILD,
    UNKNOWN_MEMBER,
    UNKNOWN_USER,
    WRONG_CHANNEL_TYPE,
    FormErrors,
    Refused,
)
from simulator.discord.rules.message_drafts import Scope, draft
from simulator.discord.rules.permissions import CREATE_PRIVATE_THREADS, CREATE_THREADS, require, require_writing
from simulator.discord.world import (
    ANNOUNCEMENT_THREAD,
    ANNOUNCEMENTS,
    FORUM,
    PRIVATE_THREAD,
    TEXT_CHANNEL,
    THREAD,
    Channel,
    Message,
    User,
    World,
)

_THREAD_CREATED, _THREAD_STARTER = 18, 21
_KINDS = (10, 11, 12)


def start_from_message(world: World, call: Call) -> Reply:
    """The thread has the id of the message; a message has at most one."""
    message = world.message(call.arguments["channel"], call.arguments["message"])
    channel = _parent(world, call)
    require(world, channel, CREATE_THREADS)
    thread = start(world, message, channel, _checked(call))
    return Reply(body=channel_json(world, thread), status=201)


def start(world: World, message: Message, channel: Channel, body: Json) -> Channel:
    """A thread from a message, which gets the message's id. Raises Refused."""
    if message.message_id in world.channels:
        raise Refused(HAS_THREAD)
    thread = _start(world, channel, body, message.message_id)
    tell_message(world, "MESSAGE_UPDATE", message)
    _say(world, thread.channel_id, message.author, _THREAD_STARTER, "", message.channel_id, message)
    return thread


def open_by_person(world: World, person: User, channel_id: str, name: str, kind: int) -> Channel:
    """A thread without a starting message, such as a forum's post. The person adds the bot to it."""
    thread = _start(world, world.channels[channel_id], {"name": name, "type": kind}, snowflake())
    thread.owner_id = person.user_id
    add_member(world, thread, person)
    return thread


def start_without_message(world: World, call: Call) -> Reply:
    """A post in a forum is a thread whose first message has the same id as the thread."""
    forum = world.channel(call.arguments["channel"])
    if forum.kind == FORUM:
        return _begin_post(world, call, forum)
    channel, body = _parent(world, call), _checked(call)
    if body.get("type") is not None:
        errors = FormErrors()
        errors.choice(("type",), body.get("type"), _KINDS)
        errors.raise_if_any()
    is_private = body.get("type", PRIVATE_THREAD) == PRIVATE_THREAD
    require(world, channel, CREATE_PRIVATE_THREADS if is_private else CREATE_THREADS)
    thread = _start(world, channel, body, snowflake())
    _say(world, channel.channel_id, world.bot, _THREAD_CREATED, thread.name, thread.channel_id)
    return Reply(body=channel_json(world, thread), status=201)


def join(world: World, call: Call) -> Reply:
    thread = _thread(world, call)
    user = _user(world, call)
    if thread.is_archived:
        raise Refused(ARCHIVED)
    if user is not world.bot:
        require_writing(world, thread)
    add_member(world, thread, user)
    return Reply()


def leave(world: World, call: Call) -> Reply:
    thread, user = _thread(world, call), _user(world, call)
    if thread.members.pop(user.user_id, None) is not None:
        tell_thread_members(world, thread, removed=user)
    return Reply()


def get_member(world: World, call: Call) -> Reply:
    thread, user = _thread(world, call), _user(world, call)
    if user.user_id not in thread.members:
        raise Refused(UNKNOWN_MEMBER)
    return Reply(body=thread_member_json(thread, user.user_id))


def list_members(world: World, call: Call) -> Reply:
    thread = _thread(world, call)
    return Reply(body=[thread_member_json(thread, user_id) for user_id in thread.members])


def active_threads(world: World, call: Call) -> Reply:
    guild_id = call.arguments["guild"]
    if guild_id not in world.guilds:
        raise Refused(UNKNOWN_GUILD)
    channels = [item for item in world.channels.values() if item.guild_id == guild_id]
    threads = [item for item in channels if item.is_thread]
    return Reply(body=_listed(world, [item for item in threads if not item.is_archived]))


def archived_threads(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    limit = call.number("limit", 50, 1, 100)
    threads = [item for item in world.channels.values() if item.parent_id == channel.channel_id and item.is_archived]
    threads.sort(key=lambda thread: thread.archived_at, reverse=True)
    body = _listed(world, threads[:limit])
    return Reply(body={**body, "has_more": len(threads) > limit})


def add_member(world: World, thread: Channel, user: User) -> None:
    if user.user_id not in thread.members:
        thread.members[user.user_id] = time.time()
        tell_thread_members(world, thread, added=user)


def _listed(world: World, threads: list[Channel]) -> Json:
    bot = world.bot.user_id
    joined = [thread for thread in threads if bot in thread.members]
    return {
        "threads": [channel_json(world, thread) for thread in threads],
        "members": [thread_member_json(thread, bot) for thread in joined],
    }


def _begin_post(world: World, call: Call, forum: Channel) -> Reply:
    body = _checked(call)
    require_writing(world, forum)
    if not isinstance(body.get("message"), dict):
        errors = FormErrors()
        errors.required(("message",))
        errors.raise_if_any()
    message = draft(world, call, object_of(body, "message"), Scope(channel_id=forum.channel_id))
    post = _start(world, forum, {"name": text_of(body, "name")}, message.message_id)
    message.channel_id = post.channel_id
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)
    return Reply(body={**channel_json(world, post), "message": message_json(world, message)}, status=201)


def _start(world: World, channel: Channel, body: Json, thread_id: str) -> Channel:
    active = [
        one
        for one in world.channels.values()
        if one.is_thread and one.guild_id == channel.guild_id and not one.is_archived
    ]
    if len(active) >= world.settings.threads_max:
        raise Refused(TOO_MANY_THREADS)
    thread = Channel(
        channel_id=thread_id,
        kind=ANNOUNCEMENT_THREAD if channel.kind == ANNOUNCEMENTS else int_of(body, "type") or THREAD,
        name=text_of(body, "name"),
        guild_id=channel.guild_id,
        parent_id=channel.channel_id,
        owner_id=world.bot.user_id,
        auto_archive_minutes=int_of(body, "auto_archive_duration") or 1440,
        members={world.bot.user_id: time.time()},
    )
    world.channels[thread_id] = thread
    tell_channel(world, "THREAD_CREATE", thread, is_new=True)
    return thread


def _say(
    world: World,
    channel_id: str,
    author: User,
    kind: int,
    content: str,
    referred_channel: str,
    referred: Message | None = None,
) -> None:
    """The message that Discord itself writes when a thread starts."""
    guild_id = world.channels[channel_id].guild_id
    reference: Json = {"type": 0, "channel_id": referred_channel, "guild_id": guild_id}
    if referred is not None:
        reference["message_id"] = referred.message_id
    message = Message(
        message_id=snowflake(), channel_id=channel_id, author=author, kind=kind, content=content, reference=reference
    )
    world.add(message)
    tell_message(world, "MESSAGE_CREATE", message)


def _checked(call: Call) -> Json:
    body, errors = call.fields(), FormErrors()
    if body.get("name") is None:
        errors.required(("name",))
    else:
        errors.length(("name",), body.get("name"), 100, 1)
    if body.get("auto_archive_duration") is not None:
        path = ("auto_archive_duration",)
        errors.choice(path, body.get("auto_archive_duration"), ARCHIVE_MINUTES)
    errors.raise_if_any()
    return body


def _parent(world: World, call: Call) -> Channel:
    channel = world.channel(call.arguments["channel"])
    if channel.kind not in (TEXT_CHANNEL, ANNOUNCEMENTS):
        raise Refused(WRONG_CHANNEL_TYPE)
    return channel


def _thread(world: World, call: Call) -> Channel:
    channel = world.channel(call.arguments["channel"])
    if not channel.is_thread:
        raise Refused(UNKNOWN_CHANNEL)
    return channel


def _user(world: World, call: Call) -> User:
    named = call.arguments.get("user", "@me")
    present = world.everybody(world.channel(call.arguments["channel"]))
    user = world.bot if named == "@me" else next((one for one in present if one.user_id == named), None)
    if user is None:
        raise Refused(UNKNOWN_USER)
    return user
