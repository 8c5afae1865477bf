"""The program's own parts as one simulated process: reception, worker and delivery over shared servers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import cast

from bots.bootstrap.background_jobs import repeat_job
from bots.bootstrap.inbound import build_receiver
from bots.bootstrap.process_messaging import Messaging
from bots.bootstrap.stores import Stores
from bots.delivery.poster import DeliveryDeps
from bots.delivery.run_delivery import RunDelivery
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.receiver import ActionReceiver
from bots.settings import Settings
from core.agents.definition import ReferableNames
from core.agents.files import AgentFiles
from core.agents.roster import Roster
from core.context.window import ContextPolicy
from core.dialects.native import NativeDialect
from core.domain.budget import Limit
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from core.loop.run_context import LoopPolicy
from core.observability import NO_METRICS
from core.ports import ChatHistory, FileEntry, OutgoingFile, SandboxProvider
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
from core.run.worker import HEARTBEAT_SECONDS, Worker
from core.tasks import cancel, spawn
from core.tools.catalogue import all_tools
from core.tools.tool import ThreadLinks
from core.web_access.services import WebServices
from tests.histories.chat import SimulatedChat
from tests.histories.model import TURNS_MAX, Notebook, ScriptedModel
from tests.histories.platforms import Reader
from tests.histories.servers import Chance, SimulatedDatabase
from tests.histories.virtual_time import SimulatedProcess

DRAIN_SECONDS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """What all processes of a history share. `messaging` is None if the one process keeps its messages to itself."""

    database: SimulatedDatabase
    messaging: Messaging | None
    chat: SimulatedChat
    model: ScriptedModel
    notebook: Notebook
    status_after_seconds: float
    run_limit: Limit
    chance: Chance


class Program:
    """One start of the program, which knows nothing of earlier ones."""

    def __init__(self, process: SimulatedProcess, servers: Servers, *, has_bot: bool, has_worker: bool) -> None:
        self.process = process
        self.worker_id = process.name
        self.receiver: ActionReceiver | None = None
        self.reader: Reader | None = None
        self.is_closing = False
        self._servers = servers
        self._has_bot = has_bot
        self._has_worker = has_worker
        self._stores = Stores(servers.database, servers.messaging or Messaging())
        self._roster = _roster(self._stores)
        self._worker: Worker | None = None
        self._delivery: RunDelivery | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    async def run(self, dead_workers: list[str]) -> None:
        """Starts the parts in the program's order. `dead_workers` are those whose locks this machine found free."""
        for worker_id in dead_workers:
            await self._stores.claims.remove_worker(worker_id)
        quiet_sweep_seconds = 0.0 if self._servers.messaging else 15.0
        if self._has_bot:
            delivery = self._delivery = RunDelivery(self._delivery_deps(), quiet_sweep_seconds=quiet_sweep_seconds)
            self.receiver = build_reception(
                self._stores,
                wake_delivery=lambda run_id: self._wake(delivery, run_id),
                histories={self._servers.chat.platform: self._servers.chat},
            )
        if self._has_worker:
            self._worker = Worker(self._run_deps(), self._stores.queue, quiet_sweep_seconds=quiet_sweep_seconds)
            self._worker.start()
        else:
            beats = repeat_job("beat", HEARTBEAT_SECONDS, partial(self._stores.claims.heartbeat, self.worker_id))
            self._heartbeat = spawn(beats, name="heartbeat")
        if self._delivery is not None:
            self._delivery.start()

    async def close(self) -> None:
        """Ends as after SIGTERM: the delivery first, then the worker."""
        self.is_closing = True
        if self._delivery is not None:
            await self._delivery.close(drain_seconds=DRAIN_SECONDS)
        if self._worker is not None:
            await self._worker.close(drain_seconds=DRAIN_SECONDS)
        if self._heartbeat is not None:
            await cancel(self._heartbeat)
        await self._stores.claims.remove_worker(self.worker_id)

    def _wake(self, delivery: RunDelivery, run_id: str) -> None:
        """Wakes the delivery. Its sweep finds the run if the call is lost."""
        if not self._servers.chance.fails(0.1):
            delivery.wake(run_id)

    async def _stop_run(self, run_id: str) -> None:
        assert self.receiver is not None
        await self.receiver.stop_run(run_id)

    def _delivery_deps(self) -> DeliveryDeps:
        stores = self._stores
        return DeliveryDeps(
            worker_id=self.worker_id,
            surfaces={self._servers.chat.platform: self._servers.chat},
            deliveries=stores.deliveries,
            conversations=stores.conversations,
            asks=stores.asks,
            bus=stores.bus,
            sandboxes=cast(SandboxProvider, _Sandboxes()),
            link_for=lambda _thread_id, _path: None,
            stop_run=self._stop_run,
            status_after_seconds=self._servers.status_after_seconds,
        )

    def _run_deps(self) -> RunDeps:
        stores, settings = self._stores, _settings()
        return RunDeps(
            worker_id=self.worker_id,
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
            sandboxes=None,
            chat=ChatAccess(
                file_sources={},
                file_bytes_max=1000,
                histories={self._servers.chat.platform: self._servers.chat},
                links=lambda _thread_id: ThreadLinks(),
            ),
            defaults=AgentDefaults(
                model="scripted",
                prompt=lambda *_: RunPrompt(system="You are simulated."),
                dialect=NativeDialect(),
                dialect_setting="native",
                toolbox=self._servers.notebook.toolbox(),
            ),
            agents=AgentSources(roster=self._roster, mcp_tools=_no_tools, index_knowledge=_no_knowledge),
            limits=RunLimits(
                policy=LoopPolicy(turns_max=TURNS_MAX),
                context_policy=ContextPolicy(),
                budget=replace(settings.budget, run=self._servers.run_limit),
            ),
            models=ModelAccess(ask_model=self._servers.model.ask_model, price_of=lambda _model: None),
            metrics=NO_METRICS,
            web=WebServices(),
            draining=asyncio.Event(),
        )


class _Sandboxes:
    """A sandbox of every thread that has each file that is looked for. No run uses it, only the delivery."""

    files: "_Sandboxes"

    async def open(self, thread_id: str, *, fence: int) -> "_Sandboxes":
        del thread_id, fence
        self.files = self
        return self

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        return (FileEntry(path=path, kind="file", size_bytes=3, modified_at=0.0),)

    async def read(self, path: str, *, length: int) -> AsyncIterator[bytes]:
        yield path.encode()[:length]


def build_reception(
    stores: Stores, *, wake_delivery: Callable[[str], None], histories: Mapping[str, ChatHistory]
) -> ActionReceiver:
    return build_receiver(
        _settings(),
        stores,
        sandboxes=None,
        file_sources={},
        histories=histories,
        roster=_roster(stores),
        wake_delivery=wake_delivery,
        charge=lambda _model, usage: usage,
        upload=_no_upload,
        connect_tools=_no_connection,
        describe_hook=lambda _hook: "",
    )


@cache
def _settings() -> Settings:
    return Settings(data_dir=Path("unused"), allowed_workspaces=("*",))


@cache
def _agent_files() -> AgentFiles:
    files = AgentFiles(known=ReferableNames(tools=frozenset(all_tools())))
    files.load()
    return files


def _roster(stores: Stores) -> Roster:
    return Roster(files=_agent_files(), versions=stores.agents)


async def _no_tools(_servers: frozenset[str] | None) -> tuple[()]:
    return ()


async def _no_knowledge(_agent_id: str) -> None:
    return


def _no_connection(_called: CommandCalled) -> Outcome:
    return Outcome(notice="There are no tool servers here.")


async def _no_upload(address: Address, file: OutgoingFile) -> object:
    raise SurfaceRefused("files are not posted here", code="no_chat")
