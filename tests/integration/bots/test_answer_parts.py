"""A long answer is posted whole and in its order, whatever happens between its parts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bots.delivery import outbox
from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from core.tools.tool import ToolSet
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import Failure
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until

LONG = "\n\n".join(f"Paragraph {n} " + "word " * 150 for n in range(3))


def parts(stage: Stage) -> list[AnswerPart]:
    return [one.newest for one in stage.of(AnswerPart) if isinstance(one.newest, AnswerPart)]


def paragraphs(stage: Stage) -> list[int]:
    return [int(word) for part in parts(stage) for word in part.markdown.split() if word.isdigit()]


def hang_at(stage: Stage, part: int, *, is_posted: bool = False) -> asyncio.Event:
    """Lets the post of this part of an answer hang until its task is cancelled, before or after the platform has it.
    Returns what tells that it hangs."""
    post, began = stage.surface.post, asyncio.Event()

    async def hanging(address: Address, content: Content, **more: Any) -> str:
        if isinstance(content, AnswerPart) and content.part == part:
            stage.surface.post = post
            if is_posted:
                await post(address, content, **more)
            began.set()
            await asyncio.Event().wait()
        return await post(address, content, **more)

    stage.surface.post = hanging
    return began


@pytest.mark.parametrize("limit", [500, 2_000, 10_000])
async def test_a_program_that_splits_elsewhere_posts_the_rest(stage: Stage, limit: int) -> None:
    stage.world.model.turns = [text(LONG)]
    began = hang_at(stage, 2)
    await stage.execute()
    await began.wait()
    await stage.delivery.close()
    stage.surface.answer_limit = limit
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    assert paragraphs(stage) == [0, 1, 2]
    assert [(one.part, one.parts) for one in parts(stage)] == [(1, 3), (2, 3), (3, 3)]


async def test_an_answer_of_one_message_that_is_there_stays_whole(stage: Stage) -> None:
    """The program ends after the platform has the message, and the next one splits elsewhere."""
    stage.surface.answer_limit = 10_000
    stage.world.model.turns = [text(LONG)]
    began = hang_at(stage, 1, is_posted=True)
    await stage.execute()
    await began.wait()
    await stage.delivery.close()
    stage.surface.answer_limit = 1_000
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    assert len(parts(stage)) == 1


async def test_a_retry_after_refusals_posts_what_was_refused(stage: Stage) -> None:
    refused = SurfaceRefused("no", code="missing_scope")
    stage.surface.failures += [Failure("upload", refused), Failure("post", refused)]
    stage.surface.answer_limit = 900
    stage.world.model.turns = [text("\n\n".join([LONG, LONG]))]
    await stage.use_status_after(60)
    run_id = await stage.run()
    assert paragraphs(stage) == [1, 2, 0, 1, 2]
    stage.surface.answer_limit = 2_000
    assert await SqlDeliveries(stage.world.database).reopen(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    assert paragraphs(stage) == [1, 2, 0, 1, 2, 0]
    assert [one.file_name for one in stage.surface.posted if one.file_name] == ["answer.md"]


async def test_the_next_answer_waits_for_all_parts_however_long_they_take(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ORDER_LOOK_SECONDS", 0.01)
    stage.world.model.turns = [text(LONG), text("Paragraph 3")]
    began = hang_at(stage, 2)
    await stage.execute()
    await began.wait()
    await stage.execute("and a quick one")
    await asyncio.sleep(0.2)
    assert paragraphs(stage) == [0]
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    assert paragraphs(stage) == [0, 1, 2, 3]


async def test_a_question_waits_for_the_answer_before_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ORDER_LOOK_SECONDS", 0.01)
    tools = dict(stage.world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text}")
    stage.world.with_deps(toolbox=ToolSet(tools))
    stage.world.model.turns = [text(LONG), calls(("echo", '{"text": "a"}')), text("Said.")]
    began = hang_at(stage, 2)
    await stage.execute()
    await began.wait()
    await stage.execute("and echo")
    await asyncio.sleep(0.2)
    assert not stage.of(AskPrompt)
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await until(lambda: bool(stage.of(AskPrompt)))
    order = [type(one.newest) for one in stage.surface.posted if one.contents]
    assert [kind for kind in order if kind in (AnswerPart, AskPrompt, Notice)] == [*[AnswerPart] * 3, AskPrompt]
