"""A serve_app API over real stores, with a sandbox in memory."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from bots.bootstrap.observability import database_check
from bots.inbound.actions import Outcome, UserAction, decide_action
from bots.inbound.commands.schedules import ScheduleDeps
from bots.web.app import serve_app, web_app
from bots.web.deps import WebDeps
from bots.web.health import MonitoringDeps
from bots.web.links import SignedLinks
from core.domain.errors import ToolError
from core.domain.events import AgentEvent, Cursor, RunEvent, is_chunk
from core.domain.ids import new_id
from core.domain.schedules import DEFAULT_LIMITS
from core.domain.threads import Address, Ignore, Lease
from core.ports import FileEntry
from core.stores import JournalEntry, RunResult
from storage.memory.event_bus import MemoryEventBus
from storage.sql.database import Database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_claims import SqlBacklogs, SqlRunClaims, SqlRunRequests
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.stores.takeover_claims import SqlTakeoverClaims
from tests.databases import open_sqlite
from tests.support.narrow import require


@dataclass
class FakeSandboxes:
    """Sandboxes that are dictionaries; `files` of each thread by path. `lies_by` makes files longer than they are;
    `breaks_with` ends each reading when nearly everything was read."""

    name: str = "fake"
    contents: dict[str, dict[str, bytes]] = field(default_factory=dict)
    opened: list[tuple[str, int]] = field(default_factory=list)
    lies_by: int = 0
    breaks_with: Exception | None = None

    async def open(self, thread_id: str, *, fence: int) -> Any:
        self.opened.append((thread_id, fence))
        return FakeSandbox(self, self.contents.setdefault(thread_id, {}))


@dataclass
class FakeSandbox:
    provider: FakeSandboxes
    contents: dict[str, bytes]

    @property
    def files(self) -> "FakeSandbox":
        return self

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        if path in self.contents:
            return (self._entry(path),)
        start = "" if path == "." else f"{path}/"
        shown = "./" if path == "." else ""  # as the program inside spells the root's entries
        found = [
            replace(self._entry(name), path=f"{shown}{name}")
            for name in sorted(self.contents)
            if name.startswith(start)
        ]
        if not found and path != ".":
            raise ToolError("There is no such file.")
        return tuple(found)

    def _entry(self, path: str) -> FileEntry:
        size = len(self.contents[path]) + self.provider.lies_by
        return FileEntry(path=path, kind="file", size_bytes=size, modified_at=1.5)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        if path not in self.contents:
            raise ToolError("There is no such file.")
        content = self.contents[path][offset:][:length]
        for start in range(0, len(content), 1000):
            if self.provider.breaks_with and start + 1000 >= len(content):
                raise self.provider.breaks_with
            yield content[start : start + 1000]


@dataclass
class Stage:
    """What a test reaches for: a client, and the stores behind the API."""

    http: aiohttp.ClientSession
    ports: WebDeps
    database: Database
    bus: MemoryEventBus
    sandboxes: FakeSandboxes
    received: list[UserAction]
    app: Any
    posted: list[tuple[Address, str]]
    _n: dict[str, int] = field(default_factory=dict)

    async def json(self, method: str, path: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
        """The JSON answer, whose status must be this one."""
        async with self.http.request(method, path, **more) as response:
            text = await response.text()
            assert response.status == status, text
            return await response.json()

    async def thread(self) -> str:
        return str((await self.json("POST", "/api/thread", status=201))["thread_id"])

    async def send(self, thread_id: str, text: str = "do it", **more: Any) -> str:
        path = f"/api/thread/{thread_id}/messages"
        answer = await self.json("POST", path, json={"text": text}, status=202, **more)
        return str(answer["agent_run_id"])

    async def claimed(self, run_id: str) -> Lease:
        return require(await SqlRunClaims(self.database).claim(run_id, "w1"))

    async def begun(self) -> Lease:
        """A run of a new thread, which is under way."""
        return await self.claimed(await self.send(await self.thread()))

    def event(self, lease: Lease, event: AgentEvent) -> RunEvent:
        n = self._n[lease.run_id] = self._n.get(lease.run_id, 0) + 1
        return RunEvent(
            run_id=lease.run_id,
            thread_id=lease.thread_id,
            cursor=Cursor(lease.attempt, n),
            event=event,
            turn_id="t1",
            message_id=None if is_chunk(event) else new_id(),
        )

    async def happen(self, lease: Lease, *events: AgentEvent) -> None:
        """Stores what is to be stored, and publishes all."""
        placed = [self.event(lease, event) for event in events]
        stored = tuple(event for event in placed if not is_chunk(event.event))
        await SqlRunJournal(self.database).write(lease, JournalEntry(events=stored))
        await self.bus.publish(placed)

    async def end(self, lease: Lease, event: AgentEvent, *, keep: bool = True) -> None:
        """Ends the run; `keep=False` loses the terminal event."""
        journal = SqlRunJournal(self.database)
        inputs = tuple(each.input_id for each in await journal.read_inputs(lease))
        placed = self.event(lease, event)
        entry = JournalEntry(taken_input_ids=inputs, events=(placed,) if keep else ())
        ending = RunResult(status="completed", finish_reason="stop")
        assert await journal.finish(lease, entry, ending)
        if keep:
            await self.bus.publish([placed])

    async def give_sandbox(self, lease: Lease, **contents: bytes) -> None:
        await SqlRunJournal(self.database).write(lease, JournalEntry(sandbox_id="ref-1"))
        self.sandboxes.contents[lease.thread_id] = dict(contents)

    async def foreign_thread(self) -> str:
        address = Address(platform="slack", workspace_id="T", channel_id="C", thread_key="1.2")
        return (await self.ports.conversations.create(address)).thread_id


@asynccontextmanager
async def staged(folder: Path, **changes: Any) -> AsyncGenerator[Stage, None]:
    """A stage whose ports differ from the usual ones by the changes."""
    database = await open_sqlite(folder / "stage.db")
    bus, sandboxes = MemoryEventBus(), FakeSandboxes()
    received: list[UserAction] = []
    posted: list[tuple[Address, str]] = []

    async def receive(inbound: UserAction) -> Outcome:
        received.append(inbound)
        receipt = await SqlInbox(database).accept_action(inbound, partial(decide_action, inbound))
        is_ignored = isinstance(receipt.decision, Ignore)
        return Outcome(run_id=receipt.run_id, is_ignored=is_ignored)

    async def post(address: Address, text: str, **_: object) -> str:
        posted.append((address, text))
        return f"9.{len(posted)}"

    async def propose(address: Address, text: str, commands: Mapping[str, str], title: str) -> str:
        posted.append((address, f"{text} {commands} {title}"))
        return f"9.{len(posted)}"

    ports = WebDeps(
        conversations=SqlConversations(database),
        takeover_claims=SqlTakeoverClaims(database),
        bus=bus,
        receive=receive,
        inbox=SqlInbox(database),
        post=post,
        propose=propose,
        stop=SqlRunRequests(database).request_stop,
        sandboxes=sandboxes,
        spool_folder=folder / "uploads",
        links=SignedLinks(b"s" * 32, ""),
        upload_bytes_max=100_000,
        schedules=ScheduleDeps(store=SqlSchedules(database), limits=DEFAULT_LIMITS),
        heartbeat_seconds=30,
    )
    ports_here = replace(ports, **changes)
    watch = MonitoringDeps(
        backlogs=SqlBacklogs(database), checks={"database": database_check(ports_here.conversations)}
    )
    app = web_app(ports_here, watch)
    try:
        async with (
            serve_app(app, host="127.0.0.1", port=0) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            yield Stage(http, ports, database, bus, sandboxes, received, app, posted)
    finally:
        await database.close()
