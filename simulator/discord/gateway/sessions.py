"""Gateway sessions, which outlive their connection, and the connections they have."""

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field

from aiohttp import web

from simulator.discord.gateway.guild_payloads import is_on
from simulator.discord.json_reading import as_list
from simulator.discord.world import Event
from simulator.recording import record

_REPLAY_EVENTS_MAX = 4000
_COMMANDS_PER_MINUTE = 120
encode = json.JSONEncoder(separators=(",", ":")).encode


class Closed(Exception):
    """Ends a connection with a close code of the gateway."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(f"{code} {reason}")


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """`sent` keeps the frames for a resume: (sequence, frame)."""

    session_id: str
    intents: int
    shard: tuple[int, int]
    sequence: int = 0
    sent: deque[tuple[int, str]] = field(default_factory=lambda: deque[tuple[int, str]](maxlen=_REPLAY_EVENTS_MAX))
    connection: "Connection | None" = None
    left_at: float = 0.0

    def push(self, name: str, encoded: str) -> None:
        self.sequence += 1
        frame = f'{{"op":0,"s":{self.sequence},"t":"{name}","d":{encoded}}}'
        self.sent.append((self.sequence, frame))
        if self.connection is not None:
            self.connection.outbox.put_nowait(frame)


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    request: web.Request
    socket: web.WebSocketResponse
    outbox: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])
    session: Session | None = None
    heard_at: float = field(default_factory=time.monotonic)
    commands: deque[float] = field(default_factory=lambda: deque[float](maxlen=_COMMANDS_PER_MINUTE))

    def send(self, op: int, payload: object) -> None:
        self.outbox.put_nowait(encode({"op": op, "d": payload, "s": None, "t": None}))


def is_for(session: Session, event: Event) -> bool:
    if event.intent and not session.intents & event.intent:
        return False
    return is_on(event.guild_id or "0", session.shard)


def ignore(connection: Connection, payload: object) -> None:
    """Presence and voice states change nothing here."""


def shard_of(value: object) -> tuple[int, int]:
    if value is None:
        return 0, 1
    match as_list(value):
        case [int(number), int(count)] if 0 <= number < count:
            return number, count
        case _:
            raise Closed(4010, "Invalid shard.")


def count_command(connection: Connection) -> None:
    now = time.monotonic()
    commands = connection.commands
    if len(commands) == _COMMANDS_PER_MINUTE and now - commands[0] < 60:
        raise Closed(4008, "Rate limited.")
    commands.append(now)


async def write(connection: Connection) -> None:
    while True:
        frame = await connection.outbox.get()
        record("discord frame to the bot", frame)
        try:
            await connection.socket.send_str(frame)
        except ConnectionError:
            return


def abort(connection: Connection) -> None:
    if connection.request.transport is not None:
        connection.request.transport.abort()
