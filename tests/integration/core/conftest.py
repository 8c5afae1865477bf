"""The dependencies of runs on a real database, a real bus and a scripted model, for runs without a chat platform."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import select

from bots.inbound.actions import decide_message
from core.agents.definition import ReferableNames
from core.agents.files import AgentFiles
from core.agents.roster import Roster
from core.context.window import ContextPolicy
from core.dialects.native import NativeDialect
from core.domain.actions import IncomingMessage
from core.domain.budget import NO_BUDGET
from core.domain.call_consent import STAYS
from core.domain.events import AgentEvent, RunFinished
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.threads import Address, IncomingFile, Lease, Person, Reply, Run
from core.knowledge.knowledge_base import KnowledgeBase
from core.loop.run_context import LoopPolicy
from core.observability import NO_METRICS
from core.prompt.system_prompt import RunPrompt
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
from core.run.execute import execute
from core.tools.catalogue import all_tools
from core.tools.tool import ThreadLinks, Tool, ToolContext, ToolOutput, ToolSet
from core.web_access.services import WebServices
from storage.memory.event_bus import MemoryEventBus
from storage.memory.run_queue import MemoryStopSignals
from storage.sql.database import Database
from storage.sql.stores.agents import SqlAgentVersions, SqlPlans
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.knowledge import SqlKnowledge
from storage.sql.stores.run_claims import SqlRunClaims, SqlRunRequests
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.stores.usage import SqlLedger
from storage.sql.tables import deliveries
from tests.databases import open_sqlite
from tests.fakes.streamed_model import StreamedModel
from tests.support.narrow import require, require_type


class EchoParams(BaseModel):
    """Say something back."""

    text: str


class Bench:
    """What the test tools did, and the gates that they wait at."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.started: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def has_started(self, name: str) -> asyncio.Event:
        return self.started.setdefault(name, asyncio.Event())

    async def until_started(self, name: str) -> None:
        """Waits until the tool `wait` is called with this text. Raises TimeoutError."""
        async with asyncio.timeout(60):
            await self.has_started(name).wait()

    async def echo(self, params: EchoParams, context: ToolContext) -> str:
        self.said.append(params.text)
        return f"echo {params.text}"

    async def wait(self, params: EchoParams, context: ToolContext) -> str:
        self.said.append(params.text)
        self.has_started(params.text).set()
        await self.gate(params.text).wait()
        return f"waited for {params.text}"

    async def explode(self, params: EchoParams, context: ToolContext) -> ToolOutput:
        raise RuntimeError(params.text)

    def toolbox(self) -> ToolSet:
        made = {
            name: Tool(
                name=name,
                effect="reads",
                reach=STAYS,
                params=EchoParams,
                run=run,
                title=lambda params, name=name: f"{name} {params.text}",
                timeout_seconds=30,
            )
            for name, run in {"echo": self.echo, "wait": self.wait, "explode": self.explode}.items()
        }
        talk = {name: all_tools()[name] for name in ("ask", "complete")}
        return ToolSet({**made, **talk})


class VanishingClaims(SqlRunClaims):
    """Claims whose release does not get through, as with a process that was killed."""

    async def release(self, lease: Lease) -> None:
        return None


ALICE = Person(person_id="U1", name="alice")


@dataclass
class World:
    """One thread, and the dependencies of its runs."""

    database: Database
    bench: Bench
    deps: RunDeps
    inbox: SqlInbox
    stops: SqlRunRequests
    signals: MemoryStopSignals
    address: Address
    model: StreamedModel
    author: Person = ALICE

    async def say(
        self,
        words: str,
        *,
        agent_id: str | None = None,
        files: tuple[IncomingFile, ...] = (),
        message_ref: str = "1",
        is_addressed: bool = True,
    ) -> str:
        """A person's message, for the agent if one is named; answers the run that will take it up."""
        message = IncomingMessage(
            address=self.address,
            dedupe_key=new_id(),
            message_ref=message_ref,
            person=self.author,
            text=words,
            sent_at=datetime.now(UTC),
            is_addressed=is_addressed,
            files=files,
        )
        named = replace(message, agent_id=agent_id)  # whichever agents there are
        receipt = await self.inbox.accept_action(named, lambda seen: decide_message(message, seen))
        assert receipt.run_id is not None
        return receipt.run_id

    async def run(self, words: str) -> str:
        run_id = await self.say(words)
        await execute(run_id, self.deps)
        return run_id

    async def begin(self, words: str, **more: Any) -> tuple[str, asyncio.Future[Any]]:
        """Says something as `say` does, and starts the execution of its run."""
        run_id = await self.say(words, **more)
        return run_id, asyncio.ensure_future(execute(run_id, self.deps))

    async def lose_worker(
        self, run_id: str, seen: Callable[[], Awaitable[object]] | None = None, *, name: str = "dead", **deps: Any
    ) -> None:
        """Executes the run as a worker that is killed once `seen` returns, or by one of the dependencies: what it has
        stored stays, its lease is not released, and its death is known."""
        claims = VanishingClaims(self.database)
        mortal = replace_dependencies(self.deps, claims=claims, worker_id=name, **deps)
        running = asyncio.ensure_future(execute(run_id, mortal))
        if seen is not None:
            async with asyncio.timeout(60):
                await seen()
            running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await claims.remove_worker(name)

    def with_deps(self, **changes: Any) -> "World":
        self.deps = replace_dependencies(self.deps, **changes)
        return self

    async def events(self, run_id: str) -> list[AgentEvent]:
        return [one.event for one in await self.deps.stores.conversations.events(run_id)]

    async def read_run(self, run_id: str) -> Run:
        return require(await self.deps.stores.conversations.run(run_id))

    async def read_end(self, run_id: str) -> RunFinished:
        """The last event of a run that has finished."""
        return require_type((await self.events(run_id))[-1], RunFinished)

    async def read_reply(self, run_id: str) -> Reply:
        """The reply that ended the run."""
        return require((await self.read_end(run_id)).reply)

    async def messages(self, run_id: str) -> list[Message]:
        run = await self.read_run(run_id)
        return list(await self.deps.stores.conversations.messages(run.thread_id))

    async def history(self, run_id: str) -> list[Message]:
        return [one for one in await self.messages(run_id) if one.is_llm_message]

    async def tool_results(self, run_id: str) -> list[dict[str, Any]]:
        """The results of the calls in the run's thread, in their order."""
        stored = [one for one in await self.history(run_id) if one.type == "tool"]
        return [json.loads(str(one.content["content"]))["tool_execution"]["result"] for one in stored]

    async def left(self, run_id: str) -> list[tuple[str, JsonObject]]:
        """Slot and body of each delivery that the run has left, in their order."""
        columns = (deliveries.c.slot, deliveries.c.body)
        rows = (
            select(*columns)
            .where(deliveries.c.run_id == run_id)
            .order_by(deliveries.c.ordinal, deliveries.c.delivery_id)
        )
        return await self.database.read(lambda c: [tuple(one) for one in c.execute(rows)])

    async def replies(self, run_id: str) -> list[str]:
        """The texts of the run's replies."""
        left = await self.left(run_id)
        return [str(body["text"]) for slot, body in left if slot in ("answer", "ask")]

    async def runs(self, run_id: str) -> list[Run]:
        """All runs of the run's thread."""
        run = require(await self.deps.stores.conversations.run(run_id))
        return list(await self.deps.stores.conversations.runs(run.thread_id))

    async def stop(self, run_id: str) -> None:
        assert await self.stops.request_stop(run_id)
        await self.signals.send(run_id)


def replace_dependencies(deps: RunDeps, **changes: Any) -> RunDeps:
    """Replaces dependencies by name, in whichever group of `RunDeps` they stand."""
    for name, value in changes.items():
        if hasattr(deps, name):
            deps = replace(deps, **{name: value})
            continue
        (group,) = [
            field.name
            for field in fields(RunDeps)
            if is_dataclass(values := getattr(deps, field.name)) and hasattr(values, name)
        ]
        deps = replace(deps, **{group: replace(getattr(deps, group), **{name: value})})
    return deps


def load_roster(
    database: Database, folder: Path | None = None, *, servers: frozenset[str] = frozenset(), **more: Any
) -> Roster:
    """The shipped agents and those of the folder, which may name any tool."""
    known = ReferableNames(tools=frozenset({*all_tools(), *Bench().toolbox().tools}), servers=servers)
    files = AgentFiles(known=known, folder=folder)
    files.load()
    return Roster(files=files, versions=SqlAgentVersions(database), **more)


async def _no_mcp_tools(_servers: frozenset[str] | None) -> Sequence[Tool[Any]]:
    return ()


async def _no_knowledge(_agent_id: str) -> None: ...


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await open_sqlite(tmp_path / "test.db")
    bench, model, signals = Bench(), StreamedModel([]), MemoryStopSignals()
    deps = RunDeps(
        worker_id="worker-1",
        stores=RunStores(
            claims=SqlRunClaims(database),
            journal=SqlRunJournal(database),
            conversations=SqlConversations(database),
            ledger=SqlLedger(database),
            plans=SqlPlans(database),
            knowledge_base=KnowledgeBase(store=SqlKnowledge(database)),
            schedules=SqlSchedules(database),
        ),
        messaging=RunMessaging(bus=MemoryEventBus(), signals=signals),
        sandboxes=None,
        chat=ChatAccess(file_sources={}, file_bytes_max=1000, histories={}, links=lambda _thread_id: ThreadLinks()),
        defaults=AgentDefaults(
            model="test",
            prompt=lambda *_: RunPrompt(system="You are a test."),
            dialect=NativeDialect(),
            dialect_setting="auto",
            toolbox=bench.toolbox(),
        ),
        agents=AgentSources(roster=load_roster(database), mcp_tools=_no_mcp_tools, index_knowledge=_no_knowledge),
        limits=RunLimits(policy=LoopPolicy(), context_policy=ContextPolicy(), budget=NO_BUDGET),
        models=ModelAccess(ask_model=model.stream, price_of=lambda _model: None),
        metrics=NO_METRICS,
        web=WebServices(),
        draining=asyncio.Event(),
    )
    address = Address(platform="api", workspace_id="api", channel_id="api", thread_key=new_id())
    yield World(
        database=database,
        bench=bench,
        deps=deps,
        inbox=SqlInbox(database),
        stops=SqlRunRequests(database),
        signals=signals,
        address=address,
        model=model,
    )
    await database.close()
