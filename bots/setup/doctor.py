"""Looks at everything that is configured, and names the remedy for what cannot work."""

import asyncio
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import urlsplit

from bots.bootstrap.embeddings import tried
from bots.bootstrap.mcp_servers import server_configs
from bots.bootstrap.model_clients import unreachable
from bots.bootstrap.web_access import in_words
from bots.inbound.agents import read_agents
from bots.settings import VARIABLES, Settings, load_process
from bots.settings.provider_keys import key_name
from bots.setup.doctor_sandbox import function_findings, sandbox_finding
from bots.setup.doctor_tools import tool_server_finding
from bots.setup.findings import Finding
from core.domain.errors import ConfigurationError

FREE_BYTES_MIN = 1024**3
_CONNECT_SECONDS = 5


class _Connection(Protocol):
    async def close(self) -> None: ...


async def examine(env_file: Path) -> tuple[Finding, ...]:
    """All findings; nothing is changed. Asked are the database, Redis, Modal, the tool servers for their lists, and the
    model of embeddings for one word."""
    findings = [_python()]
    try:
        settings = load_process(env_file)
    except ConfigurationError as error:
        lines = str(error).splitlines()
        return (*findings, *(Finding("fail", "settings", line) for line in lines))
    findings += [
        Finding("ok", "settings", "are all known and well formed."),
        _data_dir(settings),
        await _database(settings),
        *await _redis(settings),
        _model(settings),
        *[Finding(*told) for told in (await tried(settings),) if told],
        _slack(settings),
        _discord(settings),
        *_allowed(settings),
        *await _agents_with_tools(settings),
        await sandbox_finding(settings),
        *await function_findings(settings),
        Finding(*in_words(settings)),
        await asyncio.to_thread(_http, settings),
    ]
    return tuple(findings)


def setting_lines() -> tuple[str, ...]:
    """The name of every setting with its default; a secret has none."""
    defaults = {
        f"THREADHAND_{name.upper()}": field.default for name, field in Settings.model_fields.items()
    }
    return tuple(f"{name}={_shown(defaults[name])}" for name in VARIABLES)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return default if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _python() -> Finding:
    return Finding("ok", "python", f"is {'.'.join(map(str, sys.version_info[:3]))}.")


async def _agents_with_tools(settings: Settings) -> tuple[Finding, ...]:
    """Without the list of tool servers, what agents say of them cannot be judged."""
    try:
        servers = server_configs(settings)
    except ConfigurationError as error:
        return (Finding("fail", "mcp", str(error)),)
    tools = await asyncio.gather(*(tool_server_finding(one, settings) for one in servers))
    return (*_agents(settings, [one.name for one in servers]), *tools)


def _agents(settings: Settings, servers: Iterable[str]) -> Iterator[Finding]:
    try:
        files, _ = read_agents(settings, servers)
    except ConfigurationError as error:
        yield from (Finding("fail", "agents", line) for line in str(error).splitlines())
        return
    yield Finding("ok", "agents", f"are {', '.join(files.latest)}.")
    for sentence in unreachable(files.latest.values(), settings):
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
    scheme = settings.storage_url.partition("+")[0]
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
    name = key_name(settings.model)
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
    if has_platform and settings.allow_notice:
        return (Finding("fail", "access", settings.allow_notice),)
    return ()


def _http(settings: Settings) -> Finding:
    from bots.web.app import unavailable
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
            "note", "http", unavailable(settings.http_host, settings.http_port, error),
            "(Perhaps it is Threadhand itself, already up.)",
        )  # fmt: skip
    return Finding("ok", "http", f"port {settings.http_port} on {settings.http_host} is free.")
