"""`threadhand mcp`: serves the agent's tools, with a sandbox of their own, to MCP clients."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from bots.bootstrap.mcp import build_mcp_sessions
from bots.bootstrap.messaging import Messaging
from bots.bootstrap.model_clients import build_model_client, open_semantic_search
from bots.bootstrap.sandboxes import build_sandboxes
from bots.bootstrap.stores import Stores
from bots.bootstrap.web_access import build_toolbox, build_web_services
from bots.settings import Settings
from core import failpoints
from core.agents.definition import DEFAULT_AGENT
from core.domain.errors import ConfigurationError, SandboxUnavailable
from core.knowledge.knowledge_base import RunKnowledge
from core.knowledge.ports import Ask
from core.knowledge.query_expansion import model_asker
from core.mcp.server import serve_http, serve_stdio
from core.ports import Sandbox, SandboxProvider
from core.tools.lookup import ask_document
from core.tools.tool import ToolContext, ToolSet
from storage.sql.database import open_database

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
FENCE = 1
THREAD_ONLY_TOOLS = frozenset({"expand_message", "search_conversation", "planning"})
"""Tools that work on a conversation; here there is none."""


async def serve_mcp(settings: Settings, *, http_port: int | None) -> None:
    """Serves one client on stdin and stdout until it disconnects; with a port, serves HTTP until cancelled.

    HTTP clients need the API token. The sandbox and its files are deleted at the end. Raises ConfigurationError.
    """
    failpoints.arm(settings.failpoints)
    token = settings.api_token.get_secret_value()
    if http_port is not None and not token:
        raise ConfigurationError(
            "Anyone who reaches the port could run tools: set THREADHAND_API_TOKEN, which clients send as a bearer "
            "token, or serve over stdio."
        )
    async with _session(settings) as (tools, context):
        if http_port is None:
            _log_address("stdin and stdout")
            await serve_stdio(tools, lambda: context)
        else:
            await serve_http(
                tools,
                lambda: context,
                host=HOST,
                port=http_port,
                token=token,
                on_ready=_log_address,
            )


def _log_address(address: str) -> None:
    log.info("MCP is served at %s", address)


@asynccontextmanager
async def _session(settings: Settings) -> AsyncGenerator[tuple[ToolSet, ToolContext], None]:
    """Yields the tools and their context: a thread of their own, which is deleted at the end."""
    async with AsyncExitStack() as stack:
        database = await open_database(settings.storage_url)
        stack.push_async_callback(database.close)
        semantics = await stack.enter_async_context(open_semantic_search(settings, database))
        stores = Stores(database, Messaging(), semantics)
        sandboxes = await build_sandboxes(settings, stores.sandboxes)
        for sentence in sandboxes.warnings:
            log.warning(sentence)
        provider = sandboxes.provider
        if provider is not None:
            stack.push_async_callback(provider.close)
        sessions = build_mcp_sessions(settings, stores, provider)
        thread_id = await stack.enter_async_context(sessions.open_session())
        ask = await _build_ask(settings, stack)
        outside = build_web_services(settings)
        stack.push_async_callback(outside.close)
        excluded = THREAD_ONLY_TOOLS if ask else THREAD_ONLY_TOOLS | {ask_document.name}
        tools = build_toolbox(
            outside, has_sandbox=provider is not None, has_browser=sandboxes.has_browser
        )
        context = ToolContext(
            thread_id=thread_id,
            run_id=thread_id,
            sandbox=lambda: _open_sandbox(provider, thread_id),
            knowledge=RunKnowledge(
                knowledge_base=stores.knowledge_base,
                thread_id=thread_id,
                agent_id=DEFAULT_AGENT,
                ask=ask,
            ),
            outside=outside,
        )
        yield (
            ToolSet({name: tool for name, tool in tools.tools.items() if name not in excluded}),
            context,
        )


async def _build_ask(settings: Settings, stack: AsyncExitStack) -> Ask | None:
    """Builds the model that reads documents. Returns None with a budget, because no run would be charged here."""
    if not settings.model or settings.budget.is_set:
        return None
    model_client = build_model_client(settings)
    stack.push_async_callback(model_client.close)
    return model_asker(model_client.ask_model, settings.model)


async def _open_sandbox(provider: SandboxProvider | None, thread_id: str) -> Sandbox:
    if provider is None:
        raise SandboxUnavailable("There is no sandbox on this machine.")
    return await provider.open(thread_id, fence=FENCE)
