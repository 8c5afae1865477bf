"""Leaves out the tools of MCP servers that a model's provider does not accept, so that they do not end every run."""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from core.domain.errors import ModelRejected
from core.domain.json import JsonObject, json_fields
from core.mcp.tool_names import PREFIX
from core.ports import ModelRequest
from core.tools.tool import ToolSet

log = logging.getLogger(__name__)

TOOLS_MAX = 128
"""OpenAI rejects requests with more tools, and so do services that follow it."""

RefusedTools = dict[tuple[str, str], JsonObject]
"""The schemas that were refused since the program started, by model and tool name. If the server changes the schema,
the tool is offered again."""

_QUOTED = re.compile(r"['\"`]([A-Za-z0-9_.-]{1,128})(?=['\"`])")
_PLACE = re.compile(r"(?:function_?declarations|(?<!\w)tools)(?:\[|\.)(\d{1,4})", re.IGNORECASE)


def limit_tools(tools: ToolSet) -> ToolSet:
    """Returns the first TOOLS_MAX tools. The agent's own tools come first, so only MCP tools are left out."""
    left_out = list(tools.tools)[TOOLS_MAX:]
    if not left_out:
        return tools
    log.warning(
        "a model accepts at most %d tools; choose with enabled_tools. These are left out: %s",
        TOOLS_MAX,
        ", ".join(left_out)[:2_000],
    )
    return tools.filter_names(lambda name: name not in left_out)


def leave_out_refused_tools(request: ModelRequest, refused: RefusedTools) -> ModelRequest:
    """Returns the request without the tools that its model's provider refuses."""
    left_out = [schema for (model, _), schema in refused.items() if model == request.model]
    return replace(request, tools=tuple(tool for tool in request.tools if tool not in left_out))


def note_refused_tool(request: ModelRequest, error: ModelRejected, refused: RefusedTools) -> str:
    """Adds the MCP tool that the error refers to, so that later requests leave it out. Returns its name, or an empty
    text if the error refers to no tool of a server."""
    tool = find_refused_tool(error.detail, request.tools)
    if tool is None:
        return ""
    name = _name_of(tool)
    refused[request.model, name] = tool
    log.warning("the tool %s is left out, because the provider of %s refuses it: %s", name, request.model, error.detail)
    return name


def find_refused_tool(detail: str, tools: Sequence[JsonObject]) -> JsonObject | None:
    """Returns the MCP tool that a provider's error refers to by its name or position, or None."""
    offered = {_name_of(tool): tool for tool in tools}
    named = [name for name in _QUOTED.findall(detail) if name in offered]
    if not named and (places := [int(one) for one in _PLACE.findall(detail)]):
        # Gemini names the only group of tools before the place of the tool in it
        named = list(offered)[places[-1] : places[-1] + 1]
    return offered[named[0]] if named and named[0].startswith(PREFIX) else None


def _name_of(tool: JsonObject) -> str:
    return str(json_fields(tool.get("function")).get("name") or "")
