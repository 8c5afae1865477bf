"""The command `why`: what the newest run has read, what it asked, and who answered."""

import json
from dataclasses import replace

from core.domain.approval import DENY
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ReceiverStage, command
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.integration.core.test_consent import EVIL, PAGE, READING, with_tools


async def answer(stage: ReceiverStage, key: str) -> str:
    return (await stage.receiver.receive(replace(command("why", key), address=stage.world.address))).notice


async def test_it_says_what_was_read_and_who_answered(stage: ReceiverStage) -> None:
    with_tools(stage.world)
    send = calls(("send", json.dumps({"to": EVIL})))
    stage.world.model.turns = [READING, send, text("I did not send it.")]
    await stage.world.run(f"Read {PAGE}.")
    assert "no answer yet" in await answer(stage, "k1")
    await stage.world.run(DENY)
    shown = await answer(stage, "k2")
    assert "- the page `example.com/howto`, read just now" in shown
    assert "files.evil.example" in shown
    assert f"alice answered `{DENY}`" in shown


async def test_a_run_that_has_read_nothing_says_so(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("Hello.")]
    await stage.world.run("Hello")
    assert (await answer(stage, "k1")).endswith("- nothing\nIt asked no questions.")
