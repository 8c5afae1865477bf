"""`threadhand doctor`: checks the configuration and suggests a remedy for each problem."""

import asyncio
import errno
import secrets
import shutil
import socket
import sqlite3
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from bots.bootstrap.inbound import read_agents, read_follow_modes
from bots.bootstrap.mcp import load_mcp_server_configs
from bots.bootstrap.model_clients import missing_key_warnings
from bots.bootstrap.process_messaging import check_worker_settings
from bots.bootstrap.sandboxes import build_docker_sandboxes, build_local_jails, build_modal_plan, confine_parsers
from bots.settings import VARIABLE_NAMES, Settings, load_process_settings, process_environment
from bots.setup.check_runner import REPORT_SECONDS, Check, blocking_check, run_in_parallel
from bots.setup.findings import Finding, failed_findings
from bots.setup.model_checks import SEE_SETTINGS, build_model_checks, check_embedding_model, check_model_keys
from bots.setup.service_checks import check_clock, check_discord, check_slack, check_slack_channels, open_service_client
from bots.setup.web_checks import build_web_checks, describe_web_services
from core.domain.budget import NO_LIMIT
from core.domain.errors import ConfigurationError
from core.mcp.settings import McpServerConfig
from sandbox.limits import HeldBy

if TYPE_CHECKING:
    from sandbox.local.probe import ProbeResult


FREE_BYTES_MIN = 1024**3
PROBE_BYTES = 64 * 1024
CONNECT_SECONDS = 5
DATABASE_REMEDY = "Check THREADHAND_DATABASE_URL, and that the server runs and lets this user in."
AGENT_REMEDY = "Correct it; docs/developers/tools.md describes agent files."
REDIS_REMEDY = "Start Redis, or correct THREADHAND_REDIS_URL and its password."


class _Connection(Protocol):
    async def close(self) -> None: ...


async def run_checks(env_file: Path, *, is_offline: bool = False) -> tuple[Finding, ...]:
    """Loads the settings and runs all checks. Reports a mistake in the settings as a finding. Changes no data."""
    try:
        settings = load_process_settings(env_file)
    except ConfigurationError as error:
        lines = str(error).splitlines()
        remedy = "Correct it in .env; `threadhand doctor --settings` lists all names."
        return (_check_versions(), *(Finding("fail", "settings", line, remedy) for line in lines))
    return (
        _check_versions(),
        Finding("ok", "settings", "are all known and well formed."),
        *await check_services(settings, is_offline=is_offline),
    )


async def check_services(
    settings: Settings, *, is_offline: bool = False, seconds: float = REPORT_SECONDS
) -> tuple[Finding, ...]:
    """Runs all checks of the settings in parallel. Changes no data. A check that takes longer than `seconds` fails.

    Connects to the database and Redis, and, unless `is_offline`, to the chat platforms, models, MCP servers, Modal and
    other services that are configured."""
    database = "SQLite" if settings.storage_url.startswith("sqlite") else "PostgreSQL"
    local = [
        blocking_check("data", partial(_check_data_dir, settings)),
        Check("database", partial(_check_database, settings, database), database, DATABASE_REMEDY),
        Check("redis", partial(_check_redis, settings), "Redis", REDIS_REMEDY),
        blocking_check("budgets", partial(_check_budgets, settings)),
        blocking_check("access", partial(_check_access, settings)),
        blocking_check("parsers", partial(_check_parsers, settings)),
        blocking_check("agents", partial(_check_agents, settings)),
        blocking_check("http", partial(_check_http, settings)),
        *([] if settings.sandbox == "modal" else [_sandbox_check(settings)]),
    ]
    if is_offline:
        skipped = Finding("note", "services", "are not tried (--offline).")
        keys = blocking_check("model", partial(check_model_keys, settings))
        web = blocking_check("outside", partial(describe_web_services, settings, is_offline=True))
        return (*await run_in_parallel([*local, keys, web], seconds=seconds), skipped)
    async with open_service_client(settings.public_url) as client:
        checks = [
            *local,
            *_mcp_checks(settings),
            Check("slack", partial(check_slack, client, settings), "Slack"),
            Check("slack", partial(check_slack_channels, client, settings), "Slack"),
            Check("discord", partial(check_discord, client, settings), "Discord"),
            *build_model_checks(client, settings),
            Check("meaning", partial(check_embedding_model, settings), settings.embedding_model),
            *build_web_checks(client, settings),
            *([_sandbox_check(settings)] if settings.sandbox == "modal" else []),
            Check("functions", partial(check_modal_functions, settings), "Modal"),
        ]
        return (*await run_in_parallel(checks, seconds=seconds), *check_clock(client))


async def find_late_problems(settings: Settings) -> tuple[str, ...]:
    """Returns a sentence for each model and each place in Discord that will fail, for a program that has just started.

    Costs nothing, because no model is called. Leaves out services that do not answer."""
    async with open_service_client() as client:
        discord = Check("discord", partial(check_discord, client, settings), "Discord")
        found = await run_in_parallel([*build_model_checks(client, settings, is_free=True), discord])
    return tuple(
        f"{one.subject.capitalize()}: {one.fact} {one.remedy}" for one in failed_findings(found) if not one.is_untested
    )


def _sandbox_check(settings: Settings) -> Check:
    return Check("sandbox", partial(check_sandbox, settings), f"the sandbox {settings.sandbox}")


def _mcp_checks(settings: Settings) -> list[Check]:
    """Returns a check for each MCP server. Returns none if the list of servers is invalid, which `_check_agents`
    reports."""
    try:
        servers = load_mcp_server_configs(settings)
    except ConfigurationError:
        return []
    remedy = f"Start it, or correct it in {settings.mcp_config}."
    return [Check("mcp", partial(_check_tool_server, one, settings), one.name, remedy) for one in servers]


def list_setting_defaults() -> tuple[str, ...]:
    """Returns each setting as NAME=default. The default of a secret is empty."""
    defaults = {f"THREADHAND_{name.upper()}": field.default for name, field in Settings.model_fields.items()}
    return tuple(f"{name}={_format_default(defaults[name])}" for name in VARIABLE_NAMES)


def _format_default(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return default if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _check_versions() -> Finding:
    python = ".".join(map(str, sys.version_info[:3]))
    names = ("threadhand", "slack-sdk", "discord.py", "litellm", "mcp")
    versions = ", ".join(f"{name} {_installed_version(name)}" for name in names)
    return Finding("ok", "versions", f"Python {python}, {versions}.")


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _check_agents(settings: Settings) -> tuple[Finding, ...]:
    """Checks the agents. If the list of MCP servers is invalid, that is the only finding, because agents refer to
    servers."""
    try:
        servers = [one.name for one in load_mcp_server_configs(settings)]
    except ConfigurationError as error:
        return (Finding("fail", "mcp", str(error), f"Correct {settings.mcp_config}; see docs/developers/tools.md."),)
    try:
        files, _ = read_agents(settings, servers)
    except ConfigurationError as error:
        return tuple(Finding("fail", "agents", line, AGENT_REMEDY) for line in str(error).splitlines())
    keyless = missing_key_warnings(files.latest.values(), settings)
    return (
        Finding("ok", "agents", f"are {', '.join(files.latest)}."),
        *(Finding("fail", "agents", one, AGENT_REMEDY) for one in sorted(files.problems)),
        *(Finding("fail", "agents", one, SEE_SETTINGS) for one in keyless),
    )


def _check_data_dir(settings: Settings) -> Finding:
    folder = settings.data_dir
    probe = folder / ".doctor"
    look = f"`du -xh --max-depth 2 {folder} | sort -h | tail` shows what is large."
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        remedy = "Set THREADHAND_DATA_DIR to a folder of yours."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = f"Make room: {look}"
        fact = f"{folder} cannot be written: {error.strerror}."
        return Finding("fail", "data", fact, remedy)
    reserve = settings.sandbox_disk_reserve_mebibytes * 2**20
    if settings.sandbox in {"local", "unsafe-process"} and free < reserve:
        fact = f"{folder} has {free // 2**20} MiB left, and sandboxes need {reserve // 2**20}."
        return Finding("fail", "data", fact, f"Make room: {look}")
    if free < FREE_BYTES_MIN:
        return Finding("note", "data", f"{folder} has {free // 2**20} MiB left.", look)
    return Finding("ok", "data", f"{folder} can be written ({free // 2**30} GiB left).")


async def _check_database(settings: Settings, name: str) -> tuple[Finding, ...]:
    try:
        if name == "SQLite":
            await asyncio.to_thread(_open_sqlite, settings.storage_url)
        else:
            import asyncpg  # pyright: ignore[reportMissingTypeStubs] - has none

            address = settings.storage_url.replace("+asyncpg", "", 1)
            connection = cast(
                _Connection,
                await asyncpg.connect(address, timeout=CONNECT_SECONDS),  # pyright: ignore[reportUnknownMemberType] - untyped
            )
            await connection.close()
    except Exception as error:  # noqa: BLE001,RUF100 - drivers raise many errors; each is a finding
        return (Finding("fail", "database", f"cannot be opened ({type(error).__name__}).", DATABASE_REMEDY),)
    return (Finding("ok", "database", f"{name} can be opened."),)


def _open_sqlite(url: str) -> None:
    path = Path(url.partition(":///")[2].partition("?")[0])
    if not path.exists():
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
    finally:
        connection.close()


async def _check_redis(settings: Settings) -> tuple[Finding, ...]:
    if not settings.redis_url:
        return ()
    # imported only if Redis is configured, because the import takes 0.1 s
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    client = Redis.from_url(settings.redis_url, socket_connect_timeout=CONNECT_SECONDS)  # pyright: ignore[reportUnknownMemberType] - redis-py leaves these options untyped
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            memory = await client.info("memory")  # pyright: ignore[reportUnknownMemberType] - redis-py leaves these options untyped
    except (RedisError, OSError, ValueError) as error:
        return (Finding("fail", "redis", f"does not answer ({type(error).__name__}).", REDIS_REMEDY),)
    finally:
        await client.aclose()
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if memory.get("maxmemory") and policy != "noeviction":
        problem = f"deletes keys when its memory is full (maxmemory-policy {policy})."
        remedy = "Set maxmemory-policy to noeviction, because the queue of runs is among its keys."
        return (Finding("fail", "redis", problem, remedy),)
    return (Finding("ok", "redis", "answers."),)


def _check_budgets(settings: Settings) -> Finding:
    if set(settings.budget.limits.values()) == {NO_LIMIT}:
        remedy = "Models can cost any amount; THREADHAND_BUDGET_RUN_USD limits what a run may cost."
        return Finding("note", "budgets", "are switched off.", remedy)
    return Finding("ok", "budgets", f"limit {settings.budget}.")


def _check_access(settings: Settings) -> tuple[Finding, ...]:
    try:
        read_follow_modes(settings)
    except ConfigurationError as error:
        return (Finding("fail", "access", str(error), "Correct it in .env."),)
    has_platform = settings.discord_token or settings.slack_bot_token or settings.slack_client_id
    if has_platform and settings.no_access_warning:
        return (Finding("fail", "access", settings.no_access_warning, SEE_SETTINGS),)
    return ()


def _check_http(settings: Settings) -> Finding:
    from bots.web.app import explain_bind_error
    from bots.web.auth import check_exposure

    try:
        check_exposure(settings.http_host, settings.api_token.get_secret_value())
        family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.http_host, settings.http_port))
    except ConfigurationError as error:
        remedy = "Set THREADHAND_API_TOKEN, or THREADHAND_HTTP_HOST to 127.0.0.1."
        return Finding("fail", "http", str(error), remedy)
    except OSError as error:
        return Finding(
            "note", "http", explain_bind_error(settings.http_host, settings.http_port, error),
            "(Perhaps it is Threadhand itself, already up.)",
        )  # fmt: skip
    return Finding("ok", "http", f"port {settings.http_port} on {settings.http_host} is free.")


HOW_TO_DEPLOY = "See docs/admins/modal.md."


async def check_sandbox(settings: Settings) -> tuple[Finding, ...]:
    """Tests the configured sandbox provider and removes everything that the test creates."""
    match settings.sandbox:
        case "local":
            folder = settings.data_dir / f".doctor-{secrets.token_hex(4)}"
            try:
                jails = build_local_jails(settings, folder)
            except ConfigurationError as error:
                return (Finding("fail", "sandbox", str(error), SEE_SETTINGS),)
            try:
                folder.mkdir(mode=0o711, parents=True)
                result = await jails.probe()
                limits = await jails.describe() if result.ok else ()
            except OSError as error:
                remedy = "Set THREADHAND_DATA_DIR to a folder of yours."
                return (Finding("fail", "sandbox", f"cannot be tried: {error.strerror}.", remedy),)
            finally:
                await jails.close()
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            lack = (
                f" There is no browser in them: {jails.browser_unavailable_reason}"
                if jails.browser_unavailable_reason
                else ""
            )
            findings = [_probe_finding(result, f"local: jails work.{lack}")]
            for holder, text in WHO_HOLDS_LIMITS.items():
                if held := [f"{limit.name} ({limit.how})" for limit in limits if limit.held_by == holder]:
                    findings.append(Finding("ok", "limits", f"{text}: {', '.join(held)}."))
            return tuple(findings)
        case "docker":
            result = await build_docker_sandboxes(settings).probe()
            return (_probe_finding(result, f"docker: containers of {settings.docker_image} work."),)
        case "none":
            return (Finding("note", "sandbox", "is off: no shell and no files."),)
        case "unsafe-process":
            fact = "is a plain process: commands can do what you can."
            return (Finding("note", "sandbox", fact),)
        case "modal":
            from sandbox.memory_records import MemorySandboxRecords
            from sandbox.modal.provider import ModalSandboxProvider

            # the probe creates neither an image nor a sandbox
            sandboxes = ModalSandboxProvider(build_modal_plan(settings), MemorySandboxRecords())
            try:
                result = await sandboxes.probe()
            finally:
                await sandboxes.close()
            return (_probe_finding(result, f"modal: the token opens the app {settings.modal_app}."),)


WHO_HOLDS_LIMITS: dict[HeldBy, str] = {
    "kernel": "held by the kernel",
    "watchdog": "held by counting, so they can be exceeded for a moment",
    "program": "held by this program",
    "nobody": "held by nobody",
}


def _check_parsers(settings: Settings) -> Finding:
    if unsafe := confine_parsers(settings):
        return Finding("note", "parsers", unsafe, "Make bubblewrap work; see docs/operators/security.md.")
    return Finding("ok", "parsers", "read documents and pictures in a jail.")


def _probe_finding(result: "ProbeResult", good: str) -> Finding:
    if result.ok:
        return Finding("ok", "sandbox", good)
    remedy = result.remedy or "See docs/operators/deployment.md, or set THREADHAND_SANDBOX."
    return Finding("fail", "sandbox", result.reason, remedy)


async def check_modal_functions(settings: Settings) -> tuple[Finding, ...]:
    """Checks that Modal functions can execute runs, if they are configured."""
    if not settings.modal_worker_app:
        return ()
    try:
        check_worker_settings(settings, with_worker=False)
        # imported only if Modal is configured, because importing the SDK takes 1 s
        from sandbox.modal.account import SDK_ERRORS, ModalAccount, describe_sdk_error
        from sandbox.modal.run_queue import look_up_worker_function

        account = ModalAccount(settings.modal_worker_app)
        try:
            await look_up_worker_function(account)
        except SDK_ERRORS as error:
            raise ConfigurationError(f"{describe_sdk_error(error)[1]}.") from error
        finally:
            await account.close()
    except ConfigurationError as error:
        return (Finding("fail", "functions", str(error), HOW_TO_DEPLOY),)
    return (Finding("ok", "functions", f"the app {settings.modal_worker_app} at Modal takes runs."),)


NAMES_SHOWN_MAX = 6
LEFT_OUT_CHARACTERS_MAX = 600


async def _check_tool_server(server: McpServerConfig, settings: Settings) -> tuple[Finding, ...]:
    """Returns a finding that names the tools that runs currently get from the MCP server, or why they get none."""
    # imported only if a server is configured, because importing the SDK takes 1 s
    from core.mcp.connection import check_server

    seen = await check_server(server, process_environment())
    place = settings.mcp_config
    if seen.problem:
        return (Finding("fail", "mcp", f"{server.name}: {seen.problem}.", f"Start it, or correct it in {place}."),)
    if not seen.tools:
        fact = f"{server.name} answers, but none of its {seen.listed} tools can be used."
        return (Finding("note", "mcp", fact, f"Look at its enabled_tools in {place}."),)
    count, shown = len(seen.tools), ", ".join(seen.tools[:NAMES_SHOWN_MAX])
    more = f" and {count - NAMES_SHOWN_MAX} more" if count > NAMES_SHOWN_MAX else ""
    fact = f"{server.name} answers with {count} {'tool' if count == 1 else 'tools'}: {shown}{more}."
    if seen.left_out:
        left_out = "; ".join(seen.left_out)[:LEFT_OUT_CHARACTERS_MAX]
        fact = f"{fact} {count} of its {seen.listed} tools can be used, left out: {left_out}."
    return (Finding("ok", "mcp", fact),)
