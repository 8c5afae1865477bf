"""Socket Mode: tickets, connections, envelopes and their acknowledgements."""

import asyncio
import itertools
import json
import logging
import secrets
from dataclasses import dataclass, field
from typing import cast

from aiohttp import WSMsgType, web

from simulator.faults import Faults
from simulator.serving import cancel, spawn
from simulator.slack.events.delivery import Delivery
from simulator.slack.events.payloads import NotAcknowledged, Payload

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 10
_FAREWELL_SECONDS = 10.0
_CLOSE_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Connection:
    socket: web.WebSocketResponse
    request: web.Request
    is_leaving: bool = False
    waiting: set[str] = field(default_factory=set[str])

    def abort(self) -> None:
        """Breaks the TCP connection without a closing frame."""
        if self.request.transport is not None:
            self.request.transport.abort()


@dataclass(slots=True)
class SocketMode:
    """The connections of one app. Deliveries go round them in turn, as on the real platform."""

    app_id: str
    faults: Faults
    origin: str = ""
    connections: list[Connection] = field(default_factory=list[Connection])
    _tickets: set[str] = field(default_factory=set[str])
    _acks: "dict[str, asyncio.Future[Payload | None]]" = field(
        default_factory=dict[str, "asyncio.Future[Payload | None]"]
    )
    _turn: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _closing_tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def new_url(self) -> str:
        """A WebSocket address that opens one connection, once."""
        ticket = secrets.token_urlsafe(24)
        self._tickets.add(ticket)
        return f"{self.origin.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id={self.app_id}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serves one connection until it ends. A ticket that was used or never given is refused."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=400, text="invalid ticket")
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(timeout=_CLOSE_SECONDS, heartbeat=30, max_msg_size=4_000_000)
        await socket.prepare(request)
        connection = Connection(socket, request)
        self.connections.append(connection)
        try:
            await self._greet(connection)
            self._arrived.set()
            self.disturb(self.faults)
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    self._take(cast(str, message.data))
        except ConnectionError:
            log.debug("a Socket Mode client went away while it was greeted")
        finally:
            self.connections.remove(connection)
            if not self._usable():
                self._arrived.clear()
            for envelope_id in connection.waiting:
                ack = self._acks.get(envelope_id)
                if ack is not None and not ack.done():
                    ack.set_exception(NotAcknowledged("connection_failed"))
        return socket

    async def _greet(self, connection: Connection) -> None:
        if len(self.connections) > CONNECTIONS_MAX:
            self._say_goodbye(self.connections[0], "too_many_websockets", seconds=0)
        await connection.socket.send_json(
            {
                "type": "hello",
                "num_connections": len(self.connections),
                "debug_info": {
                    "host": f"applink-{next(self._numbers)}",
                    "build_number": 1,
                    "approximate_connection_time": 18060,
                },
                "connection_info": {"app_id": self.app_id},
            }
        )

    def _take(self, text: str) -> None:
        try:
            answer = json.loads(text)
        except ValueError:
            return
        if not isinstance(answer, dict):
            return
        body = cast(Payload, answer)
        ack = self._acks.get(str(body.get("envelope_id")))
        if ack is not None and not ack.done():
            ack.set_result(body.get("payload"))

    def _usable(self) -> list[Connection]:
        return [kept for kept in self.connections if not kept.is_leaving]

    def is_connected(self) -> bool:
        return bool(self._usable())

    async def wait_until_connected(self, seconds: float) -> bool:
        """Whether a connection is there, or came in time."""
        if self._usable():
            return True
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def send(self, delivery: Delivery, *, ack_seconds: float) -> Payload | None:
        """Sends an envelope over the next connection and waits for its acknowledgement."""
        usable = self._usable()
        if not usable:
            raise NotAcknowledged("no_connection")
        self._turn += 1
        connection = usable[self._turn % len(usable)]
        envelope_id = secrets.token_hex(16)
        ack: asyncio.Future[Payload | None] = asyncio.get_running_loop().create_future()
        self._acks[envelope_id] = ack
        connection.waiting.add(envelope_id)
        try:
            await connection.socket.send_str(_envelope(envelope_id, delivery))
            async with asyncio.timeout(ack_seconds):
                return await ack
        except TimeoutError:
            raise NotAcknowledged("timeout") from None
        except ConnectionError:
            raise NotAcknowledged("connection_failed") from None
        finally:
            connection.waiting.discard(envelope_id)
            del self._acks[envelope_id]

    def disturb(self, faults: Faults) -> None:
        """Lets the armed faults of the connection bite; without a connection they wait for one."""
        if self._usable() and faults.take("socket", "drop_connection"):
            for connection in list(self.connections):
                connection.is_leaving = True
                connection.abort()
        if self._usable() and faults.take("socket", "reconnect"):
            for connection in self._usable():
                self._say_goodbye(connection, "refresh_requested", seconds=_FAREWELL_SECONDS)

    def _say_goodbye(self, connection: Connection, reason: str, *, seconds: float) -> None:
        connection.is_leaving = True
        task = spawn(_close_with_reason(connection, reason, seconds), name="slack disconnect")
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)

    async def close(self) -> None:
        """Ends every connection."""
        for task in list(self._closing_tasks):
            await cancel(task)
        for connection in list(self.connections):
            await connection.socket.close()


async def _close_with_reason(connection: Connection, reason: str, seconds: float) -> None:
    try:
        await connection.socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink"}})
        await asyncio.sleep(seconds)
        await connection.socket.close()
    except ConnectionError:
        log.debug("a Socket Mode client was gone before it was told to leave")


def _envelope(envelope_id: str, delivery: Delivery) -> str:
    body: Payload = {
        "envelope_id": envelope_id,
        "payload": delivery.payload,
        "type": delivery.kind,
        "accepts_response_payload": delivery.accepts_answer,
    }
    if delivery.kind == "events_api":
        body["retry_attempt"] = delivery.attempt
        body["retry_reason"] = delivery.reason
    return json.dumps(body)
