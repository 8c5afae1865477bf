"""A message that may be meant for other people shows nothing in the chat until the agent says something."""

import asyncio
from datetime import UTC, datetime

import pytest

from bots.delivery.content import RunStatus
from core.domain.actions import IncomingMessage
from core.domain.threads import Accept, Attention, Receipt
from core.ports import TextDelta
from core.run.execute import execute
from core.tools.replies import no_reply
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until


async def said(stage: Stage, ref: str, attention: Attention) -> Receipt:
    message = IncomingMessage(
        dedupe_key=ref,
        address=stage.world.address,
        person=stage.world.author,
        text="and the rows?",
        message_ref=ref,
        sent_at=datetime.now(UTC),
        is_addressed=True,
    )
    decision = Accept(is_steering=True, attention=attention)
    return await stage.world.inbox.accept_action(message, lambda _: decision)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_run_that_says_nothing_leaves_no_trace(stage: Stage, is_silent: bool) -> None:
    world = stage.world
    tools = world.bench.toolbox().tools
    world.with_deps(toolbox=ToolSet({**tools, no_reply.name: no_reply}))
    world.model.turns = [calls((no_reply.name, "{}")) if is_silent else text("Seven rows.")]
    receipt = await said(stage, "2", "unsure")
    assert receipt.run_id is not None
    stage.delivery.wake(receipt.run_id)
    await execute(receipt.run_id, world.deps)
    await stage.shown()
    assert bool(stage.surface.posted) is not is_silent
    signs = [sign for _, sign in stage.surface.reactions if sign]
    assert signs == ([] if is_silent else ["done"])


async def test_a_message_during_a_run_gets_no_sign(stage: Stage) -> None:
    world, answer = stage.world, asyncio.Event()
    world.model.turns = [[TextDelta(text="Let me "), answer, *text("see.")], text("Done.")]
    run_id = await world.say("count the rows")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, world.deps))
    await until(lambda: bool(stage.of(RunStatus) and world.model.requests))
    await said(stage, "2", "unsure")
    await said(stage, "3", "clear")
    stage.delivery.wake(run_id)

    await until(lambda: ("3", "seen") in stage.surface.reactions)
    answer.set()
    await running
    await stage.shown()
    assert "2" not in {ref for ref, _ in stage.surface.reactions}
