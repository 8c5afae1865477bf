"""`threadhand doctor`: checks the configuration and suggests a remedy for each problem."""

import asyncio
import secrets
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast
from urllib.parse import urlsplit

from bots.bootstrap.inbound import read_agents
from bots.bootstrap.mcp import load_mcp_server_configs
from bots.bootstrap.messaging import check_worker_settings
from bots.bootstrap.model_clients import build_embedding_client, missing_key_warnings
from bots.bootstrap.sandboxes import build_docker_sandboxes, build_modal_plan
from bots.settings import VARIABLE_NAMES, Settings, load_process_settings, process_environment
from bots.settings.models import provider_key_name
from core.domain.errors import ConfigurationError, ModelError
from core.domain.threads import Usage
from core.llm.embeddings import ModelEmbedder
from core.mcp.settings import McpServerConfig

if TYPE_CHECKING:
    from sandbox.local.probe import ProbeResult


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report. `remedy` is empty if no action is needed."""

    state: Literal["ok", "note", "fail"]
    subject: str
    fact: str
    remedy: str = ""

    def __str__(self) -> str:
        tail = f" {self.remedy}" if self.remedy else ""
        return f"{self.state:<5} {self.subject:<9} {self.fact}{tail}"


def print_findings(findings: tuple[Finding, ...]) -> int:
    """Prints the findings. Returns the exit code: 1 if any check failed, else 0."""
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return int(any(finding.state == "fail" for finding in findings))


FREE_BYTES_MIN = 1024**3
CONNECT_SECONDS = 5
EMBEDDING_SECONDS = 20.0


class _Connection(Protocol):
    async def close(self) -> None: ...


async def run_checks(env_file: Path) -> tuple[Finding, ...]:
    """Runs all checks and returns the findings. Changes no data.

    Connects to the database, Redis, Modal, the MCP servers and the embedding model, if they are configured.
    """
    findings = [_check_python()]
    try:
        settings = load_process_settings(env_file)
    except ConfigurationError as error:
        lines = str(error).splitlines()
        return (*findings, *(Finding("fail", "settings", line) for line in lines))
    findings += [
        Finding("ok", "settings", "are all known and well formed."),
        _check_data_dir(settings),
        await _check_database(settings),
        *await _check_redis(settings),
        _check_model(settings),
        *await _check_embedding_model(settings),
        _check_slack(settings),
        _check_discord(settings),
        *_check_access(settings),
        *await _check_agents_and_tools(settings),
        await check_sandbox(settings),
        *await check_modal_functions(settings),
        _check_web_access(settings),
        await asyncio.to_thread(_check_http, settings),
    ]
    return tuple(findings)


def list_settings() -> tuple[str, ...]:
    """Returns each setting as NAME=default. The default of a secret is empty."""
    defaults = {
        f"THREADHAND_{name.upper()}": field.default for name, field in Settings.model_fields.items()
    }
    return tuple(f"{name}={_format_default(defaults[name])}" for name in VARIABLE_NAMES)


def _format_default(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return default if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _check_python() -> Finding:
    return Finding("ok", "python", f"is {'.'.join(map(str, sys.version_info[:3]))}.")


async def _check_agents_and_tools(settings: Settings) -> tuple[Finding, ...]:
    """Checks the MCP servers and agents. Skips agents if the list of servers is invalid, because agents refer to it."""
    try:
        servers = load_mcp_server_configs(settings)
    except ConfigurationError as error:
        return (Finding("fail", "mcp", str(error)),)
    tools = await asyncio.gather(*(check_tool_server(one, settings) for one in servers))
    return (*_check_agents(settings, [one.name for one in servers]), *tools)


def _check_agents(settings: Settings, servers: Iterable[str]) -> Iterator[Finding]:
    try:
        files, _ = read_agents(settings, servers)
    except ConfigurationError as error:
        yield from (Finding("fail", "agents", line) for line in str(error).splitlines())
        return
    yield Finding("ok", "agents", f"are {', '.join(files.latest)}.")
    for sentence in missing_key_warnings(files.latest.values(), settings):
        yield Finding("fail", "agents", sentence)


def _check_data_dir(settings: Settings) -> Finding:
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


async def _check_database(settings: Settings) -> Finding:
    scheme = settings.storage_url.partition(":")[0].partition("+")[0]
    try:
        if scheme == "sqlite":
            await asyncio.to_thread(_open_sqlite, settings.storage_url)
        else:
            await _open_postgresql(settings.storage_url)
    except Exception as error:  # noqa: BLE001,RUF100 - drivers raise many errors; each is a finding
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
        await asyncpg.connect(address, timeout=CONNECT_SECONDS),  # pyright: ignore[reportUnknownMemberType] - untyped
    )
    await connection.close()


async def _check_redis(settings: Settings) -> tuple[Finding, ...]:
    if not settings.redis_url:
        return ()
    parts = urlsplit(settings.redis_url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
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


def _check_model(settings: Settings) -> Finding:
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


async def _check_embedding_model(settings: Settings) -> tuple[Finding, ...]:
    """Requests the embedding of one word if an embedding model is set."""
    model = settings.embedding_model
    if not model:
        return ()
    remedy = (
        "Correct THREADHAND_EMBEDDING_MODEL or its key; without it knowledge is searched by words."
    )
    try:
        client = build_embedding_client(model, settings)
    except ConfigurationError as error:
        return (Finding("fail", "meaning", str(error)),)
    try:
        async with asyncio.timeout(EMBEDDING_SECONDS):
            (vector,) = await ModelEmbedder(client, model).embed(["word"], spent=_ignore_usage)
    except TimeoutError:
        fact = f"{model} did not answer in {EMBEDDING_SECONDS:g} s."
        return (Finding("fail", "meaning", fact, remedy),)
    except ModelError as error:
        fact = " ".join((error.detail or str(error)).split())
        return (Finding("fail", "meaning", f"{model} makes no vectors: {fact}.", remedy),)
    finally:
        await client.close()
    return (Finding("ok", "meaning", f"{model} makes vectors of {len(vector)} numbers."),)


def _ignore_usage(_model: str, _usage: Usage) -> None:
    """Does nothing, because `threadhand doctor` does not record usage."""


def _check_web_access(settings: Settings) -> Finding:
    search = "by Tavily" if settings.tavily_api_key else "without a key"
    reader = "by Firecrawl" if settings.firecrawl_api_key else "by itself"
    services = {
        "data providers": ("RAPIDAPI_KEY", bool(settings.rapidapi_key)),
        "drawing": ("IMAGE_MODEL", bool(settings.image_model)),
        "deployments": ("CLOUDFLARE_API_TOKEN", bool(settings.cloudflare_api_token)),
        "deployments to an account": (
            "CLOUDFLARE_ACCOUNT_ID",
            bool(settings.cloudflare_account_id),
        ),
    }
    fact = f"searches the web {search} and reads pages {reader}."
    off = [f"THREADHAND_{name} ({what})" for what, (name, is_set) in services.items() if not is_set]
    if not off:
        return Finding("ok", "outside", fact)
    return Finding("note", "outside", fact, f"For more set {', '.join(off)}.")


def _check_slack(settings: Settings) -> Finding:
    try:
        mode = settings.slack_mode
    except ConfigurationError as error:
        return Finding("fail", "slack", str(error))
    if mode == "off":
        return Finding("note", "slack", "is not set up.", "`threadhand setup` does it.")
    name = "Socket Mode" if mode == "socket" else "HTTP mode"
    return Finding("ok", "slack", f"is set up for {name}.")


def _check_discord(settings: Settings) -> Finding:
    token = settings.discord_token.get_secret_value()
    if not token:
        return Finding("note", "discord", "is not set up.", "`threadhand setup` does it.")
    if token.count(".") != 2 or any(sign.isspace() for sign in token):
        remedy = "Copy the bot token, not the client secret, into THREADHAND_DISCORD_TOKEN."
        return Finding("fail", "discord", "has a token of the wrong shape.", remedy)
    return Finding("ok", "discord", "has a token.")


def _check_access(settings: Settings) -> tuple[Finding, ...]:
    has_platform = settings.discord_token or settings.slack_bot_token or settings.slack_client_id
    if has_platform and settings.no_access_warning:
        return (Finding("fail", "access", settings.no_access_warning),)
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
        return Finding("fail", "http", str(error))
    except OSError as error:
        return Finding(
            "note", "http", explain_bind_error(settings.http_host, settings.http_port, error),
            "(Perhaps it is Threadhand itself, already up.)",
        )  # fmt: skip
    return Finding("ok", "http", f"port {settings.http_port} on {settings.http_host} is free.")


HOW_TO_DEPLOY = "See docs/operators/modal.md."


async def check_sandbox(settings: Settings) -> Finding:
    """Tests the configured sandbox provider and removes everything that the test creates."""
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
    """Starts a local sandbox with all its isolation options in a temporary folder."""
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
    lack = (
        f" There is no browser in them: {jails.browser_unavailable_reason}"
        if jails.browser_unavailable_reason
        else ""
    )
    return _probe_finding(result, f"local: jails work.{lack}")


async def _check_modal(settings: Settings) -> Finding:
    """Checks that the Modal token gives access to the app. Creates neither an image nor a sandbox."""
    from sandbox.memory_records import MemorySandboxRecords
    from sandbox.modal.provider import ModalSandboxProvider

    sandboxes = ModalSandboxProvider(build_modal_plan(settings), MemorySandboxRecords())
    try:
        result = await sandboxes.probe()
    finally:
        await sandboxes.close()
    return _probe_finding(result, f"modal: the token opens the app {settings.modal_app}.")


def _probe_finding(result: "ProbeResult", good: str) -> Finding:
    if result.ok:
        return Finding("ok", "sandbox", good)
    return Finding("fail", "sandbox", result.reason, result.remedy)


async def check_modal_functions(settings: Settings) -> tuple[Finding, ...]:
    """Checks that Modal functions can execute runs, if they are configured."""
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
    """Raises ConfigurationError if the function does not exist, Modal rejects the token, or Modal does not respond."""
    # imported only if Modal is configured, because importing the SDK takes 1 s
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
    """Returns a finding that names the tools that runs currently get from the MCP server, or why they get none."""
    # imported only if a server is configured, because importing the SDK takes 1 s
    from core.mcp.connection import check_server

    seen = await check_server(server, process_environment())
    place = settings.mcp_config
    if seen.problem:
        remedy = f"Start it, or correct it in {place}."
        return Finding("fail", "mcp", f"{server.name}: {seen.problem}.", remedy)
    if not seen.tools:
        fact = f"{server.name} answers, but none of its {seen.listed} tools can be used."
        return Finding("note", "mcp", fact, f"Look at its enabled_tools in {place}.")
    return Finding("ok", "mcp", f"{server.name} answers with {_format_tool_names(seen.tools)}.")


def _format_tool_names(names: tuple[str, ...]) -> str:
    rest = len(names) - NAMES_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    noun = "tool" if len(names) == 1 else "tools"
    return f"{len(names)} {noun}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}"
