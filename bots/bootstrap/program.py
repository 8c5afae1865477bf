"""The one place that names adapters: puts the program together from its settings, starts it, and takes it down."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from yarl import URL

from bots.bootstrap import background_jobs
from bots.bootstrap.agent_knowledge import AgentKnowledgeSync
from bots.bootstrap.engine import EngineDeps, build_engine
from bots.bootstrap.inbound import build_reception, handle_uninstall
from bots.bootstrap.instrumentation import ObservabilityDeps
from bots.bootstrap.mcp import build_mcp_sessions, build_mcp_tools
from bots.bootstrap.messaging import check_worker_settings, require_shared_servers
from bots.bootstrap.model_clients import build_model_client, load_model_specs, missing_key_warnings
from bots.bootstrap.observability import (
    add_platform_checks,
    open_observability,
    serve_worker_health,
)
from bots.bootstrap.platforms import Platforms, add_discord, add_slack
from bots.bootstrap.readiness import worker_check
from bots.bootstrap.sandboxes import build_sandboxes
from bots.bootstrap.stores import open_stores
from bots.bootstrap.worker_locks import new_worker_id, register_worker
from bots.delivery.poster import DeliveryDeps
from bots.delivery.run_delivery import RunDelivery
from bots.discord.app import DiscordApp
from bots.inbound.agents import new_roster
from bots.inbound.receiver import ActionReceiver
from bots.settings import Settings
from bots.slack.app import SlackApp
from bots.web.app import serve_app, web_app
from bots.web.deps import WebDeps
from bots.web.links import SignedLinks, link_secret, local_url
from bots.web.upload_spool import UploadSource
from core import failpoints
from core.domain.threads import Person
from core.model_usage import till
from core.ports import RunQueue
from core.run.worker import Worker
from core.tasks import cancel, spawn
from core.web_access.guard import is_loopback
from storage.sql.database import migrate

log = logging.getLogger(__name__)

HTTP_API_PERSON = Person(person_id="api", name="HTTP API")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProgram:
    """The program as it runs. `sandbox` names the provider in use; `lacks` says in sentences what is off."""

    http_port: int
    sandbox: str
    lacks: tuple[str, ...]
    slack: SlackApp | None
    discord: DiscordApp | None
    worker_id: str


async def serve(settings: Settings, *, with_worker: bool) -> None:
    """Serves whatever is configured until it is cancelled. Raises ConfigurationError."""
    if not with_worker:
        require_shared_servers(settings)
    async with run_program(settings, with_worker=with_worker) as program:
        for sentence in (*program.lacks, *startup_warnings(settings)):
            log.warning(sentence)
        _spare_collections()
        if program.discord is not None:
            await program.discord.wait()
        await asyncio.Event().wait()


def _spare_collections() -> None:
    """Takes what the start has made out of later garbage collections: each would hold up everything for 0.1 s."""
    gc.collect()
    gc.freeze()


async def serve_worker(settings: Settings) -> None:
    """Executes runs that other processes take in and show, until it is cancelled. Raises ConfigurationError."""
    require_shared_servers(settings)
    async with run_program(settings, with_front=False) as program:
        for sentence in (*program.lacks, *worker_startup_warnings(settings)):
            log.warning(sentence)
        _spare_collections()
        await asyncio.Event().wait()


async def migrate_database(settings: Settings) -> None:
    """Brings the database up to this version."""
    await migrate(settings.storage_url)


@asynccontextmanager
async def run_program(
    settings: Settings,
    *,
    with_worker: bool = True,
    with_front: bool = True,
    queue: RunQueue | None = None,
) -> AsyncGenerator[RunningProgram, None]:
    """The program while entered: what executes runs, and what takes them in and shows them.
    `queue`: not that of the settings. Raises ConfigurationError with one sentence for what keeps it from starting.
    """
    check_worker_settings(settings, with_worker=with_worker and queue is None)
    failpoints.arm(settings.failpoints)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, queue))
        sandboxes = await build_sandboxes(settings, stores.sandboxes)
        if sandboxes.provider is not None:
            stack.push_async_callback(sandboxes.provider.close)
        tower = await stack.enter_async_context(
            open_observability(settings, stores.database, stores.wires)
        )
        mind = build_model_client(settings, tower.figures)
        stack.push_async_callback(mind.close)
        servers = build_mcp_tools(settings)
        stack.push_async_callback(servers.close)
        known = await load_model_specs(settings)
        roster = new_roster(settings, stores.agents, servers.names)
        charge = till(known.price_of, tower.figures)
        agent_knowledge = AgentKnowledgeSync(
            roster.files, stores.library.reporting_usage_to(charge)
        )
        stack.push_async_callback(agent_knowledge.close)
        parts = EngineDeps(
            settings=settings,
            stores=stores,
            sandboxes=sandboxes,
            mind=mind,
            servers=servers,
            known=known,
            roster=roster,
            agent_knowledge=agent_knowledge,
            figures=tower.figures,
        )
        program = _ProgramBuilder(parts, tower)
        yield await program.start(stack, with_worker=with_worker, with_front=with_front)


class _ProgramBuilder:
    """Puts reception, delivery, worker and platforms together, in the order in which they may start."""

    def __init__(self, parts: EngineDeps, tower: ObservabilityDeps) -> None:
        self._parts = parts
        self._tower = tower
        self._settings = settings = parts.settings
        self._stores = parts.stores
        self._sandboxes = parts.sandboxes
        self._worker_id = new_worker_id()
        self._spool = settings.data_dir / "uploads"
        self._platforms = Platforms(sources={"api": UploadSource(self._spool)})
        secret = link_secret(settings.data_dir, settings.link_secret.get_secret_value())
        self._links = SignedLinks(secret, settings.public_url, settings.expose_domain)
        self._delivery = RunDelivery(self._showroom())
        self._reception = self._front()

    async def start(
        self, stack: AsyncExitStack, *, with_worker: bool, with_front: bool
    ) -> RunningProgram:
        """What speaks to people starts last and ends first, so that nothing comes in that nobody could keep."""
        folder, claims = self._settings.data_dir / "workers", self._stores.claims
        await stack.enter_async_context(register_worker(folder, self._worker_id, claims))
        platforms = self._connect_platforms()
        if with_front:
            add_platform_checks(self._tower, platforms)
            port = await self._serve(stack, platforms.slack)
        else:
            port = await stack.enter_async_context(serve_worker_health(self._tower, self._settings))
        self._execute(stack, with_worker=with_worker)
        for platform in (platforms.slack, platforms.discord):
            if platform is not None:
                await (platform.start() if with_front else platform.sign_in())
                stack.push_async_callback(platform.close)
        if with_front:
            self._delivery.start()
            drain_seconds = self._settings.drain_seconds
            stack.push_async_callback(self._delivery.close, drain_seconds=drain_seconds)
        asks, patience_hours = self._stores.asks, self._settings.approval_hours
        self._ever(stack, background_jobs.delete_old_events(self._stores.journal), "event sweeper")
        audit, days = self._stores.audit, self._settings.audit_days
        self._ever(stack, background_jobs.delete_old_audit_entries(audit, days), "audit sweeper")
        self._ever(
            stack, background_jobs.delete_old_dedupe_keys(self._stores.inbox), "sweeper of keys"
        )
        left = build_mcp_sessions(self._settings, self._stores, self._sandboxes.provider)
        self._ever(stack, background_jobs.delete_dead_mcp_sessions(left), "sweeper of sessions")
        self._ever(
            stack, background_jobs.expire_old_approvals(asks, patience_hours), "approval sweeper"
        )
        return RunningProgram(
            http_port=port,
            sandbox=self._sandboxes.name,
            lacks=self._lacks(),
            slack=platforms.slack,
            discord=platforms.discord,
            worker_id=self._worker_id,
        )

    def _execute(self, stack: AsyncExitStack, *, with_worker: bool) -> None:
        if with_worker:
            runs = self._worker()
            self._tower.watch.checks["worker"] = worker_check(runs)
            runs.start()
            stack.push_async_callback(runs.close, drain_seconds=self._settings.drain_seconds)
            return
        stores = self._stores
        self._ever(
            stack, background_jobs.send_heartbeats(stores.claims, self._worker_id), "heartbeat"
        )
        if self._settings.modal_worker_app:
            self._ever(
                stack,
                background_jobs.requeue_orphaned_runs(stores.claims, stores.queue),
                "look for runs",
            )

    def _connect_platforms(self) -> Platforms:
        settings, receive, platforms = self._settings, self._reception.receive, self._platforms
        latest = self._parts.roster.files.latest
        agents = {agent_id: agent.description for agent_id, agent in latest.items()}
        left = partial(handle_uninstall, reception=self._reception, stores=self._stores)
        add_slack(platforms, settings, receive, self._tower, self._stores, left)
        inbox = self._stores.inbox
        add_discord(platforms, settings, receive, inbox, agents, self._tower, left)
        return platforms

    def _ever(
        self, stack: AsyncExitStack, chore: Coroutine[object, object, None], name: str
    ) -> None:
        stack.push_async_callback(cancel, spawn(chore, name=name))

    async def _serve(self, stack: AsyncExitStack, slack: SlackApp | None) -> int:
        host = self._settings.http_host
        web = web_app(self._web_ports(), self._tower.watch)
        if slack is not None:
            web.add_routes(slack.http_routes())
        port = await stack.enter_async_context(
            serve_app(web, host=host, port=self._settings.http_port)
        )
        self._links.public_url = self._links.public_url or local_url(host, port)
        return port

    def _worker(self) -> Worker:
        parts = self._parts
        parts.servers.warm()
        parts.agent_knowledge.warm()
        engine = build_engine(
            parts,
            worker_id=self._worker_id,
            file_sources=self._platforms.sources,
            thread_talks=self._platforms.talks,
            preview_url=self._links.preview,
            port_url=self._links.port,
            takeover_url=self._links.takeover,
        )
        return Worker(engine, self._stores.queue)

    def _lacks(self) -> tuple[str, ...]:
        parts = self._parts
        agents = missing_key_warnings(parts.roster.files.latest.values(), self._settings)
        return (*parts.sandboxes.lacks, *parts.known.lacks, *agents)

    def _showroom(self) -> DeliveryDeps:
        stores = self._stores
        return DeliveryDeps(
            worker_id=self._worker_id,
            surfaces=self._platforms.surfaces,
            deliveries=stores.deliveries,
            conversations=stores.conversations,
            asks=stores.asks,
            bus=stores.bus,
            sandboxes=self._sandboxes.provider,
            link_for=self._links.file,
        )

    def _front(self) -> ActionReceiver:
        return build_reception(
            self._settings,
            self._stores,
            sandboxes=self._sandboxes.provider,
            sources=self._platforms.sources,
            roster=self._parts.roster,
            wake_delivery=self._delivery.wake,
            charge=till(self._parts.known.price_of, self._parts.figures),
        )

    def _web_ports(self) -> WebDeps:
        settings = self._settings
        return WebDeps(
            conversations=self._stores.conversations,
            bus=self._stores.bus,
            receive=self._reception.receive_trusted,
            stop=self._stop,
            sandboxes=self._sandboxes.provider,
            spool_folder=self._spool,
            link_secret=self._links.secret,
            upload_bytes_max=settings.file_bytes_max,
            api_token=settings.api_token.get_secret_value(),
            public_url=settings.public_url,
            expose_domain=settings.expose_domain,
        )

    async def _stop(self, run_id: str) -> bool:
        return not (await self._reception.stop(run_id, by=HTTP_API_PERSON)).is_ignored


NO_LINKS = (
    "This worker makes no links to files, previews and browsers: set THREADHAND_PUBLIC_URL to where people reach"
    " the bot's HTTP server."
)
UNSHARED = (
    "Links are signed with the secret of this data folder and open only where it is shared: set THREADHAND_LINK_SECRET"
    " to the same text for every process."
)
OPEN_BEHIND_A_PROXY = (
    "What leads people to THREADHAND_PUBLIC_URL may hide who asks: set THREADHAND_API_TOKEN, or let the proxy pass"
    " nothing on that begins with /api/ or /metrics."
)


def startup_warnings(settings: Settings) -> list[str]:
    """Settings that leave the program without people, or open to too many."""
    is_live = settings.slack_mode != "off" or bool(settings.discord_token.get_secret_value())
    told = [
        settings.no_access_warning
        if is_live
        else "Neither Slack nor Discord is set up: only the HTTP API serves."
    ]
    return [one for one in (*told, _proxy_remark(settings), _secret_remark(settings)) if one]


def worker_startup_warnings(settings: Settings) -> list[str]:
    """The same for a process that only works."""
    no_links = "" if settings.public_url else NO_LINKS
    return [one for one in (no_links, _secret_remark(settings)) if one]


def _proxy_remark(settings: Settings) -> str:
    is_public = settings.public_url != "" and not is_loopback(URL(settings.public_url))
    return OPEN_BEHIND_A_PROXY if is_public and not settings.api_token.get_secret_value() else ""


def _secret_remark(settings: Settings) -> str:
    shares = settings.redis_url and not settings.link_secret.get_secret_value()
    return UNSHARED if shares else ""
