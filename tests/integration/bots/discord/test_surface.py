"""Posting, editing, finding, uploading and signing, against the simulated Discord."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, Notice, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.demo.thread_reader import text_of
from bots.inbound.actions import RunButtonPressed
from core.domain.actions import AskAnswered
from core.domain.errors import SurfaceRefused
from core.domain.ids import new_id
from core.domain.threads import Address, Ask
from core.ports import OutgoingFile
from simulator.view import Button
from tests.support.narrow import require_type

WORKING = RunStatus(
    run_id="r1", view=RunView(state="working", tasks=(Task(call_id="1", title="Counting", state="running"),))
)


def file_of(name: str, content: bytes) -> OutgoingFile:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    return OutgoingFile(name=name, size_bytes=len(content), pieces=pieces())


def texts(world, message_id: str) -> str:
    return "\n".join(getattr(e, "text", "") for e in world.message(message_id).elements)


async def test_a_status_is_posted_once_and_then_edited(world) -> None:
    address = await world.begin()
    ref = await world.app.surface.post(address, WORKING, delivery_id="d1")
    assert "▸ Counting" in texts(world, ref)
    done = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
    await world.app.surface.edit(address, ref, done)
    assert "Done" in texts(world, ref)
    assert world.message(ref).edits == 1
    assert len(world.thread.messages) == 1


@pytest.mark.parametrize(
    "content",
    [
        WORKING,
        AnswerPart(markdown="42"),
        AskPrompt(ask=Ask(ask_id="a", run_id="r", text="Which?", options=("x", "y"))),
        Notice(markdown="Careful.", level="warning"),
    ],
)
async def test_everything_posted_is_found_by_its_delivery_id(world, content) -> None:
    address = await world.begin()
    ref = await world.app.surface.post(address, content, delivery_id="d1")
    await world.app.surface.post(address, content, delivery_id="d2")
    assert await world.app.surface.find(address, "d1") == ref
    assert await world.app.surface.find(address, "d3") is None


async def test_a_message_is_found_below_a_long_conversation_since(world) -> None:
    address = await world.begin()
    delivery_id = new_id()
    ref = await world.app.surface.post(address, AnswerPart(markdown="42"), delivery_id=delivery_id)
    for number in range(150):
        await world.discord.say("bob", world.thread.thread_id, f"word {number}")
    assert await world.app.surface.find(address, delivery_id) == ref


async def test_an_answer_comes_with_its_files_and_each_is_found(world) -> None:
    address = await world.begin()
    ids = [str(uuid.uuid4()) for _ in range(11)]
    files = [replace(file_of(f"{at}.csv", b"x" * 50), delivery_id=one) for at, one in enumerate(ids[1:])]
    answer = AnswerPart(markdown="Here they are.")
    ref = await world.app.surface.post(address, answer, files=files, delivery_id=ids[0])
    seen = world.message(ref)
    assert [one.name for one in seen.files] == [f"{at}.csv" for at in range(10)]
    assert "Here they are." in text_of(seen)
    assert {await world.app.surface.find(address, one) for one in ids} == {ref}
    assert await world.app.surface.find(address, str(uuid.uuid4())) is None


async def test_files_that_are_too_large_together_are_refused_before_they_are_sent(world) -> None:
    address = await world.begin()
    half = world.app.surface.file_limit(address) // 2 + 1
    before = world.calls("POST", "/messages")
    files = [OutgoingFile(name="a", size_bytes=half, pieces=file_of("a", b"x").pieces) for _ in "ab"]
    with pytest.raises(SurfaceRefused) as refused:
        await world.app.surface.post(address, AnswerPart(markdown="x"), files=files, delivery_id="d1")
    assert refused.value.code == "too_large"
    assert world.calls("POST", "/messages") == before


async def test_a_person_is_told_elsewhere_what_a_locked_thread_refuses(world) -> None:
    address = await world.begin()
    await world.discord.say("alice", world.direct.channel_id, "hello")
    thread = world.discord.world.channels[world.thread.thread_id]
    thread.is_archived = thread.is_locked = True
    with pytest.raises(SurfaceRefused) as refusal:
        await world.app.surface.post(address, AnswerPart(markdown="42"), delivery_id="d1")
    assert refusal.value.code in world.app.surface.closed_reasons
    alice = (await world.received(2)).person.person_id
    places = [one async for one in world.app.surface.fallback_addresses(address, alice)]
    for place in places:
        delivery_id = new_id()
        posted = await world.app.surface.post(place, WORKING, delivery_id=delivery_id)
        assert await world.app.surface.find(place, delivery_id) == posted
    assert [place.channel_id for place in places] == [world.general.channel_id, world.direct.channel_id]


STEP = Task(call_id="1", title="Counting", state="running")
STOPPABLE = RunStatus(run_id="r1", view=RunView(state="working", tasks=(STEP,), can_stop=True))
DONE = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
ASK = AskPrompt(ask=Ask(ask_id="a", run_id="r", text="Which?", options=("red", "blue")))


def buttons(world, ref: str) -> dict[str, Button]:
    return {one.label: one for one in world.message(ref).elements if isinstance(one, Button)}


async def test_without_layouts_a_status_and_a_question_are_shown_found_and_pressed(world):
    address = await world.begin()
    world.discord.settings.knows_layouts = False
    surface = world.app.surface
    ref = await surface.post(address, ASK, delivery_id="d1")
    await world.discord.press("alice", address.thread_key, ref, buttons(world, ref)["red"].control_id)
    answered = require_type(await world.received(2), AskAnswered)
    assert (answered.ask_id, answered.option) == ("a", 0)
    ref = await surface.post(address, STOPPABLE, delivery_id="d2")
    assert "Counting" in str(world.message(ref).elements)
    assert await surface.find(address, "d2") == ref
    await world.discord.press("alice", address.thread_key, ref, buttons(world, ref)["Stop"].control_id)
    pressed = require_type(await world.received(3), RunButtonPressed)
    assert (pressed.run_id, pressed.action) == ("r1", "stop")
    await surface.edit(address, ref, DONE)
    assert "Done" in str(world.message(ref).elements)
    assert buttons(world, ref) == {}


async def test_an_edit_wakes_a_thread_that_sleeps(world) -> None:
    address = await world.begin()
    ref = await world.app.surface.post(address, WORKING, delivery_id="d1")
    world.discord.world.channels[address.thread_key].is_archived = True
    done = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
    await world.app.surface.edit(address, ref, done)
    assert "Done" in texts(world, ref)


async def test_a_message_of_the_bot_is_deleted(world) -> None:
    address = await world.begin()
    ref = await world.app.surface.post(address, WORKING, delivery_id="d1")
    await world.app.surface.delete(address, ref)
    assert list(world.thread.messages) == []
    with pytest.raises(SurfaceRefused) as refused:
        await world.app.surface.delete(address, ref)
    assert refused.value.code == "10008"


async def test_a_missing_thread_is_opened_by_the_first_post(world) -> None:
    message_id = await world.say("hello, nobody")
    address = Address(
        platform="discord",
        workspace_id=world.discord.world.home.guild_id,
        channel_id=world.general.channel_id,
        thread_key=message_id,
    )
    assert await world.app.surface.find(address, "d1") is None
    ref = await world.app.surface.post(address, AnswerPart(markdown="42"), delivery_id="d1")
    assert world.thread.thread_id == message_id
    assert world.thread.messages[0].message_id == ref
