"""Builds the program from its settings, starts it and stops it.

Only the package `bots.bootstrap` chooses the implementations of platforms, storage and sandboxes.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from yarl import URL

from bots.bootstrap import background_jobs
from bots.bootstrap.agent_knowledge import AgentKnowledgeSync
from bots.bootstrap.engine import EngineDeps, build_engine
from bots.bootstrap.inbound import build_reception, build_roster, handle_uninstall
from bots.bootstrap.mcp import build_mcp_sessions, build_mcp_tools
from bots.bootstrap.messaging import check_worker_settings, require_shared_servers
from bots.bootstrap.model_clients import build_model_client, load_model_specs, missing_key_warnings
from bots.bootstrap.observability import (
    ObservabilityDeps,
    open_observability,
    serve_worker_health,
    worker_check,
)
from bots.bootstrap.platforms import Platforms, add_discord, add_platform_checks, add_slack
from bots.bootstrap.sandboxes import build_sandboxes
from bots.bootstrap.stores import open_stores
from bots.bootstrap.worker_liveness import new_worker_id, register_worker
from bots.delivery.poster import DeliveryDeps
from bots.delivery.run_delivery import RunDelivery
from bots.settings import Settings
from bots.web.app import serve_app, web_app
from bots.web.deps import WebDeps
from bots.web.links import SignedLinks, load_link_secret, local_url
from bots.web.upload_spool import UploadSource
from core import failpoints
from core.domain.threads import Person
from core.model_usage import build_usage_pricer
from core.ports import RunQueue
from core.run.worker import Worker
from core.tasks import cancel, spawn
from core.web_access.guard import is_loopback
from storage.sql.database import migrate

if TYPE_CHECKING:
    from bots.discord.app import DiscordApp
    from bots.slack.app import SlackApp

log = logging.getLogger(__name__)

Jobs = dict[str, Coroutine[object, object, None]]

HTTP_API_PERSON = Person(person_id="api", name="HTTP API")
NO_LINKS = (
    "This worker creates no links to files, previews and browsers: set THREADHAND_PUBLIC_URL to the address of the"
    " bot's HTTP server."
)
UNSHARED = (
    "Links are signed with a secret in this data folder, so other processes that do not share the folder refuse them:"
    " set THREADHAND_LINK_SECRET to the same text for every process."
)
OPEN_BEHIND_A_PROXY = (
    "The proxy in front of THREADHAND_PUBLIC_URL may hide where requests come from: set THREADHAND_API_TOKEN, or let"
    " the proxy block paths that begin with /api/ or /metrics."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProgram:
    """The running program.

    `sandbox` is the name of the sandbox provider. Each warning is a sentence that names a disabled feature and why it
    is disabled.
    """

    http_port: int
    sandbox: str
    warnings: tuple[str, ...]
    slack: "SlackApp | None"
    discord: "DiscordApp | None"
    worker_id: str


async def serve(settings: Settings, *, with_worker: bool) -> None:
    """Serves the configured platforms and the HTTP API until cancelled.

    `with_worker`: also execute runs in this process. Raises ConfigurationError if the settings cannot work.
    """
    if not with_worker:
        require_shared_servers(settings)
    async with run_program(settings, with_worker=with_worker) as program:
        for sentence in (*program.warnings, *startup_warnings(settings)):
            log.warning(sentence)
        _freeze_startup_objects()
        if program.discord is not None:
            await program.discord.wait()
        await asyncio.Event().wait()


async def serve_worker(settings: Settings) -> None:
    """Executes runs for bots in other processes until cancelled.

    Raises ConfigurationError if the settings cannot work.
    """
    require_shared_servers(settings)
    async with run_program(settings, with_chat=False) as program:
        for sentence in (*program.warnings, *worker_startup_warnings(settings)):
            log.warning(sentence)
        _freeze_startup_objects()
        await asyncio.Event().wait()


async def migrate_database(settings: Settings) -> None:
    """Migrates the database to this version's schema. Raises ConfigurationError if that fails."""
    await migrate(settings.storage_url)


def startup_warnings(settings: Settings) -> list[str]:
    """Returns warnings about settings that give nobody access, or that expose the program more than intended."""
    has_chat = settings.slack_mode != "off" or bool(settings.discord_token.get_secret_value())
    access = (
        settings.no_access_warning
        if has_chat
        else "Neither Slack nor Discord is set up: only the HTTP API serves."
    )
    is_public = settings.public_url != "" and not is_loopback(URL(settings.public_url))
    is_open = is_public and not settings.api_token.get_secret_value()
    warnings = (access, OPEN_BEHIND_A_PROXY if is_open else "", _link_secret_warning(settings))
    return [one for one in warnings if one]


def worker_startup_warnings(settings: Settings) -> list[str]:
    """Returns warnings about the settings of a process that only executes runs."""
    no_links = "" if settings.public_url else NO_LINKS
    return [one for one in (no_links, _link_secret_warning(settings)) if one]


def _link_secret_warning(settings: Settings) -> str:
    is_shared = settings.redis_url and not settings.link_secret.get_secret_value()
    return UNSHARED if is_shared else ""


def _freeze_startup_objects() -> None:
    """Excludes the objects created at start-up from garbage collection, which saves pauses of 0.1 s."""
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def run_program(
    settings: Settings,
    *,
    with_worker: bool = True,
    with_chat: bool = True,
    queue: RunQueue | None = None,
) -> AsyncGenerator[RunningProgram, None]:
    """Context manager: the program runs inside the block.

    `with_worker`: execute runs in this process. `with_chat`: receive messages, deliver results and serve HTTP in this
    process. `queue`: use this queue instead of the queue from the settings. Raises ConfigurationError, with one
    sentence for each problem, if the program cannot start.
    """
    check_worker_settings(settings, with_worker=with_worker and queue is None)
    failpoints.arm(settings.failpoints)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, queue))
        sandboxes = await build_sandboxes(settings, stores.sandboxes)
        if sandboxes.provider is not None:
            stack.push_async_callback(sandboxes.provider.close)
        observability = await stack.enter_async_context(
            open_observability(settings, stores.database, stores.messaging)
        )
        model_client = build_model_client(settings, observability.figures)
        stack.push_async_callback(model_client.close)
        mcp_tools = build_mcp_tools(settings)
        stack.push_async_callback(mcp_tools.close)
        model_specs = await load_model_specs(settings)
        roster = build_roster(settings, stores.agents, mcp_tools.server_names)
        charge = build_usage_pricer(model_specs.price_of, observability.figures)
        agent_knowledge = AgentKnowledgeSync(
            roster.files, stores.knowledge_base.reporting_usage_to(charge)
        )
        stack.push_async_callback(agent_knowledge.close)
        deps = EngineDeps(
            settings=settings,
            stores=stores,
            sandboxes=sandboxes,
            model_client=model_client,
            model_specs=model_specs,
            mcp_tools=mcp_tools,
            roster=roster,
            agent_knowledge=agent_knowledge,
            figures=observability.figures,
        )
        builder = _ProgramBuilder(deps, observability)
        yield await builder.start(stack, with_worker=with_worker, with_chat=with_chat)


class _ProgramBuilder:
    """Builds the receiver of messages, the delivery, the worker and the platforms, and starts them in a safe order."""

    def __init__(self, deps: EngineDeps, observability: ObservabilityDeps) -> None:
        self._deps = deps
        self._observability = observability
        self._settings = settings = deps.settings
        self._stores = deps.stores
        self._sandboxes = deps.sandboxes
        self._worker_id = new_worker_id()
        self._spool = settings.data_dir / "uploads"
        self._platforms = Platforms(file_sources={"api": UploadSource(self._spool)})
        secret = load_link_secret(settings.data_dir, settings.link_secret.get_secret_value())
        self._links = SignedLinks(secret, settings.public_url, settings.expose_domain)
        self._delivery = RunDelivery(self._delivery_deps())
        self._reception = build_reception(
            settings,
            deps.stores,
            sandboxes=deps.sandboxes.provider,
            file_sources=self._platforms.file_sources,
            roster=deps.roster,
            wake_delivery=self._delivery.wake,
            charge=build_usage_pricer(deps.model_specs.price_of, deps.figures),
        )

    async def start(
        self, stack: AsyncExitStack, *, with_worker: bool, with_chat: bool
    ) -> RunningProgram:
        """Starts all parts of the program and registers their shutdown in `stack`.

        The platforms start after the stores and stop before them, so that every message that arrives can be stored.
        """
        folder, claims = self._settings.data_dir / "workers", self._stores.claims
        await stack.enter_async_context(register_worker(folder, self._worker_id, claims))
        platforms = self._build_platforms()
        if with_chat:
            add_platform_checks(self._observability, platforms)
            port = await self._serve_http(stack, platforms.slack)
        else:
            port = await stack.enter_async_context(
                serve_worker_health(self._observability, self._settings)
            )
        if with_worker:
            self._start_worker(stack)
        else:
            self._start_jobs(stack, self._jobs_without_worker())
        for platform in (platforms.slack, platforms.discord):
            if platform is not None:
                await (platform.start() if with_chat else platform.sign_in())
                stack.push_async_callback(platform.close)
        if with_chat:
            self._delivery.start()
            drain_seconds = self._settings.drain_seconds
            stack.push_async_callback(self._delivery.close, drain_seconds=drain_seconds)
        self._start_jobs(stack, self._jobs())
        return RunningProgram(
            http_port=port,
            sandbox=self._sandboxes.name,
            warnings=self._warnings(),
            slack=platforms.slack,
            discord=platforms.discord,
            worker_id=self._worker_id,
        )

    def _start_worker(self, stack: AsyncExitStack) -> None:
        self._deps.mcp_tools.start_connecting()
        self._deps.agent_knowledge.start()
        engine = build_engine(
            self._deps,
            worker_id=self._worker_id,
            file_sources=self._platforms.file_sources,
            thread_talks=self._platforms.thread_talks,
            preview_url=self._links.preview,
            port_url=self._links.port,
            takeover_url=self._links.takeover,
        )
        worker = Worker(engine, self._stores.queue)
        self._observability.health.checks["worker"] = worker_check(worker)
        worker.start()
        stack.push_async_callback(worker.close, drain_seconds=self._settings.drain_seconds)

    def _jobs(self) -> Jobs:
        settings, stores = self._settings, self._stores
        sessions = build_mcp_sessions(settings, stores, self._sandboxes.provider)
        return {
            "delete old events": background_jobs.delete_old_events(stores.journal),
            "delete old audit entries": background_jobs.delete_old_audit_entries(
                stores.audit, settings.audit_days
            ),
            "delete old dedupe keys": background_jobs.delete_old_dedupe_keys(stores.inbox),
            "delete dead MCP sessions": background_jobs.delete_dead_mcp_sessions(sessions),
            "expire old approvals": background_jobs.expire_old_approvals(
                stores.asks, settings.approval_hours
            ),
        }

    def _jobs_without_worker(self) -> Jobs:
        """Returns the jobs for a process that has no worker, because workers do these jobs themselves.

        The process requeues orphaned runs only if functions at Modal execute runs, because they do not look for them.
        """
        claims, queue = self._stores.claims, self._stores.queue
        jobs: Jobs = {"heartbeat": background_jobs.send_heartbeats(claims, self._worker_id)}
        if self._settings.modal_worker_app:
            jobs["requeue orphaned runs"] = background_jobs.requeue_orphaned_runs(claims, queue)
        return jobs

    def _start_jobs(self, stack: AsyncExitStack, jobs: Jobs) -> None:
        for name, job in jobs.items():
            stack.push_async_callback(cancel, spawn(job, name=name))

    def _build_platforms(self) -> Platforms:
        settings, receive, platforms = self._settings, self._reception.receive, self._platforms
        latest = self._deps.roster.files.latest
        agents = {agent_id: agent.description for agent_id, agent in latest.items()}
        on_uninstall = partial(handle_uninstall, reception=self._reception, stores=self._stores)
        add_slack(platforms, settings, receive, self._observability, self._stores, on_uninstall)
        cursors = self._stores.inbox
        add_discord(
            platforms, settings, receive, cursors, agents, self._observability, on_uninstall
        )
        return platforms

    async def _serve_http(self, stack: AsyncExitStack, slack: "SlackApp | None") -> int:
        host = self._settings.http_host
        web = web_app(self._web_ports(), self._observability.health)
        if slack is not None:
            web.add_routes(slack.http_routes())
        port = await stack.enter_async_context(
            serve_app(web, host=host, port=self._settings.http_port)
        )
        self._links.public_url = self._links.public_url or local_url(host, port)
        return port

    def _warnings(self) -> tuple[str, ...]:
        deps = self._deps
        missing_keys = missing_key_warnings(deps.roster.files.latest.values(), self._settings)
        return (*deps.sandboxes.warnings, *deps.model_specs.warnings, *missing_keys)

    def _delivery_deps(self) -> DeliveryDeps:
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

    def _web_ports(self) -> WebDeps:
        settings = self._settings
        return WebDeps(
            conversations=self._stores.conversations,
            bus=self._stores.bus,
            receive=self._reception.receive_trusted,
            stop=self._stop,
            sandboxes=self._sandboxes.provider,
            spool_folder=self._spool,
            takeover_claims=self._stores.takeover_claims,
            links=SignedLinks(self._links.secret, settings.public_url, settings.expose_domain),
            upload_bytes_max=settings.file_bytes_max,
            api_token=settings.api_token.get_secret_value(),
        )

    async def _stop(self, run_id: str) -> bool:
        return not (await self._reception.stop(run_id, by=HTTP_API_PERSON)).is_ignored
