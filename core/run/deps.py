"""The dependencies that all runs of a process share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.agents.roster import Roster
from core.context.window import ContextPolicy
from core.dialects.dialect import Dialect
from core.domain.budget import Budget, Ledger, PriceOf
from core.domain.plans import PlanStore
from core.domain.schedules import DEFAULT_LIMITS, ScheduleLimits
from core.domain.threads import Address
from core.knowledge.knowledge_base import KnowledgeBase
from core.loop.run_context import AskModel, LoopPolicy
from core.observability import RunMetrics
from core.ports import ChatHistory, EventBus, FileSource, SandboxProvider, StopSignals
from core.prompt.system_prompt import RunPrompt
from core.stores import Conversations, RunClaims, RunJournal, Schedules
from core.tools.tool import ThreadLinks, Tool, ToolSet
from core.web_access.services import WebServices

McpTools = Callable[[frozenset[str] | None], Awaitable[Sequence[Tool[Any]]]]
"""Returns the tools that the named MCP servers offer now. Pass None for all servers."""
McpTexts = Callable[[frozenset[str] | None], Mapping[str, str]]
"""Returns a text for some of the named MCP servers, by name: why their tools were just left out, or how to use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStores:
    """The stores that a run reads and writes."""

    claims: RunClaims
    journal: RunJournal
    conversations: Conversations
    ledger: Ledger
    plans: PlanStore
    knowledge_base: KnowledgeBase
    schedules: Schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMessaging:
    """How a run exchanges messages with other processes."""

    bus: EventBus
    signals: StopSignals


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAccess:
    """What a run reads from chat platforms, by platform name, and the links that it gives to users.

    `links` returns the links of a thread by its id. `file_bytes_max` limits each attached file."""

    file_sources: Mapping[str, FileSource]
    file_bytes_max: int
    histories: Mapping[str, ChatHistory]
    links: Callable[[str], ThreadLinks]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefaults:
    """The values for agents that do not set their own. `dialect_setting` is the name that `dialect` was selected by.

    `prompt` is called with the address of the conversation and the most tokens that one response may have. `time_zone`
    is used for users whose own is unknown."""

    model: str
    prompt: Callable[[Address, int], RunPrompt]
    dialect: Dialect
    dialect_setting: str
    toolbox: ToolSet
    time_zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSources:
    """Where agents come from. `index_knowledge` indexes the current content of an agent's knowledge files."""

    roster: Roster
    mcp_tools: McpTools
    mcp_missing: McpTexts = lambda _servers: {}
    mcp_instructions: McpTexts = lambda _servers: {}
    index_knowledge: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits of each run."""

    policy: LoopPolicy
    context_policy: ContextPolicy
    budget: Budget
    schedules: ScheduleLimits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """Functions that call models and return their prices."""

    ask_model: AskModel
    price_of: PriceOf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    """The dependencies of every run; the bootstrap builds them once.

    `sandboxes` is None on a machine without sandboxes. Once `draining` is set, each run is handed over to another
    worker at the end of its current turn.
    """

    worker_id: str
    stores: RunStores
    messaging: RunMessaging
    sandboxes: SandboxProvider | None
    chat: ChatAccess
    defaults: AgentDefaults
    agents: AgentSources
    limits: RunLimits
    models: ModelAccess
    metrics: RunMetrics
    web: WebServices
    draining: asyncio.Event
