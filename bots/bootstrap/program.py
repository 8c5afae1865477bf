"""Builds the program from its settings, starts it and stops it. Only the package `bots.bootstrap` chooses the
implementations of platforms, storage and sandboxes."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from yarl import URL

from bots.bootstrap.background_jobs import (
    APPROVAL_INTERVAL_SECONDS,
    DEDUPE_KEY_RETENTION_DAYS,
    DELETION_INTERVAL_SECONDS,
    EVENT_RETENTION_HOURS,
    ORPHAN_INTERVAL_SECONDS,
    delete_in_batches,
    delete_old_conversations,
    repeat_job,
    requeue_orphaned_runs,
)
from bots.bootstrap.inbound import build_receiver, build_roster, handle_uninstall
from bots.bootstrap.mcp import build_mcp_servers, build_mcp_sessions
from bots.bootstrap.model_clients import build_model_client, missing_key_warnings, without_models_that_lack_a_key
from bots.bootstrap.model_specs import load_model_specs
from bots.bootstrap.observability import (
    ObservabilityDeps,
    open_observability,
    sandbox_check,
    serve_worker_health,
    worker_check,
)
from bots.bootstrap.platforms import (
    NO_PUBLIC_URL,
    Platforms,
    add_discord,
    add_platform_checks,
    add_slack,
    has_remote_users,
    reachable_public_url,
    wait_for_discord,
    without_incomplete_slack,
)
from bots.bootstrap.process_messaging import check_worker_settings, require_shared_servers
from bots.bootstrap.run_deps import ProgramParts, build_run_deps
from bots.bootstrap.sandboxes import build_sandboxes, confine_parsers
from bots.bootstrap.stores import open_stores
from bots.delivery.poster import DeliveryDeps
from bots.delivery.run_delivery import RunDelivery
from bots.inbound.commands.forget import delete_conversation
from bots.inbound.receiver import ActionReceiver
from bots.inbound.schedules import LOOK_SECONDS, ScheduleRunner
from bots.settings import Settings
from bots.slack.install.manifest import BOT_SCOPES, OPTIONAL_SCOPES
from bots.web.deps import API_PERSON, AgentsDeps, WebDeps
from bots.web.hooks import Hooks, describe_hook
from bots.web.links import SignedLinks, load_link_secret, local_server_url
from bots.web.mcp_consent import McpConsents
from bots.web.upload_spool import UploadSource
from core import failpoints
from core.domain.errors import SandboxUnavailable
from core.domain.threads import Selection
from core.knowledge.agent_file_sync import KnowledgeFileSync
from core.model_usage import build_usage_pricer
from core.ports import RunQueue
from core.run.worker import HEARTBEAT_SECONDS, Worker
from core.run.worker_liveness import new_worker_id, register_worker
from core.tasks import cancel, spawn
from core.web_access.guard import is_loopback
from sandbox.limits import raise_descriptor_limit
from storage.sql.database import migrate

if TYPE_CHECKING:
    from aiohttp import web

    from bots.discord.app import DiscordApp
    from bots.slack.app import SlackApp

log = logging.getLogger(__name__)

FindLate = Callable[[Settings], Awaitable[tuple[str, ...]]]
Jobs = dict[str, tuple[float, Callable[[], Awaitable[object]]]]
"""Jobs to repeat by name, each with its interval in seconds."""

QUIET_SWEEP_SECONDS = 15.0
THREADS_DESTROYED_MAX = 10_000
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


class CloseWithDrain(Protocol):
    async def __call__(self, *, drain_seconds: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProgram:
    """The running program.

    `http_app` serves the HTTP API, and is None without it; `api` are its dependencies. `sandbox` is the name of the
    sandbox provider. Each warning is a sentence that names a disabled feature and why it is disabled. Admins read the
    startup findings in the chat."""

    http_port: int
    http_app: "web.Application | None"
    sandbox: str
    warnings: tuple[str, ...]
    slack: "SlackApp | None"
    discord: "DiscordApp | None"
    worker_id: str
    parts: ProgramParts
    startup_findings: list[str]
    api: WebDeps


async def serve(settings: Settings, *, with_worker: bool, find_late: FindLate | None = None) -> None:
    """Serves the configured platforms and the HTTP API until cancelled.

    `with_worker`: also execute runs in this process. `find_late` is called once the program is ready, and returns
    sentences about services that will fail. If keys of Slack or of a model are missing, Slack or that model is left out
    and named in the log. Raises ConfigurationError if the other settings cannot work."""
    if not with_worker:
        require_shared_servers(settings)
    settings, slack_problems = without_incomplete_slack(settings)
    settings, model_problems = without_models_that_lack_a_key(settings)
    async with run_program(settings, with_worker=with_worker) as program:
        log.info("budgets: %s", settings.budget)
        missing = [*slack_problems, *model_problems, *describe_missing_parts(settings, program)]
        program.startup_findings.extend((*program.warnings, *startup_warnings(settings), *missing))
        for sentence in program.startup_findings:
            log.warning(sentence)
        log.info(ready_line(settings, program))
        _freeze_startup_objects()
        if find_late is not None:
            spawn(_add_late(find_late(settings), program.startup_findings), name="late findings")
        if program.discord is not None:
            await wait_for_discord(program.discord, is_alone=program.slack is None)
        await asyncio.Event().wait()


async def _add_late(found: Awaitable[tuple[str, ...]], findings: list[str]) -> None:
    for sentence in await found:
        findings.append(sentence)
        log.warning(sentence)


def describe_missing_parts(settings: Settings, program: RunningProgram) -> list[str]:
    """Returns a sentence for each part that is missing, with the command that adds it."""
    slack, model = program.slack, settings.model
    found = [] if model else ["No model can be used, so runs fail: `threadhand setup` asks for one."]
    if slack is not None and not settings.slack_client_id:
        granted = slack.identity.scopes
        needed = [one for one in BOT_SCOPES if one not in OPTIONAL_SCOPES]
        missing = [one for one in needed if granted is not None and one not in granted]
        if missing:
            found.append(
                f"The Slack app lacks the scopes {', '.join(missing)}: `threadhand doctor` says how to add them."
            )
    if slack is None and program.discord is None:
        found.append("`threadhand setup` connects Slack or Discord.")
    return found


def ready_line(settings: Settings, program: RunningProgram) -> str:
    """Returns one line that sums up what this process serves and works with."""
    parts: list[str] = []
    if program.slack is not None:
        parts.append("Slack")
        if not settings.slack_client_id:
            identity = program.slack.identity
            parts[-1] += f" {identity.team_name}"
            if identity.scopes is not None:
                held = len(identity.scopes & set(BOT_SCOPES))
                parts[-1] += f" ({held} of {len(BOT_SCOPES)} scopes)"
    if program.discord is not None:
        count = len(program.discord.client.guilds)
        parts.append(f"Discord {count} {'server' if count == 1 else 'servers'}")
    parts.append(f"model {settings.model}" if settings.model else "no model")
    parts.append({"local": "jail", "none": "no sandbox"}.get(program.sandbox, program.sandbox))
    parts.append("SQLite" if settings.storage_url.startswith("sqlite") else "PostgreSQL")
    return f"Ready: {', '.join(parts)}."


async def serve_worker(settings: Settings) -> None:
    """Executes runs for bots in other processes until cancelled.

    Raises ConfigurationError if the settings cannot work."""
    require_shared_servers(settings)
    async with run_program(settings, with_chat=False) as program:
        for sentence in (*program.warnings, *worker_startup_warnings(settings)):
            log.warning(sentence)
        _freeze_startup_objects()
        await asyncio.Event().wait()


async def migrate_database(settings: Settings, revision: str, *, may_drop: bool) -> str:
    """Migrates the database to this version's schema, or to the revision, and returns what was done. Raises
    ConfigurationError if that fails, and if it would delete users' data without `may_drop`."""
    await migrate(settings.storage_url, revision=revision, may_drop=may_drop)
    tables = f"the tables of revision {revision}" if revision else "this version's tables"
    return f"The database has {tables}."


def startup_warnings(settings: Settings) -> list[str]:
    """Returns warnings about settings that give nobody access, or that expose the program more than intended."""
    has_chat = settings.slack_mode != "off" or bool(settings.discord_token.get_secret_value())
    access = (
        settings.no_access_warning if has_chat else "Neither Slack nor Discord is set up: only the HTTP API serves."
    )
    is_public = settings.public_url != "" and not is_loopback(URL(settings.public_url))
    is_open = is_public and not settings.api_token.get_secret_value()
    no_links = "" if is_public or not has_remote_users(settings) else NO_PUBLIC_URL
    is_hidden = OPEN_BEHIND_A_PROXY if is_open else ""
    return [one for one in (access, is_hidden, no_links, _link_secret_warning(settings)) if one]


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
    is_temporary: bool = False,
) -> AsyncGenerator[RunningProgram, None]:
    """Context manager: the program runs inside the block.

    `with_worker`: execute runs in this process. `with_chat`: receive messages, deliver results and serve HTTP in this
    process. `queue` replaces the queue from the settings. It is given in a function at Modal, whose sandboxes outlive
    the process. `is_temporary`: the caller deletes the data folder, so the sandboxes, which can be elsewhere, are
    destroyed at the end. Raises ConfigurationError, with one sentence for each problem, if the program cannot start."""
    check_worker_settings(settings, with_worker=with_worker and queue is None)
    failpoints.arm(settings.failpoints)
    raise_descriptor_limit()
    async with AsyncExitStack() as stack:
        parts, observability = await _open_parts(settings, queue, stack)
        if is_temporary:
            stack.push_async_callback(_destroy_sandboxes, parts)
        stores, sandboxes, worker_id = parts.stores, parts.sandboxes, new_worker_id()
        # without a shared server, no other process can leave work behind, so sweeps may be rare
        quiet_sweep_seconds = 0.0 if settings.redis_url else QUIET_SWEEP_SECONDS
        secret = load_link_secret(settings.data_dir, settings.link_secret.get_secret_value())
        links = SignedLinks(secret, reachable_public_url(settings), settings.expose_domain)
        spool = settings.data_dir / "uploads"
        platforms = Platforms(file_sources={"api": UploadSource(spool)})
        consents = McpConsents(
            configs=parts.mcp_servers.configs,
            public_url=lambda: links.public_url,
            tell=platforms.post_notice,
            retry=parts.mcp_servers.reconnect,
        )
        delivery_deps = DeliveryDeps(
            worker_id=worker_id,
            surfaces=platforms.surfaces,
            deliveries=stores.deliveries,
            conversations=stores.conversations,
            asks=stores.asks,
            bus=stores.bus,
            sandboxes=sandboxes.provider,
            link_for=links.file_url,
            stop_run=lambda run_id: reception.stop_run(run_id),  # `reception` is created below
            status_after_seconds=settings.status_after_seconds,
            metrics=parts.metrics,
        )
        delivery = RunDelivery(delivery_deps, quiet_sweep_seconds=quiet_sweep_seconds)
        reception = build_receiver(
            settings,
            stores,
            sandboxes=sandboxes.provider,
            file_sources=platforms.file_sources,
            histories=platforms.histories,
            roster=parts.roster,
            wake_delivery=delivery.wake,
            charge=build_usage_pricer(parts.model_specs.price_of, parts.metrics),
            upload=platforms.upload,
            connect_tools=consents.answer_mcp_connect,
            describe_hook=lambda hook: describe_hook(hook, links.public_url),
        )
        schedules = ScheduleRunner(
            schedules=stores.schedules,
            conversations=stores.conversations,
            chats=platforms,
            admits=reception.admits,
            receive=reception.receive_trusted,
            serves=lambda platform: platform == "api" or platform in platforms.surfaces,
            closed_reasons=lambda platform: platforms.surfaces[platform].closed_reasons,
            quiet_hours=settings.quiet_hours_range,
            apps=settings.allowed_apps,
        )
        api = _build_web_deps(parts, reception, platforms, secret, spool)

        # The platforms start after the stores and stop before them, so that every message that arrives can be stored.
        await stack.enter_async_context(register_worker(settings.data_dir / "workers", worker_id, stores.claims))
        on_uninstall = partial(handle_uninstall, receiver=reception, stores=stores)
        add_slack(platforms, settings, reception, observability, stores, on_uninstall, schedules.handle_trigger_event)
        add_discord(
            platforms, settings, reception, stores.inbox, observability, on_uninstall, schedules.handle_trigger_event
        )
        http_app: web.Application | None = None
        if with_chat:
            add_platform_checks(observability, platforms)
            from bots.web.app import serve_app, web_app  # not every process serves the HTTP API

            http_app = web_app(api, observability.health)
            http_app.add_routes(consents.routes())
            http_app.add_routes(Hooks(runner=schedules).routes())
            stack.push_async_callback(consents.close)
            if platforms.slack is not None:
                http_app.add_routes(platforms.slack.http_routes())
            served = serve_app(http_app, host=settings.http_host, port=settings.http_port)
            port = await stack.enter_async_context(served)
            if not links.public_url and not has_remote_users(settings):
                links.public_url = local_server_url(settings.http_host, port)
        else:
            port = await stack.enter_async_context(serve_worker_health(observability, settings))
        worker: Worker | None = None
        if with_worker:
            parts.mcp_servers.connect_all()
            parts.agent_knowledge.start()
            run_deps = build_run_deps(parts, worker_id=worker_id, platforms=platforms, links=links)
            worker = Worker(run_deps, stores.queue, quiet_sweep_seconds=quiet_sweep_seconds)
            observability.health.checks["worker"] = worker_check(worker)
        else:
            _start_jobs(stack, {"the heartbeat": (HEARTBEAT_SECONDS, partial(stores.claims.heartbeat, worker_id))})
            if settings.modal_worker_app:  # functions at Modal do not look for orphaned runs, as workers do
                requeue = partial(requeue_orphaned_runs, stores.claims, stores.queue)
                _start_jobs(stack, {"the search for orphaned runs": (ORPHAN_INTERVAL_SECONDS, requeue)})
        await platforms.start(stack, receives=with_chat)
        for left_out in {"slack", "discord"} - platforms.surfaces.keys():
            observability.health.checks.pop(left_out, None)
        drain = DrainDeadline(settings.drain_seconds)
        if worker is not None:
            # runs read the chat thread and its files until they are handed over, so its clients close later
            worker.start()
            stack.push_async_callback(drain.close_in_time, worker.close)
        if with_chat:
            delivery.start()
            stack.push_async_callback(drain.close_in_time, delivery.close)
            stack.push_async_callback(schedules.close)
            _start_jobs(stack, {"the search for schedules that are due": (LOOK_SECONDS, schedules.fire_due_schedules)})
        _start_jobs(stack, _list_jobs(parts, reception))
        missing_keys = missing_key_warnings(parts.roster.files.latest.values(), settings)
        yield RunningProgram(
            http_port=port,
            http_app=http_app,
            sandbox=sandboxes.name,
            warnings=(*sandboxes.warnings, *parts.model_specs.warnings, *missing_keys),
            slack=platforms.slack,
            discord=platforms.discord,
            worker_id=worker_id,
            parts=parts,
            startup_findings=platforms.startup_findings,
            api=api,
        )


async def _destroy_sandboxes(parts: ProgramParts) -> None:
    provider = parts.sandboxes.provider
    if provider is None:
        return
    for listed in await parts.stores.conversations.newest_threads(Selection(), limit=THREADS_DESTROYED_MAX):
        if listed.thread.sandbox_id:
            try:
                await provider.destroy(listed.thread.thread_id)
            except SandboxUnavailable as error:
                log.warning("the sandbox of thread %s was not deleted: %s", listed.thread.thread_id, error)


async def _open_parts(
    settings: Settings, queue: RunQueue | None, stack: AsyncExitStack
) -> tuple[ProgramParts, ObservabilityDeps]:
    stores = await stack.enter_async_context(open_stores(settings, queue))
    sandboxes = await build_sandboxes(settings, stores.sandboxes, are_left_running=queue is not None)
    if unsafe := await asyncio.to_thread(confine_parsers, settings):
        log.warning(unsafe)
    if sandboxes.provider is not None:
        stack.push_async_callback(sandboxes.provider.close)
    observability = await stack.enter_async_context(open_observability(settings, stores.database, stores.messaging))
    if sandboxes.occupancy is not None:
        observability.metrics.observe_sandboxes(sandboxes.occupancy)
        observability.health.checks["sandboxes"] = sandbox_check(sandboxes.occupancy)
    model_specs = await load_model_specs(settings)
    for model in settings.models:
        log.info(model_specs.context_policy.window_text(model))
    model_client = build_model_client(settings, model_specs.context_policy, observability.run_metrics)
    stack.push_async_callback(model_client.close)
    mcp_servers = build_mcp_servers(settings)
    stack.push_async_callback(mcp_servers.close)
    roster = build_roster(settings, stores.agents, mcp_servers.configs)
    charge = build_usage_pricer(model_specs.price_of, observability.run_metrics)
    agent_knowledge = KnowledgeFileSync(roster.files, stores.knowledge_base.reporting_usage_to(charge))
    stack.push_async_callback(agent_knowledge.close)
    parts = ProgramParts(
        settings=settings,
        stores=stores,
        sandboxes=sandboxes,
        model_client=model_client,
        model_specs=model_specs,
        mcp_servers=mcp_servers,
        roster=roster,
        agent_knowledge=agent_knowledge,
        metrics=observability.run_metrics,
    )
    return parts, observability


def _build_web_deps(
    parts: ProgramParts, reception: ActionReceiver, platforms: Platforms, secret: bytes, spool: Path
) -> WebDeps:
    settings, stores, commands = parts.settings, parts.stores, reception.commands

    async def stop(run_id: str) -> bool:
        return not (await reception.stop_run(run_id, by=API_PERSON)).is_ignored

    return WebDeps(
        conversations=stores.conversations,
        bus=stores.bus,
        receive=reception.receive_trusted,
        inbox=stores.inbox,
        post=platforms.post_notice,
        propose=platforms.propose,
        stop=stop,
        sandboxes=parts.sandboxes.provider,
        spool_folder=spool,
        takeover_claims=stores.takeover_claims,
        links=SignedLinks(secret, settings.public_url, settings.expose_domain),
        upload_bytes_max=settings.file_bytes_max,
        schedules=commands.schedules,
        time_zone=settings.time_zone or "UTC",
        api_token=settings.api_token.get_secret_value(),
        agents=AgentsDeps(roster=parts.roster, knowledge=commands.knowledge, audit=stores.audit),
    )


class DrainDeadline:
    """The time that a stopping program gives its parts to finish their work. All parts share it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = 0.0

    async def close_in_time(self, close: CloseWithDrain) -> None:
        """Closes the part within the remaining time."""
        now = time.monotonic()
        self._until = self._until or now + self._seconds
        await close(drain_seconds=max(0.0, self._until - now))


def _list_jobs(parts: ProgramParts, reception: ActionReceiver) -> Jobs:
    settings, stores = parts.settings, parts.stores
    sessions = build_mcp_sessions(settings, stores, parts.sandboxes.provider)
    expire = partial(stores.asks.expire_approvals, older_than_hours=settings.approval_hours)
    old_events = partial(stores.journal.sweep_events, older_than_hours=EVENT_RETENTION_HOURS)
    old_keys = partial(stores.inbox.delete_old_keys, older_than_days=DEDUPE_KEY_RETENTION_DAYS)
    jobs: Jobs = {
        "the expiry of approvals": (APPROVAL_INTERVAL_SECONDS, expire),
        "the deletion of old events": (DELETION_INTERVAL_SECONDS, partial(delete_in_batches, old_events)),
        "the deletion of old dedupe keys": (DELETION_INTERVAL_SECONDS, partial(delete_in_batches, old_keys)),
        "the deletion of dead MCP sessions": (DELETION_INTERVAL_SECONDS, sessions.delete_dead_sessions),
    }
    if settings.audit_days:
        old_entries = partial(stores.audit.delete_old_entries, older_than_days=settings.audit_days)
        jobs["the deletion of old audit entries"] = (DELETION_INTERVAL_SECONDS, partial(delete_in_batches, old_entries))
    if settings.retention_days:
        forget = partial(delete_conversation, deps=reception.commands.erasure)
        delete = partial(delete_old_conversations, stores.conversations, forget, settings.retention_days)
        jobs["the deletion of old conversations"] = (DELETION_INTERVAL_SECONDS, delete)
    return jobs


def _start_jobs(stack: AsyncExitStack, jobs: Jobs) -> None:
    for name, (seconds, job) in jobs.items():
        stack.push_async_callback(cancel, spawn(repeat_job(name, seconds, job), name=name))
