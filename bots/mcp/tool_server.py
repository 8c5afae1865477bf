"""`threadhand mcp`: serves the agent's tools, with a sandbox of their own, to MCP clients."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bots.bootstrap.mcp import build_mcp_sessions
from bots.bootstrap.model_clients import ModelClient, build_model_client
from bots.bootstrap.model_specs import load_model_specs
from bots.bootstrap.process_messaging import Messaging
from bots.bootstrap.sandboxes import build_sandboxes
from bots.bootstrap.semantic_search import open_semantic_search
from bots.bootstrap.stores import Stores
from bots.bootstrap.web_access import build_toolbox, build_web_services
from bots.settings import Settings
from core import failpoints
from core.agents.definition import DEFAULT_AGENT
from core.domain.budget import Budget, Spending, Spent, find_exhausted
from core.domain.errors import BudgetExceeded, ConfigurationError, SandboxUnavailable
from core.domain.threads import Usage
from core.knowledge.knowledge_base import RunKnowledge
from core.knowledge.ports import Ask
from core.knowledge.query_expansion import build_model_asker
from core.mcp.own_server import OpenContext, serve_http, serve_stdio
from core.model_usage import build_usage_pricer
from core.observability import NO_METRICS
from core.ports import Sandbox, SandboxProvider
from core.tools.tool import Requirement, ToolBudget, ToolContext, ToolSet
from storage.sql.database import opened_database

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
SESSION_BUDGET_USED = (
    "This session has used up the budget of a run. THREADHAND_BUDGET_RUN_USD or THREADHAND_BUDGET_RUN_TOKENS raises it."
)
FENCE = 1


async def serve_tools_over_mcp(settings: Settings, *, http_port: int | None) -> None:
    """Serves one client on stdin and stdout until it disconnects. If a port is given, serves HTTP on it until
    cancelled.

    HTTP clients need the API token. The sandbox and its files are deleted at the end. Raises ConfigurationError."""
    failpoints.arm(settings.failpoints)
    token = settings.api_token.get_secret_value()
    if http_port is not None and not token:
        raise ConfigurationError(
            "Anyone who reaches the port could run tools: set THREADHAND_API_TOKEN, which clients send as a bearer "
            "token, or serve over stdio."
        )
    async with _open_sessions(settings) as (tools, open_context):
        if http_port is None:
            await serve_stdio(tools, open_context, on_ready=lambda: _log_address("stdin and stdout"))
        else:
            await serve_http(tools, open_context, host=HOST, port=http_port, token=token, on_ready=_log_address)


def _log_address(address: str) -> None:
    log.info("MCP is served at %s", address)


@asynccontextmanager
async def _open_sessions(settings: Settings) -> AsyncGenerator[tuple[ToolSet, OpenContext], None]:
    """Yields the tools, and the function that opens the context of a session: a thread of its own, which is deleted
    at the end."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened_database(settings.storage_url))
        semantics = await stack.enter_async_context(open_semantic_search(settings, database))
        stores = Stores(database, Messaging(), semantics)
        sandboxes = await build_sandboxes(settings, stores.sandboxes)
        for sentence in sandboxes.warnings:
            log.warning(sentence)
        provider = sandboxes.provider
        if provider is not None:
            stack.push_async_callback(provider.close)
        sessions = build_mcp_sessions(settings, stores, provider)
        specs = await load_model_specs(settings)
        charge = build_usage_pricer(specs.price_of, NO_METRICS)
        client = build_model_client(settings, specs.context_policy) if settings.model else None
        if client is not None:
            stack.push_async_callback(client.close)
        outside = build_web_services(settings)
        stack.push_async_callback(outside.close)
        missing: set[Requirement] = set() if client else {"model"}
        if provider is None or provider.name != "modal":
            missing.add("port_links")
        tools = build_toolbox(outside, has_sandbox=provider is not None, has_browser=sandboxes.has_browser)

        @asynccontextmanager
        async def open_context() -> AsyncGenerator[ToolContext, None]:
            async with sessions.open_session() as thread_id:
                budget = _SessionBudget(settings.budget, charge)
                yield ToolContext(
                    thread_id=thread_id,
                    run_id=thread_id,
                    sandbox=lambda: _open_sandbox(provider, thread_id),
                    knowledge=RunKnowledge(
                        knowledge_base=stores.knowledge_base.reporting_usage_to(budget.add),
                        thread_id=thread_id,
                        agent_id=DEFAULT_AGENT,
                        ask=_ask_within(budget, client, settings.model) if client else None,
                    ),
                    outside=outside,
                    budget=ToolBudget(check=budget.check, spent=budget.add),
                )

        yield tools.without(missing), open_context


class _SessionBudget:
    """The cost of the model calls of one session, which the budget of a run limits."""

    def __init__(self, budget: Budget, charge: Callable[[str, Usage], Usage]) -> None:
        self._budget = budget
        self._charge = charge
        self._spent = Spent()

    def add(self, model: str, usage: Usage) -> None:
        self._spent = self._spent.plus(self._charge(model, usage))

    async def check(self) -> None:
        """Raises BudgetExceeded if a limit is reached."""
        if find_exhausted(self._budget, Spending(run=self._spent)) is not None:
            raise BudgetExceeded(SESSION_BUDGET_USED)


def _ask_within(budget: _SessionBudget, client: ModelClient, model: str) -> Ask:
    """Returns a function that asks the model about documents, unless the session's budget is used up."""
    ask = build_model_asker(client.ask_model, model, on_usage=budget.add)

    async def ask_within_budget(question: str) -> str:
        await budget.check()
        return await ask(question)

    return ask_within_budget


async def _open_sandbox(provider: SandboxProvider | None, thread_id: str) -> Sandbox:
    if provider is None:
        raise SandboxUnavailable("There is no sandbox on this machine.")
    return await provider.open(thread_id, fence=FENCE)
