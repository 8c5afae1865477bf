"""Pictures in whole runs: seen by the model in its next call, and handed to people with the answer."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from core.domain.budget import Budget, Limit
from core.domain.events import RunFinished
from core.domain.threads import IncomingFile, Reply, ToolCallRecord
from core.run.execute import execute
from core.run.run_end import attach_drawn_pictures
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import ImageGenerator
from core.web_access.services import WebServices
from tests.fakes.drawing import encoded_answer
from tests.fakes.made_pictures import picture
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.support.narrow import require, require_type


class Painter:
    """A source of drawings in this process."""

    async def draw(self, model: str, prompt: str, picture: bytes | None) -> Mapping[str, object]:
        return {**encoded_answer(), "cost_usd": 0.04}

    async def close(self) -> None:
        return None


DRAW = ("image_edit_or_generate", json.dumps({"mode": "generate", "prompt": "a field"}))


@pytest.fixture
def studio(world: World) -> World:
    names = ("image_edit_or_generate", "complete", "ask", "see_image")
    return world.with_deps(
        toolbox=ToolSet({name: all_tools()[name] for name in names}),
        sandboxes=MemorySandboxes(),
        web=WebServices(image_generator=ImageGenerator(Painter(), "painter", AddressGuard())),
    )


async def drawn(world: World, run_id: str) -> str:
    (record,) = [one for one in await world.deps.stores.journal.tool_call_records(run_id) if one.name == DRAW[0]]
    assert record.result is not None
    output = require_type(record.result["output"], dict)
    return str(output["file_path"])


async def attachments(world: World, run_id: str) -> tuple[str, ...]:
    finished = [one for one in await world.events(run_id) if isinstance(one, RunFinished)]
    assert finished[0].reply is not None
    return finished[0].reply.attachments


async def test_a_drawing_goes_to_people_with_an_answer_that_does_not_name_it(studio: World) -> None:
    studio.model.turns = [calls(DRAW), text("Here it is.")]
    run_id = await studio.run("draw a field")
    assert await attachments(studio, run_id) == (await drawn(studio, run_id),)


async def test_a_drawing_that_the_reply_names_goes_once(studio: World) -> None:
    path = "images/picture_1.png"
    reply = Reply(kind="answer", text="x", attachments=(f"/workspace/{path}", "other.txt"))
    record = ToolCallRecord(
        run_id="r",
        turn_id="t",
        index=0,
        call_id="c",
        name=DRAW[0],
        arguments={},
        raw="",
        assistant_message_id="a",
        result={"success": True, "output": {"file_path": path}, "error": None},
    )
    assert attach_drawn_pictures(reply, [record, record]) == reply
    failed = replace(record, result={"success": False, "output": None, "error": "no"})
    assert attach_drawn_pictures(reply, [failed, replace(record, result=None)]) == reply


async def test_what_a_drawing_cost_is_booked_as_an_estimate_and_counts_for_the_budget(studio: World) -> None:
    studio.with_deps(budget=Budget(run=Limit(usd=0.03)))
    studio.model.turns = [calls(DRAW), text("Here it is.")]
    run_id = await studio.run("draw a field")

    usage = await studio.deps.stores.conversations.usage(run_id=run_id)
    assert usage.cost_usd == pytest.approx(0.041)
    assert usage.estimated_usd == pytest.approx(0.04)
    assert (usage.input_tokens, usage.output_tokens) == (10 + 8, 5 + 1000)
    last = (await studio.events(run_id))[-1]
    assert isinstance(last, RunFinished)
    assert last.finish_reason == "budget"
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


async def test_attached_pictures_are_shown_with_the_request(studio: World) -> None:
    content = {"one.png": picture(size=(3000, 40)), "two.PNG": picture(color="blue"), "no.png": b"?"}
    untyped = {"two.PNG": "application/octet-stream"}

    class Source:
        async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
            yield content[file.name]

    studio.with_deps(file_sources={"api": Source()}, file_bytes_max=1_000_000)
    files = tuple(
        IncomingFile(file_ref=name, name=name, mime_type=untyped.get(name, "image/png"), size_bytes=len(data))
        for name, data in content.items()
    )
    studio.model.turns = [text("A red field and a blue one."), text("As I said.")]
    run_id = await studio.say("what is on them?", files=files)
    await execute(run_id, studio.deps)
    await studio.run("sure?")
    for tail in studio.model.tails:
        told = json.loads(tail)["content"][0]["text"]
        assert "in this order: uploads/one.png, uploads/two.PNG.\n" in told
        assert tail.count("data:image/png;base64,") == 2
    stable = [one.messages[: one.stable_messages] for one in studio.model.requests]
    assert "image_url" not in json.dumps(stable)


async def test_of_many_pictures_of_one_answer_the_model_is_told_which_it_sees(studio: World) -> None:
    assert studio.deps.sandboxes is not None
    files = (await studio.deps.sandboxes.open(await thread_of(studio), fence=1)).files

    async def pieces() -> AsyncIterator[bytes]:
        yield picture()

    names = [f"{letter}.png" for letter in "abcdef"]
    for name in names:
        await files.write(name, pieces())
    look = [("see_image", json.dumps({"file_path": name})) for name in names]
    studio.model.turns = [calls(*look), text("Fields.")]
    await studio.run("look")
    tail = studio.model.tails[-1]
    assert "Shown below, in this order: c.png, d.png, e.png, f.png." in tail
    assert "Not shown, because only the newest fit: a.png, b.png." in tail
    assert tail.count("data:image/png;base64,") == 4
    results = [one for one in studio.model.requests[-1].messages if one["role"] == "tool"]
    assert len(results) == 6
    assert "is shown" not in json.dumps(results)
    assert json.dumps(results).count("as far as the newest 4 pictures go") == 6


async def thread_of(studio: World) -> str:
    studio.model.turns = [text("Hello.")]
    run = require(await studio.deps.stores.conversations.run(await studio.run("hi")))
    return run.thread_id
