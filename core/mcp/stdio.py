"""An MCP server as a child process: its messages, one a line, its log, and its end."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter

from core.context.untrusted_text import cleaned, line
from core.mcp.settings import McpServerConfig
from core.tasks import spawn

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
LOG_LINES_MAX = 200
LOG_CHARACTERS_MAX = 500
PATIENCE_SECONDS = 2.0
"""How long a server may take to end after its input is closed, and again after it is asked to."""

PASSED_ON = ("PATH", "HOME", "LANG")
"""All that a server sees of the host's environment."""

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class MessageTooLarge(Exception):
    """Ends a connection; the text is for the model."""

    def __init__(self) -> None:
        super().__init__(
            f"it sent more than {MESSAGE_BYTES_MAX >> 20} MB at once, which is refused"
        )


@asynccontextmanager
async def stdio_transport(
    config: McpServerConfig, host_environment: Mapping[str, str]
) -> AsyncGenerator[Streams, None]:
    """Starts the server and yields its streams; on leaving, no process of its group is left.

    Raises OSError where it cannot be started.
    """
    passed = {name: host_environment[name] for name in PASSED_ON if name in host_environment}
    process = await asyncio.create_subprocess_exec(
        config.command,
        *config.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, **passed, **config.env},
        cwd=config.cwd,
        start_new_session=True,
        limit=MESSAGE_BYTES_MAX,
    )
    inbox, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = (
        spawn(_read(process, inbox, config.name), name=f"mcp {config.name} output"),
        spawn(_write(process, outbox, inbox), name=f"mcp {config.name} input"),
        spawn(_note(process, config), name=f"mcp {config.name} log"),
    )
    try:
        yield incoming, outgoing
        await _ended(process)
    finally:
        _kill(process, signal.SIGKILL)
        for task in tasks:
            task.cancel()
        for stream in (inbox, incoming, outgoing, outbox):
            stream.close()
        # a child that left the group may have inherited the pipes: waiting for their end would be for ever
        transport = cast(asyncio.SubprocessTransport, getattr(process, "_transport"))  # noqa: B009 - not public
        transport.close()
        gone = spawn(process.wait(), name=f"mcp {config.name} end")
        await asyncio.wait([*tasks, gone], timeout=PATIENCE_SECONDS)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """The protocol's order: close the input, wait, ask, wait. The caller kills what is left."""
    if process.stdin is not None:
        process.stdin.close()
    for ask in (None, signal.SIGTERM):
        if ask is not None:
            _kill(process, ask)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await process.wait()
                return


def _kill(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _read(process: asyncio.subprocess.Process, inbox: Inbox, name: str) -> None:
    assert process.stdout is not None  # noqa: S101 - made with a pipe
    with inbox:
        while True:
            try:
                raw = await process.stdout.readline()
            except ValueError:
                log.warning("the MCP server %s sent a message that is too large", name)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await inbox.send(MessageTooLarge())
                return
            except ConnectionError:
                return
            if not raw:
                return
            message = parsed(raw) if raw.strip() else None
            if message is None:
                continue
            try:
                await inbox.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def parsed(raw: bytes) -> JSONRPCMessage | None:
    """The message of a line. A broken answer to one of our requests becomes its error; other nonsense is None."""
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(raw, by_name=False)
    try:
        value = cleaned(json.loads(raw.decode("utf-8", "replace")))
        with suppress(ValueError):
            return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        return None
    asked = value.get("id") if isinstance(value, dict) else None
    if not isinstance(asked, int | str) or (isinstance(value, dict) and "method" in value):
        return None
    error = ErrorData(code=PARSE_ERROR, message="The server's answer is malformed.")
    return JSONRPCError(jsonrpc="2.0", id=asked, error=error)


async def _write(process: asyncio.subprocess.Process, outbox: Outbox, inbox: Inbox) -> None:
    assert process.stdin is not None  # noqa: S101 - made with a pipe
    with outbox:
        async for sent in outbox:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
            except OSError:
                inbox.close()
                return


async def _note(process: asyncio.subprocess.Process, config: McpServerConfig) -> None:
    """Writes what the server says on its error channel to our log, within bounds and without secrets."""
    assert process.stderr is not None  # noqa: S101 - made with a pipe
    rest = b""
    noted = 0
    while piece := await process.stderr.read(8192):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: LOG_CHARACTERS_MAX * 8]
        for raw in filter(None, map(bytes.strip, lines[: max(0, LOG_LINES_MAX - noted)])):
            noted += 1
            log.info("MCP server %s: %s", config.name, _redacted(raw, config))
            if noted == LOG_LINES_MAX:
                log.info("MCP server %s: it says more, which is not noted", config.name)
    if rest and noted < LOG_LINES_MAX:
        log.info("MCP server %s: %s", config.name, _redacted(rest, config))


def _redacted(raw: bytes, config: McpServerConfig) -> str:
    text = raw[: LOG_CHARACTERS_MAX * 8].decode("utf-8", "replace")
    for secret in sorted(config.secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return line(text, LOG_CHARACTERS_MAX)
