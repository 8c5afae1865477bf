"""Offers the resources and prompts of MCP servers to models, as tools beside those of the server."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import PaginatedResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool, ToolAnnotations
from pydantic import ValidationError

from core.context.untrusted_text import clean_line
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.mcp.results import Part, convert_parts
from core.mcp.tools import SCHEMA_KEY
from core.tools.tool import ToolContext, ToolOutput

log = logging.getLogger(__name__)

LIST_RESOURCES, READ_RESOURCE, GET_PROMPT = NAMES = ("list_resources", "read_resource", "get_prompt")
OFFER_SECONDS = 5.0
"""How long a server may take to name its resources, templates or prompts before it counts as having none."""

PAGES_MAX = 20
ITEMS_MAX = 10_000
LIST_CHARACTERS_MAX = 20_000
PROMPTS_CHARACTERS_MAX = 3_000
ABOUT_CHARACTERS_MAX = 300


PageT = TypeVar("PageT", bound=PaginatedResult)
ItemT = TypeVar("ItemT")


async def list_resource_tools(client: Client, taken: Sequence[Tool]) -> tuple[Tool, ...]:
    """Returns tools for the resources and prompts of the server, except those whose names its own tools use. Errors of
    the server are logged, not raised."""
    offered = client.server_capabilities
    found: list[Tool] = []
    if offered.resources is not None:
        resources, templates = await asyncio.gather(
            _offered(_resources(client, pages=1)), _offered(_templates(client, pages=1))
        )
        if resources or templates:
            found += [
                _tool(LIST_RESOURCES, "Lists the resources (files, records) of this server.", _SEARCH),
                _tool(READ_RESOURCE, "Reads a resource of this server.", _URI),
            ]
    prompts = await _offered(_prompts(client)) if offered.prompts is not None else []
    if prompts:
        shown = clean_line("; ".join(map(_prompt_line, prompts[:500])), PROMPTS_CHARACTERS_MAX)
        about = f"Fills in a prompt of this server, for use when people ask for it. Prompts: {shown}"
        found.append(_tool(GET_PROMPT, about, _PROMPT))
    names = {one.name for one in taken}
    return tuple(one for one in found if one.name not in names)


async def call_resource_tool(
    client: Client, server: str, tool: str, arguments: JsonObject, context: ToolContext
) -> ToolOutput:
    """Runs one of these tools. Raises ToolError and what the SDK raises."""
    parts: list[Part]
    if tool == LIST_RESOURCES:
        parts = [await _listing(client, str(arguments.get("search") or ""))]
    elif tool == READ_RESOURCE:
        read: ReadResourceResult = await client.read_resource(str(arguments.get("uri")))
        parts = [*read.contents]
    else:
        name, given = str(arguments.get("name")), arguments.get("arguments")
        texts = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in (given.items() if isinstance(given, dict) else ())
        }
        known = next((one for one in await _offered(_prompts(client)) if one.name == name), None)
        if known and any(one.required and one.name not in texts for one in known.arguments or ()):
            raise ToolError(f"The prompt needs more arguments: {_prompt_line(known)}")
        filled = await client.get_prompt(name, texts)
        parts = [part for one in filled.messages for part in (f"[{one.role}]", one.content)]
    return await convert_parts(parts, server=server, tool=tool, context=context)


async def _listing(client: Client, search: str) -> str:
    """Returns a line for each resource and template that contains every word of `search`, up to a number of
    characters."""
    words = search.lower().split()
    resources, templates = await asyncio.gather(_resources(client), _offered(_templates(client)))
    items = [*resources, *templates]
    lines = await asyncio.to_thread(
        lambda: [line for line in map(_line, items) if all(word in line.lower() for word in words)]
    )
    kept, room = 0, LIST_CHARACTERS_MAX
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    if kept < len(lines):
        rest = f"[{len(lines) - kept} more are left out: narrow it with `search`]"
        return "\n".join((*lines[:kept], rest))
    return "\n".join(lines) or "No resource matches."


def _line(item: Resource | ResourceTemplate) -> str:
    uri = item.uri if isinstance(item, Resource) else item.uri_template
    kind = f" ({clean_line(item.mime_type, 80)})" if item.mime_type else ""
    about = f"{item.title or item.name}: {item.description or ''}".removesuffix(": ")
    return f"{clean_line(uri, 500)}{kind}: {clean_line(about, ABOUT_CHARACTERS_MAX)}"


def _prompt_line(prompt: Prompt) -> str:
    named = (f"{one.name}{'' if one.required else '?'}" for one in prompt.arguments or ())
    said = clean_line(prompt.description or "", ABOUT_CHARACTERS_MAX).rstrip(".")
    return clean_line(f"{prompt.name}({', '.join(named)}){f': {said}.' if said else ''}", 1_000)


async def _offered(asked: Awaitable[list[ItemT]]) -> list[ItemT]:
    """Returns the list that the server gives, or an empty list if the server fails or does not respond in time."""
    try:
        async with asyncio.timeout(OFFER_SECONDS):
            return await asked
    except (MCPError, ValidationError, RuntimeError, TimeoutError) as error:
        log.info("an MCP server does not name what it offers (%s)", type(error).__name__)
        return []


def _resources(client: Client, pages: int = PAGES_MAX) -> Awaitable[list[Resource]]:
    return read_pages(client.list_resources, lambda page: page.resources, pages)


def _templates(client: Client, pages: int = PAGES_MAX) -> Awaitable[list[ResourceTemplate]]:
    return read_pages(client.list_resource_templates, lambda page: page.resource_templates, pages)


def _prompts(client: Client) -> Awaitable[list[Prompt]]:
    return read_pages(client.list_prompts, lambda page: page.prompts, PAGES_MAX)


async def read_pages(
    ask: Callable[..., Awaitable[PageT]],
    items_of: Callable[[PageT], Sequence[ItemT]],
    pages_max: int,
    items_max: int = ITEMS_MAX,
) -> list[ItemT]:
    """Returns the first items of a list that a server sends in pages. Raises what the SDK raises."""
    found, cursor = list[ItemT](), None
    for _ in range(pages_max):
        page = await ask(cursor=cursor)
        found.extend(items_of(page))
        if not page.next_cursor or page.next_cursor == cursor or len(found) >= items_max:
            break
        cursor = page.next_cursor
    return found[:items_max]


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_SEARCH = _schema({"search": {"type": "string", "description": "Words that a line must contain."}})
_URI = _schema({"uri": {"type": "string", "description": "Its URI, with the {fields} of a template filled in."}}, "uri")
_PROMPT = _schema(
    {"name": {"type": "string"}, "arguments": {"type": "object", "additionalProperties": {"type": "string"}}}, "name"
)


def _tool(name: str, description: str, schema: dict[str, Any]) -> Tool:
    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        annotations=ToolAnnotations(read_only_hint=True),
        _meta={SCHEMA_KEY: schema},
    )
