"""Tools of MCP servers that a model's provider does not accept."""

from collections.abc import AsyncGenerator

import pytest

from core.domain.call_consent import STAYS
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.mcp.arguments import build_arguments_model
from core.mcp.refused_tools import TOOLS_MAX, RefusedTools, find_refused_tool, limit_tools, without_refused_tools
from core.ports import ModelDelta, ModelRequest, TextDelta
from core.tools.catalogue import all_tools, build_tool_set
from core.tools.tool import Tool, ToolContext
from tests.unit.core.mcp.test_schema import WHOLE


def function(name: str, description: str = "") -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": description}}


OWN = ("ask",)
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
    found = find_refused_tool(detail, TOOLS, OWN)
    assert found == (None if name is None else function(name))


async def test_a_refused_tool_is_left_out_for_good_until_it_changes() -> None:
    requests: list[ModelRequest] = []
    refused = RefusedTools()

    async def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        requests.append(request)
        if function("mcp_a_one") in request.tools:
            raise ModelRejected("No.", detail="400 Invalid schema for function 'mcp_a_one'")
        yield TextDelta(text="ok")

    async def names_sent(*tools: JsonObject) -> list[int]:
        requests.clear()
        asked = without_refused_tools(ask, refused, OWN)
        request = ModelRequest(model="m", messages=(), tools=tools)
        assert [one async for one in asked(request)] == [TextDelta(text="ok")]
        return [len(one.tools) for one in requests]

    assert await names_sent(*TOOLS) == [3, 2]
    assert await names_sent(*TOOLS) == [2]
    changed = function("mcp_a_one", "repaired")
    assert await names_sent(changed, *TOOLS[2:]) == [2]


async def test_an_error_that_names_no_tool_of_a_server_is_raised() -> None:
    async def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        if request.model == "late":
            yield TextDelta(text="begun")
            raise ModelRejected("No.", detail="Invalid schema for function 'mcp_a_one'")
        raise ModelRejected("No.", detail="Invalid schema for function 'ask'")

    asked = without_refused_tools(ask, RefusedTools(), OWN)
    for model in ("late", "other"):
        with pytest.raises(ModelRejected):
            async for _ in asked(ModelRequest(model=model, messages=(), tools=TOOLS)):
                pass


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
