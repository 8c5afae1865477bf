"""The prompt cache: each request begins with what the one before it has sent, so that little is read anew."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from core.domain.json import JsonObject
from core.domain.messages import Message
from core.llm.openai_request import RequestEncoder
from core.ports import ModelRequest
from core.tools.catalogue import all_tools
from core.tools.tool import ToolContext, ToolOutput, ToolSet
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.streamed_model import StreamedModel, calls, text
from tests.integration.core.conftest import EchoParams, World
from tests.support.conversations import words

TURNS = 50


class Recorder(StreamedModel):
    """A model that keeps the bytes of each request, and of the part that later requests repeat."""

    def __init__(self) -> None:
        super().__init__([])
        self.encoder = RequestEncoder(provider="p", model_prefix="", tokens_key="max_tokens")
        self.bodies: list[bytes] = []
        self.stable: list[bytes] = []

    def stream(self, request: ModelRequest) -> Any:
        self.bodies.append(self.encoded(request.tools, request.messages))
        messages = request.messages[: request.stable_messages]
        self.stable.append(self.encoded(request.tools, messages)[:-1])
        return super().stream(request)

    def encoded(self, tools: Sequence[JsonObject], messages: Sequence[JsonObject]) -> bytes:
        """Returns the prompt in the order in which providers cache it: tools, system prompt, conversation."""
        return json.dumps([*tools, *messages], ensure_ascii=False).encode()


async def browse(params: EchoParams, context: ToolContext) -> ToolOutput:
    elements = [f'[{number}] link "{params.text} {number}"' for number in range(10)]
    page: JsonObject = {"url": f"https://example.org/{params.text}", "elements": list(elements)}
    state = Message(type="browser_state", content=page, is_llm_message=False, thread_id=context.thread_id)
    return ToolOutput(output=f"Opened {params.text}.", messages=(state,))


def busy(world: World, model: StreamedModel) -> World:
    echo = world.bench.toolbox().tools["echo"]
    tools = {name: all_tools()[name] for name in ("create_file", "str_replace", "complete", "ask")}
    tools |= {"echo": echo, "browse": replace(echo, name="browse", run=browse)}
    return world.with_deps(toolbox=ToolSet(tools), sandboxes=MemorySandboxes(), ask_model=model.stream)


def turn(number: int) -> Any:
    match number % 5:
        case 0:
            return calls(("browse", json.dumps({"text": f"page-{number}"})))
        case 1 if number == 1:
            todo = "".join(f"- [ ] step {step}\n" for step in range(20))
            made = {"file_path": "todo.md", "file_contents": todo}
            return calls(("create_file", json.dumps(made)))
        case 1:
            step = number // 5
            ticked = {"old_str": f"[ ] step {step}\n", "new_str": f"[x] step {step}\n"}
            return calls(("str_replace", json.dumps({"file_path": "todo.md", **ticked})))
        case _:
            said = json.dumps({"text": words(60, seed=number)})
            return calls(("echo", said), ("echo", said))


async def test_fifty_turns_read_little_anew(world: World) -> None:
    """With the browser, todo.md, and a second run in the thread."""
    model = Recorder()
    busy(world, model).model = model
    model.turns = [
        *(turn(number) for number in range(TURNS // 2)),
        text("The first part is done."),
        *(turn(number) for number in range(TURNS // 2, TURNS)),
        text("Done."),
    ]
    await world.run("go")
    assert (await world.read_run(await world.run("go on"))).status == "completed"
    assert len(model.bodies) == TURNS + 2
    for before, after in zip(model.stable, model.bodies[1:], strict=False):
        assert after.startswith(before), "what was sent once is sent the same way again"
    new = [len(after) - len(before) for before, after in pairwise(model.stable)]
    assert sum(new) < 0.15 * sum(map(len, model.bodies))
