"""The tools of all MCP servers, for any run that wants them."""

import asyncio
import fnmatch
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from core.domain.errors import ToolError
from core.mcp.arguments import McpArguments
from core.mcp.link import ServerLink
from core.mcp.names import prefix
from core.mcp.offers import Offer, matches
from core.mcp.redaction import blotted, secrets_of
from core.mcp.settings import McpServerConfig
from core.tasks import cancel, spawn
from core.tools.tool import Tool, ToolContext, ToolOutput

log = logging.getLogger(__name__)

WAIT_SECONDS = 3.0
"""How long a run waits for servers that are not connected yet; they go on connecting beside it."""

SLACK_SECONDS = 60.0
"""Room in a tool's own limit for a connection that is made first."""


class McpServers:
    """The servers of the settings. Made without any I/O; a server is started when its tools are first wanted.

    `host_environment` is what servers over stdio may see of ours: only PATH, HOME and LANG are taken from it.
    """

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        *,
        host_environment: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        backoff_seconds: float = 1.0,
    ) -> None:
        self._links = tuple(
            ServerLink(config, host_environment or {}, backoff_seconds) for config in configs
        )
        self._wait_seconds = wait_seconds
        self._gathering: dict[str, asyncio.Task[tuple[Offer, ...]]] = {}

    def warm(self) -> None:
        """Starts to connect to every server and returns at once."""
        for link in self._links:
            self._gather(link)

    async def tools(self, enabled: frozenset[str] | None = None) -> tuple[Tool[Any], ...]:
        """The tools of the servers that can be had now. `enabled` None: all; else names of servers, or names of tools
        as the model sees them, in which * stands for anything.

        Never raises for a server: one that fails or is slow is left out, and told to the operator once.
        """
        wanted = [link for link in self._links if _is_wanted(link.config.name, enabled)]
        tasks = [self._gather(link) for link in wanted]
        if tasks:
            await asyncio.wait(tasks, timeout=self._wait_seconds)
        found: list[Tool[Any]] = []
        for link, task in zip(wanted, tasks, strict=True):
            if not task.done():
                log.info(
                    "the MCP server %s is not ready; this run goes without it", link.config.name
                )
                continue
            if not task.cancelled() and task.exception() is None:
                offers = task.result()
                found.extend(_tool(link, offer) for offer in offers if _is_enabled(offer, enabled))
        return tuple(found)

    def needs_approval(self, tool_name: str) -> bool:
        """Whether the settings want a person's word before this tool runs; no for a tool that is none of ours.

        A tool that its server no longer lists needs it too, where any of that server does.
        """
        for link in self._links:
            if tool_name.startswith(prefix(link.config.name)):
                is_listed = any(offer.name == tool_name for offer in link.offers)
                unlisted = not is_listed and bool(link.config.needs_approval)
                return unlisted or tool_name in link.needing
        return False

    def _gather(self, link: ServerLink) -> asyncio.Task[tuple[Offer, ...]]:
        name = link.config.name
        task = self._gathering.get(name)
        if task is None:
            task = spawn(link.ready(), name=f"mcp {name} tools")
            self._gathering[name] = task
            task.add_done_callback(lambda _task: self._gathering.pop(name, None))
        return task

    async def close(self) -> None:
        """Leaves every server; no process of one over stdio remains."""
        for task in tuple(self._gathering.values()):
            await cancel(task)
        await asyncio.gather(*(link.close() for link in self._links))


def _is_wanted(server: str, enabled: frozenset[str] | None) -> bool:
    """Whether any tool of the server may be enabled: a server nobody wants is never started."""
    if enabled is None:
        return True
    start = prefix(server)
    return any(
        pattern == server
        or pattern.startswith(start)
        or ("*" in pattern and fnmatch.fnmatchcase(start, f"{pattern.split('*')[0]}*"))
        for pattern in enabled
    )


def _is_enabled(offer: Offer, enabled: frozenset[str] | None) -> bool:
    return enabled is None or offer.server in enabled or matches(offer.name, tuple(enabled))


def _tool(link: ServerLink, offer: Offer) -> Tool[McpArguments]:
    return Tool(
        name=offer.name,
        params=offer.params,
        run=partial(_run, link, offer),
        title=partial(_title, offer),
        timeout_seconds=link.config.call_timeout_seconds
        + link.config.connect_timeout_seconds
        + SLACK_SECONDS,
    )


def _title(offer: Offer, _params: McpArguments) -> str:
    return f"{offer.server}: {offer.tool}"


async def _run(
    link: ServerLink, offer: Offer, params: McpArguments, context: ToolContext
) -> ToolOutput:
    """What the server was given in confidence is taken out of what it answers: its errors like to repeat it."""
    secrets = secrets_of(link.config)
    try:
        output = await link.call(offer.tool, params.root, context)
    except ToolError as error:
        raise ToolError(blotted(str(error), secrets)) from None
    return replace(output, output=blotted(str(output.output), secrets))
