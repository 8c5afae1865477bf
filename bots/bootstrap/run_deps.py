"""Builds the dependencies of runs."""

import asyncio
from dataclasses import dataclass
from functools import partial

from bots.bootstrap.model_clients import ModelClient
from bots.bootstrap.model_specs import ModelSpecs
from bots.bootstrap.platforms import Platforms
from bots.bootstrap.sandboxes import SandboxDeps, build_run_prompt
from bots.bootstrap.stores import Stores
from bots.bootstrap.web_access import build_toolbox, build_web_services
from bots.settings import Settings
from bots.web.links import SignedLinks
from core.agents.roster import Roster
from core.knowledge.agent_file_sync import KnowledgeFileSync
from core.loop.run_context import LoopPolicy
from core.mcp.servers import McpServers
from core.observability import RunMetrics
from core.run.deps import (
    AgentDefaults,
    AgentSources,
    ChatAccess,
    ModelAccess,
    RunDeps,
    RunLimits,
    RunMessaging,
    RunStores,
)
from core.tools.tool import ThreadLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramParts:
    """The parts of the program that do not depend on the process's role."""

    settings: Settings
    stores: Stores
    sandboxes: SandboxDeps
    model_client: ModelClient
    model_specs: ModelSpecs
    mcp_servers: McpServers
    roster: Roster
    agent_knowledge: KnowledgeFileSync
    metrics: RunMetrics


def build_run_deps(parts: ProgramParts, *, worker_id: str, platforms: Platforms, links: SignedLinks) -> RunDeps:
    """Builds the dependencies of runs. The caller may still add platforms to `platforms` afterwards."""
    settings, stores = parts.settings, parts.stores
    web = build_web_services(settings)
    sandboxes = parts.sandboxes
    return RunDeps(
        worker_id=worker_id,
        stores=RunStores(
            claims=stores.claims,
            journal=stores.journal,
            conversations=stores.conversations,
            ledger=stores.ledger,
            plans=stores.plans,
            knowledge_base=stores.knowledge_base,
            schedules=stores.schedules,
        ),
        messaging=RunMessaging(bus=stores.bus, signals=stores.signals),
        sandboxes=parts.sandboxes.provider,
        chat=ChatAccess(
            file_sources=platforms.file_sources,
            file_bytes_max=settings.file_bytes_max,
            histories=platforms.histories,
            links=partial(_thread_links, links, has_browser=parts.sandboxes.has_browser),
        ),
        defaults=AgentDefaults(
            model=parts.settings.model,
            prompt=partial(build_run_prompt, sandboxes, time_zone=parts.settings.time_zone),
            dialect=parts.model_client.dialect,
            dialect_setting=parts.settings.dialect,
            time_zone=parts.settings.time_zone,
            toolbox=build_toolbox(
                web, has_sandbox=sandboxes.provider is not None, has_browser=sandboxes.has_browser, roster=parts.roster
            ),
        ),
        agents=AgentSources(
            roster=parts.roster,
            mcp_tools=parts.mcp_servers.tools,
            mcp_missing=parts.mcp_servers.missing_servers,
            mcp_instructions=parts.mcp_servers.instructions,
            index_knowledge=parts.agent_knowledge.wait_until_read,
        ),
        limits=RunLimits(
            policy=LoopPolicy(
                turns_max=settings.max_turns,
                strategy=settings.tool_strategy,
                executes_on_stream=settings.execute_on_stream,
                is_streamed=settings.stream,
                xml_calls_max=settings.max_xml_tool_calls,
                shows_reasoning=settings.show_reasoning,
                calls_max=settings.max_calls,
            ),
            context_policy=parts.model_specs.context_policy,
            budget=settings.budget,
            schedules=settings.schedule_limits,
        ),
        models=ModelAccess(ask_model=parts.model_client.ask_model, price_of=parts.model_specs.price_of),
        metrics=parts.metrics,
        web=web,
        draining=asyncio.Event(),
    )


def _thread_links(links: SignedLinks, thread_id: str, *, has_browser: bool) -> ThreadLinks:
    return ThreadLinks(
        preview_url=partial(links.page_preview_url, thread_id),
        port_url=partial(links.port_url, thread_id),
        takeover_url=partial(links.takeover_url, thread_id) if has_browser else lambda: None,
    )
