"""The addresses that Modal gives to ports of a sandbox: HTTP and websockets, for whoever shows the token.

As its guide says (https://modal.com/docs/guide/sandbox-networking), the token comes in a header, in the query or in a
cookie; where it came in the query the answer sets the cookie.
"""

import asyncio
import re
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from simulator.serving import cancel, spawn

COOKIE = "_modal_connect_token"
HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024
HEAD_SECONDS = 20.0


class Link:
    """One port of one sandbox. A container shares this machine's network: its port is that of the machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tokens: set[str] = set()
        self._talks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def given(self, token: str) -> str:
        """The address, for that token too from now on."""
        if self._server is None:
            self._server = await asyncio.start_server(self._take, "127.0.0.1", limit=HEAD_BYTES_MAX)
        self._tokens.add(token)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for talk in tuple(self._talks):
            await cancel(talk)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = spawn(self._talk(reader, writer), name="a visitor of a sandbox's port")
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            in_query, elsewhere = _tokens_in(head.decode("latin-1"))
            if not {in_query, *elsewhere} & self._tokens:
                writer.write(_refusal("401 Unauthorized", "This address needs a token."))
                return
            await self._carry(head, reader, writer, in_query if in_query in self._tokens else "")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(_refusal("502 Bad Gateway", "Nothing answers on this port."))
        finally:
            with suppress(OSError):
                await writer.drain()
            writer.close()

    async def _carry(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        inside, to_inside = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            to_inside.write(_for_one_request(head))
            sending = spawn(_pour(reader, to_inside), name="to a sandbox's port")
            try:
                answer = await inside.readuntil(b"\r\n")
                cookie = f"Set-Cookie: {COOKIE}={token}; Path=/; HttpOnly\r\n" if token else ""
                writer.write(answer + cookie.encode())
                await _pour(inside, writer)
            finally:
                await cancel(sending)
        finally:
            to_inside.close()


def _tokens_in(head: str) -> tuple[str, list[str]]:
    """That of the query, and those of the headers."""
    path = head.split(" ", 2)[1] if head.count(" ") > 1 else ""
    in_query = parse_qs(urlsplit(path).query).get(COOKIE, [""])[0]
    bearer = re.findall(r"(?im)^authorization: bearer (\S+)", head)
    cookies = re.findall(rf"(?im)^cookie:.*?\b{COOKIE}=([^;\s]+)", head)
    return in_query, bearer + cookies


def _for_one_request(head: bytes) -> bytes:
    """Each request shows its token, so a connection is for one; a websocket's has its own header for that."""
    if re.search(rb"(?im)^upgrade:", head):
        return head
    kept = re.sub(rb"(?im)^connection:.*\r\n", b"", head)
    return kept.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"


def _refusal(status: str, text: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            target.write(piece)
            await target.drain()
