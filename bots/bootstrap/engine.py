"""Builds the engine that executes runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bots.bootstrap.agent_knowledge import AgentKnowledgeSync
from bots.bootstrap.mcp import McpTools
from bots.bootstrap.model_clients import ModelClient, ModelSpecs
from bots.bootstrap.sandboxes import SandboxDeps, render_system_prompt
from bots.bootstrap.stores import Stores
from bots.bootstrap.web_access import build_toolbox, build_web_services
from bots.settings import Settings
from core.agents.roster import Roster
from core.loop.run_context import LoopPolicy
from core.observability import NO_METRICS, RunMetrics
from core.ports import ChatHistory, FileSource
from core.run.deps import RunDeps
from core.tools.tool import ToolSet


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeps:
    """The dependencies of `build_engine`."""

    settings: Settings
    stores: Stores
    sandboxes: SandboxDeps
    model_client: ModelClient
    model_specs: ModelSpecs
    mcp_tools: McpTools
    roster: Roster
    agent_knowledge: AgentKnowledgeSync
    figures: RunMetrics = NO_METRICS


def no_takeover_url(_thread_id: str) -> str | None:
    """Returns None, because there is no page on which a user can take over the browser."""
    return None


def build_engine(
    deps: EngineDeps,
    *,
    worker_id: str,
    file_sources: Mapping[str, FileSource],
    thread_talks: Mapping[str, ChatHistory],
    preview_url: Callable[[str, str], str | None],
    takeover_url: Callable[[str], str | None] = no_takeover_url,
    port_url: Callable[[str, int], str | None],
) -> RunDeps:
    """Builds the engine. The caller may still add platforms to `file_sources` and `thread_talks` afterwards.

    The `*_url` functions return a link for users, or None if links are not served.
    """
    settings, stores, sandbox = deps.settings, deps.stores, deps.sandboxes.provider
    outside = build_web_services(settings)
    tools = build_toolbox(
        outside, has_sandbox=sandbox is not None, has_browser=deps.sandboxes.has_browser
    )
    return replace(
        _bare_engine(deps, worker_id, file_sources, tools),
        dialect_setting=settings.dialect,
        outside=outside,
        more_tools=deps.mcp_tools.tools,
        roster=deps.roster,
        knowledge_base=stores.knowledge_base,
        learn=deps.agent_knowledge.wait_until_read,
        context_policy=deps.model_specs.context_policy,
        price_of=deps.model_specs.price_of,
        figures=deps.figures,
        budget=settings.budget,
        ledger=stores.ledger,
        plans=stores.plans,
        thread_talks=thread_talks,
        preview_url=preview_url,
        port_url=port_url,
        takeover_url=takeover_url if deps.sandboxes.has_browser else no_takeover_url,
    )


def _bare_engine(
    deps: EngineDeps, worker_id: str, file_sources: Mapping[str, FileSource], tools: ToolSet
) -> RunDeps:
    """Returns the engine with only its required fields set."""
    settings, stores = deps.settings, deps.stores
    return RunDeps(
        worker_id=worker_id,
        claims=stores.claims,
        journal=stores.journal,
        conversations=stores.conversations,
        bus=stores.bus,
        signals=stores.signals,
        sandboxes=deps.sandboxes.provider,
        file_sources=file_sources,
        file_bytes_max=settings.file_bytes_max,
        model=settings.model,
        system_prompt=partial(render_system_prompt, deps.sandboxes),
        dialect=deps.model_client.dialect,
        toolbox=tools,
        policy=_policy(settings),
        ask_model=deps.model_client.ask_model,
    )


def _policy(settings: Settings) -> LoopPolicy:
    return LoopPolicy(
        turns_max=settings.max_turns,
        is_sequential=settings.tool_strategy == "sequential",
        executes_on_stream=settings.execute_on_stream,
        is_streamed=settings.stream,
        xml_calls_max=settings.max_xml_tool_calls,
    )
