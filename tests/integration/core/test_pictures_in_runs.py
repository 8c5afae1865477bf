"""Pictures in whole runs: seen by the model in its next call, and handed to people with the answer."""

import json
from collections.abc import Mapping

import pytest

from core.context.request_tail import RequestTail
from core.domain.budget import Budget, Limit
from core.domain.messages import Message
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import UNPRICED_PICTURE_USD, ImageGenerator
from core.web_access.services import WebServices
from tests.fakes.drawing import encoded_answer
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.support.narrow import require_type


class Painter:
    """An image model in this process. `told` is what its answer holds beside the picture, such as the cost."""

    def __init__(self, **told: object) -> None:
        self.told = told

    async def draw(self, model: str, prompt: str, picture: bytes | None) -> Mapping[str, object]:
        return {**encoded_answer(), **self.told}

    async def close(self) -> None:
        return None


DRAW = ("image_edit_or_generate", json.dumps({"mode": "generate", "prompt": "a field"}))


@pytest.fixture
def studio(world: World) -> World:
    names = ("image_edit_or_generate", "complete", "ask", "see_image")
    return world.with_deps(
        toolbox=ToolSet({name: all_tools()[name] for name in names}),
        sandboxes=MemorySandboxes(),
        web=WebServices(image_generator=ImageGenerator(Painter(cost_usd=0.04), "painter", AddressGuard())),
    )


async def drawn(world: World, run_id: str) -> str:
    (record,) = [one for one in await world.deps.stores.journal.tool_call_records(run_id) if one.name == DRAW[0]]
    assert record.result is not None
    output = require_type(record.result["output"], dict)
    return str(output["file_path"])


async def test_a_drawing_goes_to_people_with_an_answer_that_does_not_name_it(studio: World) -> None:
    studio.model.turns = [calls(DRAW), text("Here it is.")]
    run_id = await studio.run("draw a field")
    assert (await studio.read_reply(run_id)).attachments == (await drawn(studio, run_id),)


async def test_what_a_drawing_cost_is_booked_as_an_estimate_and_counts_for_the_budget(studio: World) -> None:
    studio.with_deps(budget=Budget(run=Limit(usd=0.03)))
    studio.model.turns = [calls(DRAW), text("Here it is.")]
    run_id = await studio.run("draw a field")

    usage = await studio.deps.stores.conversations.usage(run_id=run_id)
    assert usage.cost_usd == pytest.approx(0.041)
    assert usage.estimated_usd == pytest.approx(0.04)
    assert (usage.input_tokens, usage.output_tokens) == (10 + 8, 5 + 1000)
    assert (await studio.read_end(run_id)).finish_reason == "budget"
    assert len(studio.model.requests) == 1


async def test_each_drawing_of_one_answer_is_checked_against_the_budget(studio: World) -> None:
    studio.with_deps(budget=Budget(run=Limit(usd=0.1)))
    studio.model.turns = [calls(DRAW, DRAW, DRAW, DRAW, DRAW), text("Here they are.")]
    run_id = await studio.run("draw five fields")
    records = await studio.deps.stores.journal.tool_call_records(run_id)
    made = [one.result is not None and one.result["success"] for one in records]
    assert made == [True, True, True, False, False]
    usage = await studio.deps.stores.conversations.usage(run_id=run_id)
    assert usage.estimated_usd == pytest.approx(0.12)


@pytest.mark.parametrize("unpriced_usd", [UNPRICED_PICTURE_USD, 0.0])
async def test_a_picture_of_unknown_price_counts_against_budgets(unpriced_usd: float) -> None:
    booked: list[float] = []
    drawer = ImageGenerator(Painter(), "painter", AddressGuard(), unpriced_usd)
    await drawer.draw("a field", spent=lambda _, usage: booked.append(usage.estimated_usd))
    assert booked == [unpriced_usd]


def test_of_many_pictures_the_model_is_told_which_it_sees() -> None:
    pictures = [
        Message(
            type="image_context",
            content={"file_path": f"{letter}.png", "url": "https://example.org/p.png"},
            is_llm_message=False,
            thread_id="t",
        )
        for letter in "abcdef"
    ]
    tail = RequestTail(pictures=pictures)
    shown = (
        "Shown below, in this order: c.png, d.png, e.png, f.png. Not shown, because only the newest fit: a.png, b.png."
    )
    assert shown in str(tail.build_message(sees_images=True))
    assert "This model takes no pictures" in str(tail.build_message(sees_images=False))
