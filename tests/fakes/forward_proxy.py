"""An HTTP proxy on a free port of this machine that wants a user and a password."""

import asyncio
from asyncio import StreamReader, StreamWriter
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from core.web_access.forward_proxy import ForwardProxy, parse_forward_proxy

USER, PASSWORD = "alice", "p:w"
_GRANT = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


@dataclass
class RunningProxy:
    """`targets` are what it was asked for: the first line of each request that it served."""

    port: int = 0
    targets: list[str] = field(default_factory=list[str])

    def client(self, password: str = PASSWORD) -> ForwardProxy:
        return parse_forward_proxy(f"http://127.0.0.1:{self.port}", USER, password)


@asynccontextmanager
async def forward_proxy() -> AsyncIterator[RunningProxy]:
    running = RunningProxy()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *headers = head.splitlines()
            if f"Proxy-Authorization: {_GRANT}" not in headers:
                writer.write(b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
                return
            running.targets.append(line)
            method, target, _ = line.split()
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            up_reader, up = await asyncio.open_connection(parts.hostname, parts.port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                passed = [one for one in headers if one and not one.startswith("Proxy-")]
                up.write("\r\n".join([f"{method} {parts.path} HTTP/1.1", *passed, "", ""]).encode())
            await asyncio.gather(_copy(reader, up), _copy(up_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        running.port = server.sockets[0].getsockname()[1]
        yield running


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
        await writer.drain()
    writer.close()
