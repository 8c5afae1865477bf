"""An engine on a real database, a real bus and a scripted model, for runs without a chat platform."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bots.inbound.actions import IncomingMessage, decide_message
from core.dialects.native import NativeDialect
from core.domain.events import AgentEvent, RunEvent
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import Address, InboxItem, IncomingFile, Person
from core.loop.run_context import LoopPolicy
from core.run.deps import RunDeps
from core.run.execute import execute
from core.tools.catalogue import all_tools
from core.tools.tool import Tool, ToolContext, ToolOutput, ToolSet
from storage.memory.event_bus import MemoryEventBus
from storage.memory.run_queue import MemoryStopSignals
from storage.sql.database import Database, open_database
from storage.sql.stores.agents import SqlPlans
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_claims import SqlRunClaims, SqlStopRequests
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.usage import SqlLedger
from tests.fakes.played_model import PlayedModel


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

    async def flood(self, params: EchoParams, context: ToolContext) -> str:
        return "x" * 50_000_000

    def toolbox(self) -> ToolSet:
        made = {
            name: Tool(
                name=name,
                params=EchoParams,
                run=run,
                title=lambda params, name=name: f"{name} {params.text}",
                timeout_seconds=5,
            )
            for name, run in {
                "echo": self.echo,
                "wait": self.wait,
                "explode": self.explode,
                "flood": self.flood,
            }.items()
        }
        talk = {name: all_tools()[name] for name in ("ask", "complete")}
        return ToolSet({**made, **talk})


@dataclass
class World:
    """One thread with an engine around it."""

    database: Database
    bench: Bench
    engine: RunDeps
    inbox: SqlInbox
    stops: SqlStopRequests
    signals: MemoryStopSignals
    address: Address
    model: PlayedModel
    published: list[RunEvent] = field(default_factory=list[RunEvent])

    async def say(
        self, words: str, *, agent_id: str | None = None, files: tuple[IncomingFile, ...] = ()
    ) -> str:
        """A person's message, for the agent if one is named; answers the run that will take it up."""
        message = IncomingMessage(
            address=self.address,
            dedupe_key=new_id(),
            message_ref="1",
            author=Person(person_id="U1", name="alice"),
            text=words,
            sent_at=datetime.now(UTC),
            is_addressed=True,
        )
        arrival = InboxItem(
            dedupe_key=message.dedupe_key,
            address=message.address,
            kind="message",
            author=message.author,
            text=message.text,
            files=files,
            message_ref=message.message_ref,
            sent_at=message.sent_at,
            agent_id=agent_id,
        )
        receipt = await self.inbox.accept(arrival, lambda seen: decide_message(message, seen))
        assert receipt.run_id is not None
        return receipt.run_id

    async def run(self, words: str) -> str:
        run_id = await self.say(words)
        await execute(run_id, self.engine)
        return run_id

    def with_engine(self, **changes: Any) -> "World":
        self.engine = replace(self.engine, **changes)
        return self

    async def events(self, run_id: str) -> list[AgentEvent]:
        return [one.event for one in await self.engine.conversations.events(run_id)]

    async def messages(self, run_id: str) -> list[Message]:
        run = await self.engine.conversations.run(run_id)
        assert run is not None
        return list(await self.engine.conversations.messages(run.thread_id))

    async def history(self, run_id: str) -> list[Message]:
        return [one for one in await self.messages(run_id) if one.is_llm_message]

    async def stop(self, run_id: str) -> None:
        assert await self.stops.request_stop(run_id)
        await self.signals.send(run_id)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await open_database(f"sqlite:///{tmp_path}/test.db")
    bench, model, signals = Bench(), PlayedModel([]), MemoryStopSignals()
    engine = RunDeps(
        worker_id="worker-1",
        claims=SqlRunClaims(database),
        journal=SqlRunJournal(database),
        conversations=SqlConversations(database),
        bus=MemoryEventBus(),
        signals=signals,
        sandboxes=None,
        file_sources={},
        file_bytes_max=1000,
        model="test",
        system_prompt=lambda: "You are a test.",
        dialect=NativeDialect(),
        toolbox=bench.toolbox(),
        policy=LoopPolicy(),
        ask_model=model.stream,
        ledger=SqlLedger(database),
        plans=SqlPlans(database),
    )
    address = Address(platform="api", workspace_id="api", channel_id="api", thread_key=new_id())
    yield World(
        database=database,
        bench=bench,
        engine=engine,
        inbox=SqlInbox(database),
        stops=SqlStopRequests(database),
        signals=signals,
        address=address,
        model=model,
    )
    await database.close()
