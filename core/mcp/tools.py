"""Checks the tools that an MCP server lists, and converts them for use by a model."""

import asyncio
import fnmatch
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.context.untrusted_text import clean_description, clean_line
from core.domain.call_consent import Reach
from core.domain.call_targets import find_argument_addresses, find_short_values, find_targets
from core.domain.json import JsonObject
from core.domain.sources import Origin
from core.mcp.arguments import McpArguments, build_arguments_model
from core.mcp.schema_cleaning import UnusableSchema, clean_schema, rename_parameters, split_off_combinations
from core.mcp.settings import WRITES, McpServerConfig
from core.mcp.tool_names import tool_names

if TYPE_CHECKING:  # importing the SDK takes a second
    from mcp.types import Tool

log = logging.getLogger(__name__)

TOOLS_PER_SERVER_MAX = 128
"""Limit on tools from one server, because more would fill the context window. `enabled_tools` selects them."""

DESCRIPTION_CHARACTERS_MAX = 4_000
DESCRIPTION_CHARACTERS_OF_ALL_MAX = 60_000
SHORT_DESCRIPTION_CHARACTERS_MAX = 400
"""Limit on each further description once those of a server have reached the limit on all."""

SCHEMA_CHARACTERS_OF_ALL_MAX = 400_000
SCHEMA_KEY = "threadhand/schema"
"""The `_meta` key under which a listed tool stores its schema exactly as the server sent it."""

TASK_KEY = "threadhand/task"
"""The `_meta` key that is set if a tool can only be called as a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """One tool of a server. `name` is the name that models see, `tool` the server's own name."""

    name: str
    tool: str
    server: str
    params: type[McpArguments]
    needs_approval: bool
    is_read_only: bool


async def select_usable_tools(
    config: McpServerConfig, listed: "Sequence[Tool]"
) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """Returns the enabled tools that can be used, in the server's order, and a description of each enabled tool that is
    left out, with the reason. Also logs these descriptions."""
    wanted = [one for one in listed if matches_any(one.name, config.enabled_tools)]
    names = tool_names(config.name, (one.name for one in wanted))
    found: dict[str, ListedTool] = {}
    left_out: list[str] = []
    room = SCHEMA_CHARACTERS_OF_ALL_MAX
    words = DESCRIPTION_CHARACTERS_OF_ALL_MAX
    for index, one in enumerate(wanted):
        if len(found) == TOOLS_PER_SERVER_MAX or room <= 0:
            left_out.append(f"{len(wanted) - index} more: name those you want in enabled_tools")
            break
        try:
            limit = DESCRIPTION_CHARACTERS_MAX if words > 0 else SHORT_DESCRIPTION_CHARACTERS_MAX
            offer = await asyncio.to_thread(_offer, config, one, names[one.name], limit)
        except UnusableSchema as error:
            left_out.append(f"{clean_line(one.name, 60)}: {error}")
            continue
        room -= len(str(offer.params.provider_schema))
        words -= len(offer.params.__doc__ or "")
        found.setdefault(offer.name, offer)
    if left_out:
        log.warning("tools of the MCP server %s are left out: %s", config.name, "; ".join(left_out)[:2_000])
    return tuple(found.values()), tuple(left_out)


def _offer(config: McpServerConfig, listed: "Tool", name: str, description_max: int) -> ListedTool:
    meta = listed.meta or {}
    if meta.get(TASK_KEY):
        raise UnusableSchema("it can only be called as a task, which is not supported")
    schema, originals = rename_parameters(clean_schema(meta.get(SCHEMA_KEY)))
    shown, rest = split_off_combinations(schema)
    said = clean_description(listed.description or "", description_max) or "It has no description."
    description = f"[Tool of the MCP server {config.name}, described by it:] {said}{rest}"
    is_read_only = listed.annotations is not None and listed.annotations.read_only_hint is True
    if config.needs_approval == WRITES:
        needs_approval = not is_read_only
    else:
        needs_approval = matches_any(listed.name, tuple(config.needs_approval))
    return ListedTool(
        name=name,
        tool=listed.name,
        server=config.name,
        params=build_arguments_model(name, description, schema, shown, originals),
        needs_approval=needs_approval,
        is_read_only=is_read_only,
    )


def reach_of_call(config: McpServerConfig, arguments: JsonObject, *, is_read_only: bool) -> Reach:
    """Returns the reach of a tool call. The claim that a tool only reads counts if the operator trusts the server.

    If a call that changes something names no target, its short arguments count as its targets, unless the operator has
    listed which tools need approval."""
    brings: tuple[Origin, ...] = (("server", config.name),)
    if is_read_only and config.trusted:
        return Reach("reads_outside", find_argument_addresses(arguments), brings)
    targets = find_targets(arguments)
    if not targets and not is_read_only and config.needs_approval == WRITES:
        targets = find_short_values(arguments) or (config.name,)
    return Reach("writes_outside", targets, brings)


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
