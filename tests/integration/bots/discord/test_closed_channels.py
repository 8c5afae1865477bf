"""What people are told if the bot cannot answer, before any work begins, and what moderators close stays closed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bots.delivery.content import Notice
from bots.discord.address import DIRECT
from bots.discord.permissions import MISSING_WRITE_PERMISSION, NO_THREADS_HERE
from core.domain.actions import IncomingMessage, StopRequested
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from simulator.discord.gateway.events import tell_channel
from simulator.discord.rules.permissions import MANAGE_THREADS, SEND, SEND_IN_THREADS
from simulator.discord.world import FORUM, PRIVATE_THREAD, THREAD, VOICE, Channel
from tests.support.narrow import require_type


def shown(messages) -> list[str]:
    return [one.elements[0].text for one in messages if one.is_bot]


async def test_a_thread_in_which_the_bot_may_not_write_gets_a_word_in_its_channel(world) -> None:
    thread_id = (await world.begin()).thread_key
    world.discord.allow("4001", denied=SEND_IN_THREADS)
    await world.say("hello bob", thread_id=thread_id)
    said = await world.say("@threadhand more", thread_id=thread_id)
    await world.until(lambda: world.message(said).reactions and shown(world.general.messages))
    assert [one.emoji for one in world.message(said).reactions] == ["❌"]
    assert shown(world.general.messages) == [f"@alice <#{thread_id}>: {MISSING_WRITE_PERMISSION}"]
    assert len(world.program.received) == 1


async def test_a_channel_in_which_the_bot_may_not_write_gets_a_word_in_private(world) -> None:
    world.discord.allow("4001", denied=SEND | SEND_IN_THREADS)
    await world.say("@threadhand hello")
    await world.until(lambda: shown(world.direct.messages))
    assert "Send Messages in Threads" in shown(world.direct.messages)[0]
    assert (world.program.received, shown(world.general.messages)) == ([], [])


async def test_who_has_no_access_is_told_nothing_of_the_channel(world) -> None:
    async def admits(_action) -> bool:
        return False

    world.app.client.event_handler.admits = admits
    world.discord.allow("4001", denied=SEND_IN_THREADS)
    await world.say("@threadhand hello")
    await world.received()  # the receiver refuses it in its own words
    assert shown(world.general.messages) == []


async def working(world) -> tuple[Address, str]:
    """The thread and the status message of a run. The bot may manage threads."""
    world.discord.settings.bot_permissions |= MANAGE_THREADS
    address = await world.begin()
    return address, await world.app.surface.post(address, Notice(markdown="working"), delivery_id="d1")


@pytest.mark.parametrize("is_archived", [False, True])
async def test_a_locked_thread_stops_its_run_and_stays_closed(world, is_archived: bool) -> None:
    """Also for a bot that may manage threads, and could write there."""
    address, status = await working(world)
    world.discord.lock_thread(address.thread_key, is_archived=is_archived)
    stop = require_type(await world.received(2), StopRequested)
    assert (stop.address, stop.person.person_id) == (address, "")
    await stays_closed(world, world.app, address, status, is_archived=is_archived)


@pytest.mark.parametrize("is_archived", [False, True])
async def test_a_thread_that_was_locked_while_the_bot_was_away_stays_closed(world, connect, is_archived: bool) -> None:
    address, status = await working(world)
    await world.app.close()
    world.discord.lock_thread(address.thread_key, is_archived=is_archived)
    app = (await connect(world.program)).app
    assert require_type(await world.received(2), StopRequested).address == address
    await stays_closed(world, app, address, status, is_archived=is_archived)


async def test_a_thread_is_looked_at_before_the_first_post_of_a_session(world, connect) -> None:
    """Because not all archived threads are looked at when the bot starts."""
    address, status = await working(world)
    await world.app.close()
    world.discord.lock_thread(address.thread_key, is_archived=True)
    world.program.cursor_of.clear()
    app = (await connect(world.program)).app
    await stays_closed(world, app, address, status, is_archived=True)


async def stays_closed(world, app, address: Address, status: str, *, is_archived: bool) -> None:
    before = len(world.thread.messages)
    with pytest.raises(SurfaceRefused) as refused:
        await app.surface.post(address, Notice(markdown="answer"), delivery_id="d1")
    assert refused.value.code == "160005"
    if is_archived:
        with pytest.raises(SurfaceRefused):
            await app.surface.edit(address, status, Notice(markdown="stopped"))
    thread = world.discord.world.channels[address.thread_key]
    assert (thread.is_archived, thread.is_locked) == (is_archived, True)
    assert len(world.thread.messages) == before


async def test_a_deleted_thread_stops_its_run_and_no_other_is_opened(world, connect) -> None:
    address = await world.begin()
    world.discord.delete_channel(address.thread_key)
    assert isinstance(await world.received(2), StopRequested)
    restarted = await connect(world.program)  # it has not seen how the thread was deleted
    for app in (world.app, restarted.app):
        with pytest.raises(SurfaceRefused) as refused:
            await app.surface.post(address, Notice(markdown="answer"), delivery_id="d1")
        assert refused.value.code == "10003"
    assert world.general.threads == ()


async def test_the_chat_of_a_voice_channel_says_why_it_does_not_work(world) -> None:
    voice = world.discord.add_channel("meeting", VOICE)
    await world.until(lambda: world.app.client.get_channel(int(voice.channel_id)))
    await world.discord.say("alice", voice.channel_id, "@threadhand hello")
    await world.until(lambda: any(shown(one.messages) == [NO_THREADS_HERE] for one in world.discord.view().channels))
    assert world.program.received == []


async def test_a_long_forum_post_is_read_with_its_first_message(world) -> None:
    forum = world.discord.add_channel("help", FORUM).channel_id
    post = await world.discord.open_thread("alice", forum, "a question")
    for words in ("Why is it red?", "Since when?", "@threadhand hello"):
        await world.discord.say("alice", forum, words, thread_id=post)
    address = (await world.received(3)).address
    later = datetime.now(UTC) + timedelta(days=1)
    page = await world.app.thread_history.read(address, before=later, limit=1)
    assert page.root is not None
    assert (page.root.text, page.root.message_ref) == ("Why is it red?", post)
    assert [one.text for one in page.messages] == ["@threadhand hello"]
    whole = await world.app.thread_history.read(address, before=later, limit=5)
    assert (whole.root, len(whole.messages)) == (None, 3)


async def test_a_task_in_a_forum_begins_a_post_and_only_once(world) -> None:
    """A forum takes no messages outside of its posts."""
    forum = world.discord.add_channel("help", FORUM)
    await world.until(lambda: world.app.client.get_channel(int(forum.channel_id)))
    place = Address(platform="discord", workspace_id="3001", channel_id=forum.channel_id, thread_key="")

    async def begin(delivery_id: str, *, may_be_posted: bool) -> str:
        return await world.app.surface.begin_thread(
            place,
            Notice(markdown="It is time."),
            title="Say it is time.",
            delivery_id=delivery_id,
            may_be_posted=may_be_posted,
            precondition=is_allowed,
        )

    async def is_allowed() -> None:
        pass

    ref = await begin("d1", may_be_posted=True)
    await world.until(lambda: world.app.client.guilds[0].get_thread(int(ref)))
    assert await begin("d1", may_be_posted=True) == ref
    assert await begin("d2", may_be_posted=True) != ref
    post = world.discord.world.channels[ref]
    assert (post.name, post.parent_id, list(post.messages)) == ("Say it is time.", forum.channel_id, [ref])
    await world.app.surface.post(replace(place, thread_key=ref), Notice(markdown="Done."), delivery_id="d3")
    assert len(post.messages) == 2


async def open_post(
    world, *tags: str, applied: Sequence[str] = (), granted: int = MANAGE_THREADS
) -> tuple[IncomingMessage, Channel]:
    """Opens a forum post with tags, and returns the request in it and its channel once the bot knows it."""
    forum = world.discord.add_channel("help", FORUM, tags=tags)
    world.discord.allow(forum.channel_id, granted=granted)
    thread_id = await world.discord.open_thread("alice", forum.channel_id, "a question")
    post: Channel = world.discord.world.channels[thread_id]
    post.applied_tags = [tag for tag, name in forum.available_tags.items() if name in applied]
    tell_channel(world.discord.world, "THREAD_UPDATE", post)
    await world.until(
        lambda: (
            (known := world.app.client.guilds[0].get_thread(int(thread_id))) and len(known.applied_tags) == len(applied)
        )
    )
    await world.discord.say("alice", forum.channel_id, "@threadhand hello", thread_id=thread_id)
    request = require_type(await world.received(), IncomingMessage)
    return request, post


def tags_of(world, post: Channel) -> list[str]:
    forum = world.discord.world.channels[post.parent_id]
    return [forum.available_tags[tag] for tag in post.applied_tags]


async def test_a_forum_post_has_its_state_as_a_tag_and_keeps_peoples_tags(world) -> None:
    tags = ("Working", "waiting", "Done", "bug", "urgent")
    request, post = await open_post(world, *tags, applied=("bug", "Done"))
    for reaction, expected in (("seen", "Working"), ("asking", "waiting"), ("done", "Done")):
        await world.app.surface.react(request.address, request.message_ref, reaction)
        assert tags_of(world, post) == ["bug", expected]


@pytest.mark.parametrize("why", ["no permission", "no such tags", "too many tags", "refused"])
async def test_a_forum_post_keeps_its_tags_if_the_state_cannot_be_one(world, why: str) -> None:
    granted = 0 if why == "no permission" else MANAGE_THREADS
    mine = ("a", "b", "c", "d", "e") if why == "too many tags" else ("a",)
    states = () if why == "no such tags" else ("working", "done")
    request, post = await open_post(world, *mine, *states, applied=mine, granted=granted)
    if why == "refused":
        world.discord.settings.missing_permissions.add(f"PATCH /channels/{post.channel_id}")
    await world.app.surface.react(request.address, request.message_ref, "seen")
    assert tags_of(world, post) == list(mine)
    changes = [call for call in world.discord.calls if call.method == "PATCH"]
    assert len(changes) == (why == "refused")


@pytest.mark.parametrize("parent", [FORUM, None])
async def test_a_forum_post_and_a_private_thread_work(world, parent: int | None) -> None:
    channel_id = "4001" if parent is None else world.discord.add_channel("ideas", FORUM).channel_id
    kind = PRIVATE_THREAD if parent is None else THREAD
    thread_id = await world.discord.open_thread("alice", channel_id, "an idea", kind)
    await world.until(lambda: world.app.client.guilds[0].get_thread(int(thread_id)))
    await world.discord.say("alice", channel_id, "@threadhand hello", thread_id=thread_id)
    request = require_type(await world.received(), IncomingMessage)
    assert request.address.thread_key == thread_id != DIRECT
    # a private thread is a channel of its own, because not everybody in its channel can read it
    assert request.address.channel_id == (f"{channel_id}/{thread_id}" if parent is None else channel_id)
    await world.app.surface.post(request.address, Notice(markdown="hi"), delivery_id="d1")
    thread: Channel = world.discord.world.channels[thread_id]
    assert [one.author.name for one in thread.messages.values()] == ["alice", "threadhand"]


async def test_talk_in_a_closed_thread_is_left_alone(world) -> None:
    thread_id = (await world.begin()).thread_key
    world.discord.allow("4001", denied=SEND_IN_THREADS)
    await world.say("hello bob", thread_id=thread_id)
    await world.say("@threadhand hello", thread_id=thread_id)
    await world.until(lambda: shown(world.general.messages))
    assert (len(world.program.received), len(shown(world.general.messages))) == (1, 1)
