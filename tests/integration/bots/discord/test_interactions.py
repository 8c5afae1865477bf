"""Slash commands, buttons, selects and forms."""

import asyncio

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from bots.delivery.run_view import RunView
from bots.discord.interactions.responses import THANKS
from bots.discord.permissions import MISSING_WRITE_PERMISSION, THREAD_LOCKED
from bots.inbound.actions import NOT_STORED, UNKNOWN_CONTROL, CommandCalled, Outcome
from core.domain.actions import AskAnswered, IncomingMessage
from core.domain.threads import Ask
from simulator.discord.people.interactions import COMMAND, MODAL_SUBMIT, start_interaction, wait_for_answer
from simulator.discord.rules.permissions import SEND_IN_THREADS
from simulator.view import SentFile
from tests.support.narrow import require_type

ASK_ID = "019a0000-0000-7000-8000-000000000001"


async def run(world, prompt: str, **more) -> str:
    return await world.discord.command("alice", world.general.channel_id, "agent run", {"prompt": prompt}, **more)


async def asked(world, *options: str):
    """A thread with a question in it; answers the message's id."""
    address = await world.begin()
    ask = Ask(ask_id=ASK_ID, run_id="r", text="Which?", options=options)
    return await world.app.surface.post(address, AskPrompt(ask=ask), delivery_id="d1")


async def press(world, message_id: str, control: str, value: str = "") -> None:
    await world.discord.press("bob", world.general.channel_id, message_id, f"th:ask:{ASK_ID}:{control}", value=value)


async def ask_and_write(world):
    """Asks a question and opens the form for an own answer. Returns the question's message id and the form."""
    message_id = await asked(world, "red", "blue")
    await press(world, message_id, "write")
    await world.until(lambda: world.discord.view().forms)
    (form,) = world.discord.view().forms
    return message_id, form


async def test_run_in_a_channel_opens_a_thread_under_its_answer(world) -> None:
    await run(world, "count the @everyone lines")
    inbound = require_type(await world.received(), IncomingMessage)
    assert (inbound.text, inbound.is_addressed) == ("count the @everyone lines", True)
    await world.until(lambda: world.general.threads)
    (answer,) = world.general.messages
    assert answer.elements[0].text == "**On it:** count the @\u200deveryone lines"
    assert world.thread.thread_id == answer.message_id == inbound.address.thread_key
    assert inbound.message_ref == answer.message_id
    thread = world.discord.world.channels[answer.message_id]
    alice = world.discord.world.people["alice"].user_id
    await world.until(lambda: alice in thread.members)
    await world.say("go on", thread_id=answer.message_id)
    assert (await world.received(2)).address == inbound.address


async def test_commands_are_named_and_described_in_the_persons_language(world) -> None:
    world.discord.settings.locale = "de"
    commands = {one.name: one for one in world.discord.view().commands}
    run_command = commands["agent starten"]
    assert run_command.description == "Dem Agenten eine Aufgabe geben"
    assert run_command.options[0].description == "Was der Agent tun soll"
    options = {"prompt": "zähle die Zeilen"}
    await world.discord.command("alice", world.general.channel_id, "agent starten", options)
    assert (await world.received()).text == "zähle die Zeilen"
    world.discord.settings.locale = "ko"
    assert "agent run" in {one.name for one in world.discord.view().commands}


async def test_a_refused_run_is_told_to_the_person_alone(world) -> None:
    async def answer(inbound):
        return Outcome(notice="You may not.", is_ignored=True)

    world.program.answer = answer
    await run(world, "count")
    await world.until(lambda: [bool(m.visible_to) for m in world.general.messages] == [True])
    (notice,) = world.general.messages
    assert notice.elements[0].text == "You may not."
    assert world.general.threads == ()


async def test_what_cannot_be_stored_is_told_to_be_tried_again(world) -> None:
    world.program.failures = 2
    await run(world, "count")
    await world.until(lambda: NOT_STORED in str(world.general.messages[0].elements))
    await world.discord.command("alice", world.general.channel_id, "usage", {})
    await world.until(lambda: NOT_STORED in str(world.general.messages[1].elements))


@pytest.mark.parametrize("is_slash", [True, False])
async def test_knowledge_of_a_channel_gets_a_thread_in_which_it_is_known(world, is_slash: bool) -> None:
    async def answer(inbound):
        return Outcome(notice="I know it.", is_private=False)

    world.program.answer = answer
    file = SentFile(name="a.txt", content=b"hello", mime_type="text/plain")
    if is_slash:
        await world.discord.command(
            "alice", world.general.channel_id, "agent knowledge", {"action": "add"}, files={"file": file}
        )
    else:
        await world.say("@threadhand knowledge add", files=[file])
    inbound = require_type(await world.received(), CommandCalled)
    assert (inbound.name, inbound.argument) == ("knowledge", "add")
    assert [one.name for one in inbound.files] == ["a.txt"]
    await world.until(lambda: world.general.threads)
    assert world.thread.thread_id == inbound.address.thread_key
    await world.until(lambda: "I know it." in str(world.general.messages))


@pytest.mark.parametrize("is_private", [True, False])
async def test_a_command_that_takes_long_is_answered_to_whom_it_is_for(world, is_private: bool) -> None:
    gate = asyncio.Event()

    async def answer(inbound):
        await gate.wait()
        return Outcome(notice="I know it now.", is_private=is_private)

    world.program.answer = answer
    await world.discord.command("alice", world.general.channel_id, "agent knowledge", {"action": "list"})
    gate.set()
    await world.until(lambda: ["I know it now." in str(one.elements) for one in world.general.messages] == [True])
    assert (world.general.messages[0].visible_to is not None) == is_private


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_long_notice_is_shown_whole_in_several_messages(world, is_late: bool) -> None:
    lines = [f"- `s{number:02}` {'x' * 200}" for number in range(20)]
    gate = asyncio.Event()

    async def answer(inbound):
        await gate.wait()
        return Outcome(notice="\n".join(lines), commands={"More": "schedules all"})

    world.program.answer = answer
    if not is_late:
        gate.set()
    await world.discord.command("alice", world.general.channel_id, "agent schedules", {})
    gate.set()
    await world.until(lambda: all(line[2:7] in str(world.general.messages) for line in lines))
    assert [bool(one.visible_to) for one in world.general.messages] == [True] * 3


async def test_thumbs_under_an_answer_are_feedback_and_a_bad_one_asks_for_the_reason(world) -> None:
    address = await world.begin()
    answer = AnswerPart(markdown="It is done.", run_id="r")
    message_id = await world.app.surface.post(address, answer, delivery_id="d1")
    channel = world.general.channel_id
    await world.discord.press("bob", channel, message_id, "th:feedback:good:r")
    await world.until(lambda: private_notices(world.thread) == [THANKS])
    await world.discord.press("bob", channel, message_id, "th:feedback:bad:r")
    await world.until(lambda: world.discord.view().forms)
    (form,) = world.discord.view().forms
    await world.discord.submit("bob", form.form_id, {"answer": "Wrong year."})
    await world.until(lambda: private_notices(world.thread) == [THANKS, THANKS])
    given = world.program.received[1:]
    assert [(one.run_id, one.is_good, one.text) for one in given] == [
        ("r", True, ""),
        ("r", False, ""),
        ("r", False, "Wrong year."),
    ]
    assert {one.address.thread_key for one in given} == {address.thread_key}


async def refuse_writing(world, way: str) -> str:
    """The bot may not write in the thread any longer. Returns the words in which a person is told."""
    if way == "locked":
        world.discord.lock_thread(world.thread.thread_id)
        await world.received(2)
        return THREAD_LOCKED
    world.discord.allow("4001", denied=SEND_IN_THREADS)
    return MISSING_WRITE_PERMISSION


@pytest.mark.parametrize("way", ["locked", "forbidden"])
async def test_an_answer_waits_where_the_bot_may_not_write(world, way: str) -> None:
    """The question stays open, so that it can be answered once the bot may write there."""
    message_id = await asked(world, "red", "blue")
    why = await refuse_writing(world, way)
    before = len(world.program.received)
    await press(world, message_id, "1")
    await world.until(lambda: private_notices(world.thread) == [why])
    assert len(world.program.received) == before


async def test_buttons_and_forms_work_after_a_restart(world, connect) -> None:
    message_id, form = await ask_and_write(world)
    await world.app.close()
    again = await connect(world.program)
    assert again.discord.view().forms == (form,)
    await again.discord.submit("bob", form.form_id, {"answer": "green"})
    assert (await again.received(2)).text == "green"
    await press(again, message_id, "0")
    assert (await again.received(3)).option == 0


@pytest.mark.parametrize("is_cached", [True, False])
async def test_a_click_that_names_its_channel_by_id_only_is_answered(world, is_cached) -> None:
    """Also in a thread that was archived before the bot connected, which the gateway does not list."""
    message_id = await asked(world, "yes", "no")
    world.discord.settings.names_interaction_channels = False
    if not is_cached:
        guild = world.app.client.guilds[0]
        guild._threads.clear()
    await press(world, message_id, "1")
    answered = require_type(await world.received(2), AskAnswered)
    assert (answered.address, answered.option) == (world.program.received[0].address, 1)


@pytest.mark.parametrize("control", ["th:run:explode:r7", "th:command:of yesterday", "of_another_version"])
async def test_a_control_that_the_bot_does_not_know_is_answered(world, control) -> None:
    button = {"type": 2, "style": 2, "label": "Go", "custom_id": control}
    posted = await world.app.client.rest.call(
        "POST",
        "/channels/{channel_id}/messages",
        body={"content": "x", "components": [{"type": 1, "components": [button]}]},
        channel_id=world.general.channel_id,
    )
    await world.discord.press("bob", world.general.channel_id, str(posted["id"]), control)
    assert private_notices(world.general) == [UNKNOWN_CONTROL]
    assert world.program.received == []


def private_notices(place) -> list[str]:
    shown = [one for one in place.messages if one.visible_to is not None]
    return [one.elements[0].text for one in shown]


async def test_run_in_a_direct_message_stays_there(world) -> None:
    await world.discord.command("alice", world.direct.channel_id, "agent run", {"prompt": "count"})
    assert (await world.received()).address.thread_key == "dm"


@pytest.mark.parametrize("action", ["retry", "continue"])
async def test_a_retry_starts_nothing_where_the_bot_may_not_write(world, action: str) -> None:
    address = await world.begin()
    status = RunStatus(run_id="r7", view=RunView(state="limited", can_retry=True, can_continue=True))
    ref = await world.app.surface.post(address, status, delivery_id="d1")
    why = await refuse_writing(world, "locked")
    before = len(world.program.received)
    await world.discord.press("alice", world.general.channel_id, ref, f"th:run:{action}:r7")
    await world.until(lambda: private_notices(world.thread) == [why])
    assert len(world.program.received) == before


async def test_a_command_and_a_form_that_the_bot_does_not_know_are_answered(world, caplog) -> None:
    simulated = world.discord.world
    place = (simulated.people["bob"], simulated.channels[world.general.channel_id])
    command = {"id": "1", "name": "of_another_version", "type": 1}
    called = start_interaction(simulated, COMMAND, *place, command)
    await wait_for_answer(simulated, called)
    form = {"custom_id": "th:another:form", "components": []}
    sent = start_interaction(simulated, MODAL_SUBMIT, *place, form, opened_by=called)
    await wait_for_answer(simulated, sent)
    assert private_notices(world.general) == [UNKNOWN_CONTROL, UNKNOWN_CONTROL]
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
    for name in ("of_another_version", "th:another:form"):
        assert any(name in one for one in caplog.messages)
    assert world.program.received == []
