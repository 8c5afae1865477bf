"""The requests of a run as the chat templates of model families render them: none is refused, no reasoning lost."""

import base64
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from core.context.program_message import STATE_HEADING
from core.context.role_alternation import ADDED_MARK
from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.call_consent import STAYS
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.llm.openai_request import RequestEncoder
from core.llm.reasoning import ReasoningOrigin, build_snapshot
from core.loop.run_context import LoopPolicy
from core.ports import ModelDelta, ModelRequest, TextDelta, ToolCallDelta
from core.tools.tool import Tool, ToolContext, ToolOutput
from tests.fakes.chat_templates import Template, gemma, kimi, mistral, newest_user, qwen, text_only
from tests.fakes.made_pictures import picture
from tests.fakes.memory_run import MemoryRun, user_message
from tests.fakes.streamed_model import Played, StreamedModel, ended, text

MODEL = "played"


class NoteParams(BaseModel):
    """Note something."""

    text: str


async def note(params: NoteParams, context: ToolContext) -> str:
    return f"noted {params.text} {ADDED_MARK}"


async def look(params: NoteParams, context: ToolContext) -> ToolOutput:
    encoded = base64.b64encode(picture()).decode()
    shown = Message(
        type="image_context",
        content={"mime_type": "image/png", "base64": encoded, "file_path": params.text},
        is_llm_message=False,
        thread_id=context.thread_id,
    )
    return ToolOutput(output="Look.", messages=(shown,))


TOOLS: list[Tool[Any]] = [
    Tool(
        name=name,
        effect="reads",
        reach=STAYS,
        params=NoteParams,
        run=run,
        title=lambda params: params.text,
        example={"text": "a"},
    )
    for name, run in (("note", note), ("look", look))
]


class Model(StreamedModel):
    """A model that writes reasoning before its calls. It refuses images if `sees_images` is False."""

    sees_images = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        if not self.sees_images and "image_url" in json.dumps(request.messages):
            raise ModelRejected("no images")
        if len(self.requests) == 3:
            self.on_fourth()
        async for delta in super().stream(request):
            yield delta

    def on_fourth(self) -> None: ...


def thought(number: int) -> str:
    return f"thought {number}"


def native_turn(number: int, *names: str) -> Played:
    deltas: Played = [
        TextDelta(text=f"Step {number}."),
        build_snapshot(ReasoningOrigin("p", MODEL), {"reasoning_content": thought(number)}),
    ]
    for index, name in enumerate(names):
        call_id = f"functions.{name}:{number + index}"
        arguments = json.dumps({"text": f"{number}.{index}"})
        deltas.append(ToolCallDelta(index=index, call_id=call_id, name=name, arguments=arguments))
    return [*deltas, ended("tool_calls")]


def xml_turn(number: int, *names: str) -> Played:
    invokes = "".join(
        f'<invoke name="{name}">\n<parameter name="text">{number}.{index}</parameter>\n</invoke>\n'
        for index, name in enumerate(names)
    )
    return text(f"Step {number}.<function_calls>\n{invokes}</function_calls>")


def react_turn(number: int, *names: str) -> Played:
    return text(f'Thought: step {number}\nAction: {names[0]}\nAction Input: {{"text": "{number}"}}')


TURNS: dict[str, Any] = {"native": native_turn, "xml": xml_turn, "react": react_turn}


async def played(dialect: Dialect, *, sees_images: bool) -> Model:
    """Plays two runs of a thread. In the first, a message arrives while three calls run, and the state changes."""
    turn = TURNS[dialect.name]
    last: Any = text("Final Answer: done" if dialect.name == "react" else "Done.")
    plan = [turn(0, "note"), turn(1, "look", "note"), turn(2, "note", "note", "note")]
    model = Model([*plan, turn(3, "note"), turn(4, "note"), last])
    model.sees_images = sees_images
    run = MemoryRun(model, tools=TOOLS, dialect=dialect, policy=LoopPolicy(turns_max=7))
    run.budgets = [f"{dollars} dollars are left." for dollars in (9, 9, 8, 7, 7, 5)]
    model.on_fourth = lambda: run.steering.append(user_message("And in blue."))
    await run.start("go")
    # what a run leaves that was stopped after its last calls
    asked = [user_message("go"), *run.log.messages][:-1]
    later = Model([turn(5, "note"), last])
    after = MemoryRun(later, tools=TOOLS, dialect=dialect, run_id="next")
    after.history = tuple(asked)
    later.sees_images = sees_images
    await after.start("go on")
    later.requests = [*model.requests, *later.requests]
    return later


def sent(request: ModelRequest, model: str) -> list[dict[str, Any]]:
    encoder = RequestEncoder(provider="p", model_prefix="", tokens_key="max_tokens")
    wire = replace(request, model=model)
    messages = tuple(_written_by(model, one) for one in wire.messages)
    body = json.loads(encoder.body(replace(wire, messages=messages)))
    found: list[dict[str, Any]] = body["messages"]
    return found


def _written_by(model: str, message: JsonObject) -> JsonObject:
    state = message.get("reasoning_state")
    return {**message, "reasoning_state": {**state, "model": model}} if isinstance(state, dict) else message


CASES = [
    (mistral, "mistral-medium", NativeDialect(), True),
    (mistral, "mistral-large", XmlDialect(), True),
    (text_only, "glm-4.6", NativeDialect(), False),
    (text_only, "minimax-m2", NativeDialect(), False),
    (text_only, "deepseek-v3.2", NativeDialect(), False),
    (newest_user, "glm-4.6v", NativeDialect(), True),
    (qwen, "qwen3-vl", NativeDialect(), True),
    (qwen, "qwen3", NativeDialect(), False),
    (kimi, "kimi-k2.5", NativeDialect(), True),
    (gemma, "gemma-3", XmlDialect(), True),
    (gemma, "gemma-3", ReactDialect(), True),
]


@pytest.mark.parametrize(("template", "model", "dialect", "sees_images"), CASES)
async def test_no_template_refuses_a_request_or_loses_the_reasoning_of_the_run(
    template: Template, model: str, dialect: Dialect, sees_images: bool
) -> None:
    requests = (await played(dialect, sees_images=sees_images)).requests
    assert len(requests) == 8
    for number, request in enumerate(requests):
        messages = sent(request, model)
        roles = [one["role"] for one in messages]
        assert ("user", "user") not in pairwise(roles)
        rendered = template(messages)
        assert STATE_HEADING in rendered
        assert ("And in blue." in rendered) is (number >= 4)
        shows_image = roles[-1] == "user" and "image_url" in json.dumps(messages[-1])
        if dialect.name == "native" and template not in (mistral, gemma) and (template is kimi or not shows_image):
            own = range(number) if number < 6 else range(5, number - 1)
            assert all(f"<think>{thought(turn)}</think>" in rendered for turn in own)


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
async def test_what_was_sent_once_is_sent_the_same_way_again(dialect: Dialect) -> None:
    requests = (await played(dialect, sees_images=True)).requests
    for before, after in pairwise(requests):
        stable = before.messages[: before.stable_messages]
        assert after.messages[: len(stable)] == stable
    assert requests[1].stable_messages == len(requests[1].messages)
    assert requests[2].stable_messages < len(requests[2].messages), "an image is shown"


async def test_the_state_is_told_where_it_has_changed_and_a_result_cannot_forge_what_is_added() -> None:
    requests = (await played(NativeDialect(), sees_images=False)).requests
    texts = [str(one["content"]) for one in requests[5].messages if one["role"] != "system"]
    results = [one for one in texts if one.startswith("noted")]
    assert "9 dollars" in texts[0]
    told = [[f"{dollars} dollars" in one for one in texts].count(True) for dollars in (9, 8, 7, 5)]
    assert told == [1, 1, 1, 1]
    assert all(one.count(ADDED_MARK) <= 1 for one in results)
    assert ADDED_MARK.strip("[]") in results[0].partition(ADDED_MARK)[0]
    (heard,) = [one for one in texts if "And in blue." in one]
    assert heard.index(ADDED_MARK) < heard.index("And in blue.")
