"""The dependencies that all runs of a process share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.agents.roster import Roster
from core.context.window import ContextPolicy
from core.dialects.dialect import Dialect
from core.domain.budget import NO_BUDGET, Budget, Ledger, PriceOf
from core.domain.plans import PlanStore
from core.knowledge.knowledge_base import KnowledgeBase
from core.loop.run_context import LoopPolicy
from core.loop.turn import AskModel
from core.observability import NO_METRICS, RunMetrics
from core.ports import ChatHistory, EventBus, FileSource, SandboxProvider, StopSignals
from core.stores import Conversations, RunClaims, RunJournal
from core.tools.tool import Tool, ToolSet
from core.web_access.services import WebServices

MoreTools = Callable[[frozenset[str] | None], Awaitable[Sequence[Tool[Any]]]]
"""Returns the tools that the named MCP servers offer now. Pass None for all servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    """The services and settings that every run needs; the bootstrap builds them once.

    `model`, `dialect` and `toolbox` are the defaults for agents that do not set their own. `dialect_setting` is the
    configured name that `dialect` was selected by. `learn` indexes the current content of an agent's knowledge
    files. If `roster` is None, runs have no agent definition. Once `draining` is set, each run is handed over to
    another worker at the end of its current turn.
    """

    worker_id: str
    claims: RunClaims
    journal: RunJournal
    conversations: Conversations
    bus: EventBus
    signals: StopSignals
    sandboxes: SandboxProvider | None
    file_sources: Mapping[str, FileSource]
    file_bytes_max: int
    model: str
    system_prompt: Callable[[], str]
    dialect: Dialect
    dialect_setting: str = "auto"
    toolbox: ToolSet
    more_tools: MoreTools | None = None
    policy: LoopPolicy
    ask_model: AskModel
    roster: Roster | None = None
    knowledge_base: KnowledgeBase | None = None
    learn: Callable[[str], Awaitable[None]] | None = None
    budget: Budget = NO_BUDGET
    ledger: Ledger | None = None
    price_of: PriceOf = lambda _model: None
    figures: RunMetrics = NO_METRICS
    plans: PlanStore | None = None
    preview_url: Callable[[str, str], str | None] = lambda _thread_id, _path: None
    port_url: Callable[[str, int], str | None] = lambda _thread_id, _port: None
    takeover_url: Callable[[str], str | None] = lambda _thread_id: None
    context_policy: ContextPolicy = field(default_factory=ContextPolicy)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    outside: WebServices = field(default_factory=WebServices)
    thread_talks: Mapping[str, ChatHistory] = field(default_factory=dict[str, ChatHistory])
