"""Answers that a limit cuts off: the model learns which limit it was and how to go on, and people read the whole."""

import pytest

from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.threads import Usage
from core.ports import ModelFinished, TextDelta, ToolCallDelta
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World

CUT = ModelFinished(finish_reason="length", usage=Usage(input_tokens=9, output_tokens=4096))


async def answer(world: World) -> str:
    return (await world.read_reply(await world.run("go"))).text


def last_sent(world: World, number: int) -> str:
    return str(world.model.requests[number].messages[-1]["content"])


@pytest.mark.parametrize("name", ["native", "xml", "react"])
async def test_a_call_that_was_cut_off_is_told_how_to_go_on(world: World, name: str) -> None:
    half = '{"text": "half of a long fi'
    written = {
        "native": ToolCallDelta(index=0, call_id="c", name="echo", arguments=half),
        "xml": TextDelta(text='<function_calls>\n<invoke name="echo">\n<parameter name="text">half of a long fi'),
        "react": TextDelta(text=f"Thought: I write.\nAction: echo\nAction Input: {half}"),
    }
    final = "Final Answer: done" if name == "react" else "done"
    if name != "native":
        world.with_deps(dialect=XmlDialect() if name == "xml" else ReactDialect())
    world.model.turns = [[written[name], CUT], text(final)]
    assert await answer(world) == "done"
    assert world.bench.said == []
    assert len(world.model.requests) == 2
    told = last_sent(world, 1)
    assert "cut off inside this call, because it reached its limit of 4,096 tokens" in told
    assert "in several calls" in told


HALF = '{"name": "echo", "arguments": {"text": "half of a long fi'


async def test_half_a_written_call_stays_short_in_the_conversation(world: World) -> None:
    for dialect in (NativeDialect(), XmlDialect()):
        world.with_deps(dialect=dialect)
        long = TextDelta(text=f"I write.\n<tool_call>{HALF}" + "le " * 9000)
        world.model.turns = [[long, CUT], text("done")]
        assert await answer(world) == "done"
        assert len(str(world.model.requests[-1].messages[-2:])) < 6000


async def test_of_three_hundred_calls_32_run_and_the_others_say_what_to_do(world: World) -> None:
    world.model.turns = [calls(*[("echo", f'{{"text": "{number}"}}') for number in range(300)]), text("done")]
    run_id = await world.run("go")
    assert world.bench.said == [str(number) for number in range(32)]
    results = await world.tool_results(run_id)
    assert len(results) == 300
    assert "Not run: this is call 33 of your answer" in results[32]["error"]
    assert "do the work of many calls in one script" in results[299]["error"]
