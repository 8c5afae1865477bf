"""Tools of MCP servers that a model's provider does not accept."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

import pytest

from core.domain.call_consent import STAYS
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.llm.retry import stream_with_retries
from core.mcp.arguments import build_arguments_model
from core.mcp.refused_tools import (
    TOOLS_MAX,
    RefusedTools,
    find_refused_tool,
    leave_out_refused_tools,
    limit_tools,
    note_refused_tool,
)
from core.ports import ModelDelta, ModelRequest, TextDelta
from core.tools.catalogue import all_tools, build_tool_set
from core.tools.tool import Tool, ToolContext
from tests.unit.core.mcp.test_schema_cleaning import WHOLE


def function(name: str, description: str = "") -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": description}}


TOOLS = (function("ask"), function("mcp_a_one"), function("mcp_a_two"))


@pytest.mark.parametrize(
    ("detail", "name"),
    [
        ("400 Invalid schema for function 'mcp_a_two': In context=('properties', 'x')", "mcp_a_two"),
        ("400 tools.1.custom.input_schema: JSON schema is invalid", "mcp_a_one"),
        ("400 Invalid 'tools[2].function.parameters': expected an object", "mcp_a_two"),
        ("400 GenerateContentRequest.tools[0].function_declarations[1].parameters.properties: empty", "mcp_a_one"),
        ("400 Invalid schema for function 'ask': no", None),
        ("400 tools.0.custom.name: no", None),
        ("400 tools.9.custom.name: no", None),
        ("401 Incorrect API key provided: 'sk-x'", None),
        ("", None),
    ],
)
def test_the_tool_is_the_one_that_the_error_names(detail: str, name: str | None) -> None:
    found = find_refused_tool(detail, TOOLS)
    assert found == (None if name is None else function(name))


@dataclass
class Strict:
    """Refuses some tools, each with an error of its own, and answers without them."""

    refuses: tuple[str, ...]
    is_late: bool = False
    sent: list[tuple[str, int]] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.sent.append((request.model, len(request.tools)))
        if self.is_late:
            yield TextDelta(text="begun")
        for name in self.refuses:
            if function(name) in request.tools:
                raise ModelRejected("No.", detail=f"400 Invalid schema for function '{name}'")
        yield TextDelta(text="ok")


async def ask(model: Strict, refused: RefusedTools, *tools: JsonObject, fallbacks: tuple[str, ...] = ()) -> str:
    answers = stream_with_retries(
        model,
        ModelRequest(model="m", messages=(), tools=tools),
        fallbacks=fallbacks,
        attempts_max=1,
        change_after_refusal=partial(note_refused_tool, refused=refused),
        fit=partial(leave_out_refused_tools, refused=refused),
    )
    return "".join([delta.text async for delta in answers if isinstance(delta, TextDelta)])


@pytest.mark.parametrize("fallbacks", [(), ("other",)])
async def test_refused_tools_are_left_out_for_good_until_they_change(fallbacks: tuple[str, ...]) -> None:
    model, refused = Strict(refuses=("mcp_a_one", "mcp_a_two")), RefusedTools()
    assert await ask(model, refused, *TOOLS, fallbacks=fallbacks) == "ok"
    assert model.sent == [("m", 3), ("m", 2), ("m", 1)]
    assert await ask(model, refused, *TOOLS, fallbacks=fallbacks) == "ok"
    changed = function("mcp_a_one", "repaired")
    assert await ask(model, refused, changed, *TOOLS[2:], fallbacks=fallbacks) == "ok"
    assert model.sent[3:] == [("m", 1), ("m", 1)]


@pytest.mark.parametrize("model", [Strict(refuses=("mcp_a_one",), is_late=True), Strict(refuses=("ask",))])
async def test_a_refusal_that_is_late_or_names_no_tool_of_a_server_is_raised(model: Strict) -> None:
    with pytest.raises(ModelRejected):
        await ask(model, RefusedTools(), *TOOLS)
    assert model.sent == [("m", 3)]


def test_own_tools_come_first_where_not_all_fit() -> None:
    async def run(_params: object, _context: ToolContext) -> str:
        return ""

    params = build_arguments_model("t", "Does it.", WHOLE, WHOLE)
    more = [
        Tool(name=f"a_{n:03}", effect="reads", reach=STAYS, params=params, run=run, title=lambda _params: "t")
        for n in range(200)
    ]
    fit = limit_tools(build_tool_set().with_tools(more))
    assert len(fit.tools) == TOOLS_MAX
    assert set(build_tool_set().tools) < set(fit.tools)
    assert len(all_tools()) < TOOLS_MAX
