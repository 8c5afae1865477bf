"""Looks at everything that is configured, and names the remedy for what cannot work."""

import asyncio
import secrets
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast
from urllib.parse import urlsplit

from bots.bootstrap.mcp import load_mcp_server_configs
from bots.bootstrap.messaging import check_worker_settings
from bots.bootstrap.model_clients import missing_key_warnings, tried
from bots.bootstrap.sandboxes import build_docker_sandboxes, build_modal_plan
from bots.bootstrap.web_access import in_words
from bots.inbound.agents import read_agents
from bots.settings import VARIABLE_NAMES, Settings, load_process_settings, process_environment
from bots.settings.models import provider_key_name
from core.domain.errors import ConfigurationError
from core.mcp.settings import McpServerConfig
from sandbox.local.probe import ProbeResult


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `remedy` is empty when there is nothing to do."""

    state: Literal["ok", "note", "fail"]
    subject: str
    fact: str
    remedy: str = ""

    def __str__(self) -> str:
        tail = f" {self.remedy}" if self.remedy else ""
        return f"{self.state:<5} {self.subject:<9} {self.fact}{tail}"


def print_findings(findings: tuple[Finding, ...]) -> int:
    """Prints the findings; 1 if one of them fails."""
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return int(any(finding.state == "fail" for finding in findings))


FREE_BYTES_MIN = 1024**3
_CONNECT_SECONDS = 5


class _Connection(Protocol):
    async def close(self) -> None: ...


async def run_checks(env_file: Path) -> tuple[Finding, ...]:
    """All findings; nothing is changed. Asked are the database, Redis, Modal, the tool servers for their lists, and the
    model of embeddings for one word."""
    findings = [_python()]
    try:
        settings = load_process_settings(env_file)
    except ConfigurationError as error:
        lines = str(error).splitlines()
        return (*findings, *(Finding("fail", "settings", line) for line in lines))
    findings += [
        Finding("ok", "settings", "are all known and well formed."),
        _data_dir(settings),
        await _database(settings),
        *await _redis(settings),
        _model(settings),
        *[
            Finding(*describe_sdk_error)
            for describe_sdk_error in (await tried(settings),)
            if describe_sdk_error
        ],
        _slack(settings),
        _discord(settings),
        *_allowed(settings),
        *await _agents_with_tools(settings),
        await check_sandbox(settings),
        *await check_modal_functions(settings),
        Finding(*in_words(settings)),
        await asyncio.to_thread(_http, settings),
    ]
    return tuple(findings)


def list_settings() -> tuple[str, ...]:
    """The name of every setting with its default; a secret has none."""
    defaults = {
        f"THREADHAND_{name.upper()}": field.default for name, field in Settings.model_fields.items()
    }
    return tuple(f"{name}={_shown(defaults[name])}" for name in VARIABLE_NAMES)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return default if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _python() -> Finding:
    return Finding("ok", "python", f"is {'.'.join(map(str, sys.version_info[:3]))}.")


async def _agents_with_tools(settings: Settings) -> tuple[Finding, ...]:
    """Without the list of tool servers, what agents say of them cannot be judged."""
    try:
        servers = load_mcp_server_configs(settings)
    except ConfigurationError as error:
        return (Finding("fail", "mcp", str(error)),)
    tools = await asyncio.gather(*(check_tool_server(one, settings) for one in servers))
    return (*_agents(settings, [one.name for one in servers]), *tools)


def _agents(settings: Settings, servers: Iterable[str]) -> Iterator[Finding]:
    try:
        files, _ = read_agents(settings, servers)
    except ConfigurationError as error:
        yield from (Finding("fail", "agents", line) for line in str(error).splitlines())
        return
    yield Finding("ok", "agents", f"are {', '.join(files.latest)}.")
    for sentence in missing_key_warnings(files.latest.values(), settings):
        yield Finding("fail", "agents", sentence)


def _data_dir(settings: Settings) -> Finding:
    folder = settings.data_dir
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        probe = folder / ".doctor"
        probe.write_bytes(b"")
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(
            "fail",
            "data",
            f"{folder} cannot be written: {error.strerror}.",
            "Set THREADHAND_DATA_DIR to a folder of yours.",
        )
    if free < FREE_BYTES_MIN:
        return Finding("note", "data", f"{folder} has {free // 2**20} MB left.", "Make room.")
    return Finding("ok", "data", f"{folder} can be written.")


async def _database(settings: Settings) -> Finding:
    scheme = settings.storage_url.partition(":")[0].partition("+")[0]
    try:
        if scheme == "sqlite":
            await asyncio.to_thread(_open_sqlite, settings.storage_url)
        else:
            await _open_postgresql(settings.storage_url)
    except Exception as error:  # noqa: BLE001,RUF100 - a driver's errors are many; each is a finding
        return Finding(
            "fail",
            "database",
            f"cannot be opened ({type(error).__name__}).",
            "Check THREADHAND_DATABASE_URL, and that the server runs and lets this user in.",
        )
    return Finding("ok", "database", f"{scheme} can be opened.")


def _open_sqlite(url: str) -> None:
    path = Path(url.partition(":///")[2].partition("?")[0])
    if not path.exists():
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
    finally:
        connection.close()


async def _open_postgresql(url: str) -> None:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - has none

    address = url.replace("+asyncpg", "", 1)
    connection = cast(
        _Connection,
        await asyncpg.connect(address, timeout=_CONNECT_SECONDS),  # pyright: ignore[reportUnknownMemberType] - untyped
    )
    await connection.close()


async def _redis(settings: Settings) -> tuple[Finding, ...]:
    if not settings.redis_url:
        return ()
    parts = urlsplit(settings.redis_url)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            if parts.scheme == "unix":
                _, writer = await asyncio.open_unix_connection(parts.path)
            else:
                _, writer = await asyncio.open_connection(
                    parts.hostname or "localhost", parts.port or 6379
                )
    except (OSError, ValueError):
        remedy = "Start Redis, or correct THREADHAND_REDIS_URL."
        return (Finding("fail", "redis", "does not answer.", remedy),)
    writer.close()
    return (Finding("ok", "redis", "answers."),)


def _model(settings: Settings) -> Finding:
    if not settings.model:
        remedy = "Set THREADHAND_MODEL; until then only the demo's story works."
        return Finding("fail", "model", "is not chosen.", remedy)
    if settings.llm_api_key or settings.llm_base_url:
        return Finding("ok", "model", f"{settings.model} has its endpoint or key.")
    name = provider_key_name(settings.model)
    has_key = name in settings.provider_keys if name else bool(settings.provider_keys)
    if has_key:
        return Finding("ok", "model", f"{settings.model} has its key.")
    wanted = name or "the provider's key"
    remedy = f"Set {wanted}, or THREADHAND_LLM_API_KEY."
    return Finding("fail", "model", f"{settings.model} has no key.", remedy)


def _slack(settings: Settings) -> Finding:
    try:
        mode = settings.slack_mode
    except ConfigurationError as error:
        return Finding("fail", "slack", str(error))
    if mode == "off":
        return Finding("note", "slack", "is not set up.", "`threadhand setup` does it.")
    name = "Socket Mode" if mode == "socket" else "HTTP mode"
    return Finding("ok", "slack", f"is set up for {name}.")


def _discord(settings: Settings) -> Finding:
    token = settings.discord_token.get_secret_value()
    if not token:
        return Finding("note", "discord", "is not set up.", "`threadhand setup` does it.")
    if token.count(".") != 2 or any(sign.isspace() for sign in token):
        remedy = "Copy the bot token, not the client secret, into THREADHAND_DISCORD_TOKEN."
        return Finding("fail", "discord", "has a token of the wrong shape.", remedy)
    return Finding("ok", "discord", "has a token.")


def _allowed(settings: Settings) -> tuple[Finding, ...]:
    has_platform = settings.discord_token or settings.slack_bot_token or settings.slack_client_id
    if has_platform and settings.no_access_warning:
        return (Finding("fail", "access", settings.no_access_warning),)
    return ()


def _http(settings: Settings) -> Finding:
    from bots.web.app import explain_bind_error
    from bots.web.auth import check_exposure

    try:
        check_exposure(settings.http_host, settings.api_token.get_secret_value())
        family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.http_host, settings.http_port))
    except ConfigurationError as error:
        return Finding("fail", "http", str(error))
    except OSError as error:
        return Finding(
            "note", "http", explain_bind_error(settings.http_host, settings.http_port, error),
            "(Perhaps it is Threadhand itself, already up.)",
        )  # fmt: skip
    return Finding("ok", "http", f"port {settings.http_port} on {settings.http_host} is free.")


HOW_TO_DEPLOY = "See docs/operators/modal.md."


async def check_sandbox(settings: Settings) -> Finding:
    """Tries what the settings name; nothing of it is left."""
    match settings.sandbox:
        case "local":
            return await _check_jail(settings.data_dir)
        case "docker":
            result = await build_docker_sandboxes(settings).probe()
            return _probe_finding(result, f"docker: containers of {settings.docker_image} work.")
        case "none":
            return Finding("note", "sandbox", "is off: no shell and no files.")
        case "unsafe-process":
            return Finding("note", "sandbox", "is a plain process: commands can do what you can.")
        case "modal":
            return await _check_modal(settings)


async def _check_jail(data_dir: Path) -> Finding:
    """Tries a jail with all its flags, in a folder that is gone afterwards."""
    from sandbox.local.provider import LocalSandboxProvider

    folder = data_dir / f".doctor-{secrets.token_hex(4)}"
    jails = LocalSandboxProvider(folder)
    try:
        folder.mkdir(mode=0o711, parents=True)
        result = await jails.probe()
    except OSError as error:
        remedy = "Set THREADHAND_DATA_DIR to a folder of yours."
        return Finding("fail", "sandbox", f"cannot be tried: {error.strerror}.", remedy)
    finally:
        await jails.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    lack = f" There is no browser in them: {jails.browser_lack}" if jails.browser_lack else ""
    return _probe_finding(result, f"local: jails work.{lack}")


async def _check_modal(settings: Settings) -> Finding:
    """Asks Modal whether the token opens the app; makes neither image nor sandbox."""
    from sandbox.memory_records import MemorySandboxRecords
    from sandbox.modal.provider import ModalSandboxProvider

    sandboxes = ModalSandboxProvider(build_modal_plan(settings), MemorySandboxRecords())
    try:
        result = await sandboxes.probe()
    finally:
        await sandboxes.close()
    return _probe_finding(result, f"modal: the token opens the app {settings.modal_app}.")


def _probe_finding(result: ProbeResult, good: str) -> Finding:
    if result.ok:
        return Finding("ok", "sandbox", good)
    return Finding("fail", "sandbox", result.reason, result.remedy)


async def check_modal_functions(settings: Settings) -> tuple[Finding, ...]:
    """Whether the runs can be handed over to functions, where the settings want that."""
    if not settings.modal_worker_app:
        return ()
    try:
        check_worker_settings(settings, with_worker=False)
        await _look_up_modal_function(settings.modal_worker_app)
    except ConfigurationError as error:
        return (Finding("fail", "functions", str(error), HOW_TO_DEPLOY),)
    fact = f"the app {settings.modal_worker_app} at Modal takes runs."
    return (Finding("ok", "functions", fact),)


async def _look_up_modal_function(app: str) -> None:
    """Raises ConfigurationError also for a Modal that does not answer."""
    # only where it is set: its import costs a second
    from bots.bootstrap.modal_queue import look_up_worker_function
    from sandbox.modal.account import SDK_ERRORS, ModalAccount, describe_sdk_error

    account = ModalAccount(app)
    try:
        await look_up_worker_function(account)
    except SDK_ERRORS as error:
        raise ConfigurationError(f"{describe_sdk_error(error)[1]}.") from error
    finally:
        await account.close()


NAMES_SHOWN_MAX = 6


async def check_tool_server(server: McpServerConfig, settings: Settings) -> Finding:
    """What a run would get of it now, or why nothing."""
    # only where there is a server: the import of the SDK takes a second
    from core.mcp.connection import trial

    seen = await trial(server, process_environment())
    place = settings.mcp_config
    if seen.problem:
        remedy = f"Start it, or correct it in {place}."
        return Finding("fail", "mcp", f"{server.name}: {seen.problem}.", remedy)
    if not seen.tools:
        fact = f"{server.name} answers, and none of its {seen.listed} tools can be used."
        return Finding("note", "mcp", fact, f"Look at its enabled_tools in {place}.")
    return Finding("ok", "mcp", f"{server.name} answers with {_listed(seen.tools)}.")


def _listed(names: tuple[str, ...]) -> str:
    rest = len(names) - NAMES_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    noun = "tool" if len(names) == 1 else "tools"
    return f"{len(names)} {noun}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}"
