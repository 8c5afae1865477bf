"""A model that takes no pictures: what is shown to it must not break its runs."""

import base64
from dataclasses import replace

from core.domain.errors import ModelRejected
from core.domain.messages import Message
from core.tools.tool import ToolContext, ToolOutput, ToolSet
from tests.fakes.made_pictures import picture
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import EchoParams, World

REFUSED = ModelRejected("The model's service did not accept the request.")


async def look(params: EchoParams, context: ToolContext) -> ToolOutput:
    shown = Message(
        type="image_context",
        content={"mime_type": "image/png", "base64": base64.b64encode(picture()).decode()},
        is_llm_message=False,
        thread_id=context.thread_id,
    )
    return ToolOutput(output="The picture is shown to you.", messages=(shown,))


def with_look(world: World) -> World:
    tools = dict(world.bench.toolbox().tools)
    tools["look"] = replace(tools["echo"], name="look", run=look)
    return world.with_deps(toolbox=ToolSet(tools))


def shows(world: World) -> list[bool]:
    """Whether each request had a picture."""
    return ["image_url" in tail for tail in world.model.tails]


async def test_a_request_whose_picture_is_refused_goes_without_it_and_says_so(world: World) -> None:
    with_look(world).model.turns = [
        calls(("look", '{"text": "a.png"}')),
        [REFUSED],
        calls(("echo", '{"text": "a"}')),
        text("I cannot see it."),
    ]
    run_id = await world.run("what is on a.png?")
    assert (await world.read_run(run_id)).status == "completed"
    assert shows(world) == [False, True, False, False]
    assert "takes no pictures" in world.model.tails[-1]
