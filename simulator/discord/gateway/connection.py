"""The gateway: what a client may say to it, and what it tells of the world."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from functools import partial

from aiohttp import WSMsgType, web

from simulator.discord.gateway.guild_payloads import guild_create_json, is_on, ready_json
from simulator.discord.gateway.sessions import (
    Closed,
    Connection,
    Session,
    abort,
    count_command,
    encode,
    ignore,
    is_for,
    shard_of,
    write,
)
from simulator.discord.json_reading import Json, as_object, int_of, list_of, text_of
from simulator.discord.payloads import member_json
from simulator.discord.settings import MESSAGE_CONTENT
from simulator.discord.world import Event, World
from simulator.recording import record
from simulator.serving import cancel, spawn

_ALL_INTENTS = sum(1 << bit for bit in (*range(17), 20, 21, 24, 25))
_PAYLOAD_BYTES_MAX = 4096
_START_EVENTS = frozenset({"READY", "RESUMED", "GUILD_CREATE", "GUILD_MEMBERS_CHUNK"})


class Gateway:
    def __init__(self, world: World) -> None:
        self._world = world
        self._sessions: dict[str, Session] = {}
        self._connections: set[Connection] = set()
        self._held: Event | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._by_op: dict[int, Callable[[Connection, object], None]] = {
            1: self._heartbeat,
            2: self._identify,
            3: ignore,
            4: ignore,
            6: self._resume,
            8: self._request_members,
            31: ignore,
        }

    @property
    def is_bot_connected(self) -> bool:
        return any(session.connection is not None for session in self._sessions.values())

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(timeout=2.0, max_msg_size=1 << 20, compress=False)
        if not socket.can_prepare(request).ok:
            return web.Response(status=400, text="This is the gateway: connect with a WebSocket.")
        await socket.prepare(request)
        connection = Connection(request=request, socket=socket)
        self._connections.add(connection)
        writer = spawn(write(connection), name="discord simulator gateway writer")
        try:
            await self._talk(connection)
        except Closed as closed:
            await socket.close(code=closed.code, message=closed.reason.encode())
        except ConnectionError:
            pass
        finally:
            self._connections.discard(connection)
            self._leave(connection)
            await cancel(writer)
        return socket

    async def _talk(self, connection: Connection) -> None:
        if connection.request.query.get("v", "10") not in ("9", "10"):
            raise Closed(4012, "Invalid API version.")
        interval = self._world.settings.heartbeat_seconds
        connection.send(10, {"heartbeat_interval": int(interval * 1000), "_trace": []})
        while True:
            left = connection.heard_at + interval * 1.5 - time.monotonic()
            try:
                message = await connection.socket.receive(timeout=max(left, 0.001))
            except TimeoutError:
                raise Closed(4009, "Session timed out.") from None
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            self._read(connection, message.data)

    def _read(self, connection: Connection, frame: str | bytes) -> None:
        if len(frame) > _PAYLOAD_BYTES_MAX:
            raise Closed(4002, "Payload is too large.")
        try:
            payload = as_object(json.loads(frame))
        except (ValueError, RecursionError):
            payload = None
        if payload is None:
            raise Closed(4002, "Error while decoding payload.")
        op = payload.get("op")
        act = self._by_op.get(op) if isinstance(op, int) else None
        if act is None:
            raise Closed(4001, "Unknown opcode.")
        count_command(connection)
        if connection.session is None and op not in (1, 2, 6):
            raise Closed(4003, "Not authenticated.")
        act(connection, payload.get("d"))
        record("discord frame of the bot", payload)

    def _heartbeat(self, connection: Connection, payload: object) -> None:
        connection.heard_at = time.monotonic()
        later = asyncio.get_running_loop().call_later
        later(self._world.settings.acknowledge_seconds, connection.send, 11, None)

    def _identify(self, connection: Connection, payload: object) -> None:
        if connection.session is not None:
            raise Closed(4005, "Already authenticated.")
        body = as_object(payload) or {}
        if text_of(body, "token").removeprefix("Bot ") != self._world.token:
            raise Closed(4004, "Authentication failed.")
        intents = int_of(body, "intents")
        if "intents" not in body or intents & ~_ALL_INTENTS:
            raise Closed(4013, "Invalid intent(s).")
        if intents & self._world.settings.refused_intents:
            raise Closed(4014, "Disallowed intent(s).")
        session = Session(session_id=secrets.token_hex(16), intents=intents, shard=shard_of(body.get("shard")))
        self._sessions[session.session_id] = session
        connection.session, session.connection = session, connection
        ready = ready_json(self._world, session.session_id, session.shard)
        session.push("READY", encode(ready))
        for guild in self._world.guilds.values():
            if intents & 1 and is_on(guild.guild_id, session.shard):
                session.push("GUILD_CREATE", encode(guild_create_json(self._world, guild)))
        self._world.touch()

    def _resume(self, connection: Connection, payload: object) -> None:
        if connection.session is not None:
            raise Closed(4005, "Already authenticated.")
        body = as_object(payload) or {}
        if text_of(body, "token").removeprefix("Bot ") != self._world.token:
            raise Closed(4004, "Authentication failed.")
        self._forget_expired()
        session = self._sessions.get(text_of(body, "session_id"))
        sequence = int_of(body, "seq")
        is_refused = self._world.faults.take("RESUME", "invalid_session") is not None
        if session is not None and not is_refused and sequence > session.sequence:
            raise Closed(4007, "Invalid seq.")
        is_lost = session is not None and session.sent and session.sent[0][0] > sequence + 1
        if session is None or is_refused or is_lost:
            self._sessions.pop(text_of(body, "session_id"), None)
            connection.send(9, False)
            return
        if session.connection is not None:
            abort(session.connection)
        connection.session, session.connection = session, connection
        for number, frame in session.sent:
            if number > sequence:
                connection.outbox.put_nowait(frame)
        session.push("RESUMED", '{"_trace":[]}')
        self._world.touch()

    def _request_members(self, connection: Connection, payload: object) -> None:
        body = as_object(payload) or {}
        wanted = list_of(body, "user_ids") or [body.get("user_ids")]
        query, world = body.get("query"), self._world
        guild = world.guilds.get(str(body.get("guild_id")))
        if guild is None:
            return
        chosen = [
            user
            for user in (world.bot, *guild.people.values())
            if user.user_id in map(str, wanted) or (isinstance(query, str) and user.name.startswith(query))
        ]
        limit = int_of(body, "limit")
        known = {user.user_id for user in chosen}
        chunk: Json = {
            "guild_id": guild.guild_id,
            "members": [member_json(guild, user) for user in chosen[: limit or None]],
            "chunk_index": 0,
            "chunk_count": 1,
            "not_found": [item for item in wanted if item is not None and str(item) not in known],
        }
        if body.get("nonce") is not None:
            chunk["nonce"] = body.get("nonce")
        if connection.session is not None:
            connection.session.push("GUILD_MEMBERS_CHUNK", encode(chunk))

    def publish(self, event: Event) -> None:
        """Sends the event to every session that may have it, misbehaving as armed."""
        if event.name in _START_EVENTS:
            self._deliver(event)
            return
        faults = self._world.faults
        held, self._held = self._held, None
        reorder = None if held is not None else faults.take(event.name, "reorder")
        if reorder is not None:
            self._held = event
            self._later(self.release, reorder.seconds)
            return
        delay = faults.take(event.name, "delay")
        copies = 1 if faults.take(event.name, "duplicate") is None else 2
        for _ in range(copies):
            if delay is None:
                self._deliver(event)
            else:
                self._later(partial(self._deliver, event), delay.seconds)
        if held is not None:
            self._deliver(held)

    def release(self) -> None:
        """Delivers the event that waits for the one it is to come after, where there was none."""
        held, self._held = self._held, None
        if held is not None:
            self._deliver(held)

    def _later(self, act: Callable[[], None], seconds: float) -> None:
        def wake() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(seconds, wake)
        self._timers.add(timer)

    def _deliver(self, event: Event) -> None:
        self._forget_expired()
        whole = blanked = None
        for session in self._sessions.values():
            if not is_for(session, event):
                continue
            if event.blanked is not None and not session.intents & MESSAGE_CONTENT:
                blanked = blanked or encode(event.blanked)
                session.push(event.name, blanked)
            else:
                whole = whole or encode(event.payload)
                session.push(event.name, whole)

    def ask_to_reconnect(self) -> None:
        for connection in self._connections:
            connection.send(7, None)

    def invalidate(self, *, is_resumable: bool) -> None:
        """INVALID_SESSION now, to every connection; where it is not resumable the sessions end."""
        for connection in self._connections:
            connection.send(9, is_resumable)
            if connection.session is not None and not is_resumable:
                self._sessions.pop(connection.session.session_id, None)

    def say_nonsense(self) -> None:
        """Sends what is no JSON, to every connection."""
        for connection in self._connections:
            connection.outbox.put_nowait("{")

    def drop(self) -> None:
        """Breaks every connection without a close frame."""
        for connection in list(self._connections):
            abort(connection)

    async def close_all(self, code: int) -> None:
        """Closes every connection with the code, after which its session cannot be resumed."""
        for connection in list(self._connections):
            await connection.socket.close(code=code)

    async def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for connection in list(self._connections):
            await connection.socket.close(code=1001, message=b"The simulator ends.")

    def _leave(self, connection: Connection) -> None:
        """A close with 1000 or 1001 by the client ends its session, as does a lost heartbeat."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection, session.left_at = None, time.monotonic()
        if connection.socket.close_code in (1000, 1001, 4009):
            self._sessions.pop(session.session_id, None)
        self._world.touch()

    def _forget_expired(self) -> None:
        oldest = time.monotonic() - self._world.settings.session_seconds
        for session in list(self._sessions.values()):
            if session.connection is None and session.left_at < oldest:
                del self._sessions[session.session_id]
