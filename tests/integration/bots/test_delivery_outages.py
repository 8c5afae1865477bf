"""A database that goes away for a moment while a run is shown: the screen is late then, and complete."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bots.delivery import next_step, poster, run_delivery
from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from core.domain.errors import StorageUnavailable, SurfaceUnclear
from core.domain.threads import Address, ThreadInput
from core.stores import Delivery, DeliveryLease
from core.tools.tool import ToolSet
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until


class Flickering(SqlDeliveries):
    """Deliveries of a database that takes no records while `is_away`."""

    is_away = False
    refusals = 0

    async def record(self, rendering: DeliveryLease, delivery: Delivery, **more: Any) -> None:
        if self.is_away:
            self.refusals += 1
            raise StorageUnavailable("away")
        await super().record(rendering, delivery, **more)


async def test_a_question_is_asked_though_the_database_was_away_for_a_moment(stage: Stage) -> None:
    tools = dict(stage.world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text}")
    stage.world.with_deps(toolbox=ToolSet(tools))
    stage.world.model.turns = [calls(("wait", '{"text": "w"}')), calls(("echo", '{"text": "a"}'))]
    deliveries = Flickering(stage.world.database)
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1", deliveries)
    stage.delivery.start()

    _run_id, running = await stage.begin()
    await until(lambda: bool(stage.of(RunStatus)))
    await asyncio.wait_for(stage.world.bench.has_started("w").wait(), 30)
    deliveries.is_away = True
    stage.world.bench.gate("w").set()
    await until(lambda: deliveries.refusals > 0)
    deliveries.is_away = False

    await running
    await until(lambda: bool(stage.of(AskPrompt)))


async def test_a_message_during_a_run_is_acknowledged_though_the_database_was_away_for_a_moment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, read = stage.world, SqlConversations.unread_inputs
    outcomes = [StorageUnavailable("a failover")]

    async def flickering(stored: SqlConversations, thread_id: str) -> tuple[ThreadInput, ...]:
        if outcomes:
            raise outcomes.pop()
        return await read(stored, thread_id)

    monkeypatch.setattr(run_delivery, "SWEEP_SECONDS", 0.05)
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("Done.")]
    run_id, running = await stage.start_followed()
    await world.bench.until_started("x")
    monkeypatch.setattr(SqlConversations, "unread_inputs", flickering)
    assert await world.say("and the rows?", message_ref="2") == run_id
    stage.delivery.wake(run_id)

    await until(lambda: ("2", "seen") in stage.surface.reactions)
    assert outcomes == []
    world.bench.gate("x").set()
    await running
    await stage.shown()


async def test_answers_of_a_time_in_which_the_platform_takes_no_posts_are_posted_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform answers searches all the while, so each try seems to fail because of the message."""
    monkeypatch.setattr(poster, "PAUSES_SECONDS", (0.001,) * 5)
    monkeypatch.setattr(poster, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(next_step, "FIRST_RETRY_SECONDS", 0.001)
    await stage.use_status_after(60)
    post, tries = stage.surface.post, list[Content]()

    async def fail(_address: Address, content: Content, **_named: Any) -> str:
        tries.append(content)
        raise SurfaceUnclear("internal_error")

    monkeypatch.setattr(stage.surface, "post", fail)
    stage.world.model.turns = [text("The answer.")]
    run_id = await stage.execute()
    await until(lambda: len(tries) > 20)
    monkeypatch.setattr(stage.surface, "post", post)

    await stage.shown()
    assert [one.newest for one in stage.of(AnswerPart)] == [AnswerPart(markdown="The answer.", run_id=run_id)]
    assert stage.of(Notice) == []
    assert stage.surface.reactions[-1] == ("1", "done")
