"""A Discord that does not take layouts gets the same words and buttons in ordinary messages."""

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.discord.render.components import render_content, simplify_message
from bots.inbound.actions import RunButtonPressed
from core.domain.actions import AskAnswered
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address, Ask
from simulator.view import Button

STEP = Task(call_id="1", title="Counting", state="running")
WORKING = RunStatus(run_id="r1", view=RunView(state="working", tasks=(STEP,), can_stop=True))
DONE = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
ASK = AskPrompt(ask=Ask(ask_id="a", run_id="r", text="Which?", options=("red", "blue")))


async def begun(world) -> Address:
    await world.say("@threadhand hello")
    address = (await world.received()).address
    await world.until(lambda: world.general.threads)
    world.discord.settings.knows_layouts = False
    return address


def buttons(world, ref: str) -> dict[str, Button]:
    return {one.label: one for one in world.message(ref).elements if isinstance(one, Button)}


async def test_a_status_is_shown_found_and_edited(world):
    address = await begun(world)
    surface = world.app.surface
    ref = await surface.post(address, WORKING, delivery_id="d1")
    assert "Counting" in str(world.message(ref).elements)
    assert await surface.find(address, "d1") == ref
    await surface.edit(address, ref, DONE)
    assert "Done" in str(world.message(ref).elements)
    assert len(world.thread.messages) == 1
    assert buttons(world, ref) == {}


async def test_the_buttons_of_a_question_and_a_status_do_what_they_say(world):
    address = await begun(world)
    ref = await world.app.surface.post(address, ASK, delivery_id="d1")
    await world.discord.press("alice", address.thread_key, ref, buttons(world, ref)["red"].control_id)
    answered = await world.received(2)
    assert isinstance(answered, AskAnswered)
    assert (answered.ask_id, answered.option) == ("a", 0)
    ref = await world.app.surface.post(address, WORKING, delivery_id="d2")
    await world.discord.press("alice", address.thread_key, ref, buttons(world, ref)["Stop"].control_id)
    assert isinstance(await world.received(3), RunButtonPressed)


async def test_another_refusal_is_told_at_once(world):
    address = await begun(world)
    world.discord.settings.missing_permissions.add("POST /channels/*/messages")
    with pytest.raises(SurfaceRefused) as refusal:
        await world.app.surface.post(address, WORKING, delivery_id="d1")
    assert refusal.value.code == "50013"


def test_an_ordinary_message_stays_as_it_is():
    assert simplify_message(render_content(AnswerPart(markdown="42"))) is None
