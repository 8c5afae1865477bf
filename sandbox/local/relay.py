"""The frames of one guest process on their way to the program inside, and back."""

import asyncio
import json
from collections.abc import Callable
from functools import partial

from sandbox.client.call import as_object
from sandbox.client.connection import Connection
from sandbox.inside import frames

ENDS = (frames.RESULT, frames.ERROR)
STALE = {"code": "stale", "message": "another run uses this sandbox"}


class Relay:
    """One guest. `is_newest` tells whether a run of that fence may still do something; readers bear none."""

    def __init__(
        self,
        connection: Connection,
        writer: asyncio.StreamWriter,
        is_newest: Callable[[int], bool],
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._is_newest = is_newest
        self._fence = 0
        self._channels: dict[int, int] = {}

    async def play(self, reader: asyncio.StreamReader) -> None:
        """Until the guest leaves, or the sandbox ends. Raises IncompleteReadError, OSError, ValueError and
        SandboxUnavailable."""
        self._writer.write(frames.encode_json(frames.HELLO, 0, {"protocol": frames.PROTOCOL}))
        try:
            while True:
                header = await reader.readexactly(frames.HEADER.size)
                length, kind, channel = frames.HEADER.unpack(header)
                if length > frames.payload_bytes_max(kind):
                    raise ValueError(f"a frame of kind {kind} with {length} bytes")
                payload = await reader.readexactly(length) if length else b""
                await self._take(kind, channel, payload)
        finally:
            for inside in self._channels.values():
                self._connection.pass_on(frames.CANCEL, inside, b"")
                self._connection.end_relay(inside)

    async def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            await self._rise(_fence_of(payload))
        elif kind == frames.OPEN:
            await self._open(channel, payload)
        elif (inside := self._channels.get(channel)) is not None:
            self._connection.pass_on(kind, inside, payload)
            if kind == frames.CANCEL:
                self._connection.end_relay(inside)
                self._channels.pop(channel, None)

    async def _rise(self, fence: int) -> None:
        """The guest's run is a newer one: what older ones still run inside ends first."""
        self._fence = max(self._fence, fence)
        if self._fence and self._is_newest(self._fence):
            await self._connection.call("fence", fence=self._fence)

    async def _open(self, channel: int, payload: bytes) -> None:
        request = as_object(payload)
        if request.get("op") == "fence":
            self._fence = max(self._fence, _fence_of(payload))
        if self._fence and not self._is_newest(self._fence):
            self._writer.write(frames.encode_json(frames.ERROR, channel, dict(STALE)))
            return
        self._channels[channel] = self._connection.relay(payload, partial(self._deliver, channel))

    def _deliver(self, channel: int, kind: int, payload: bytes) -> None:
        if kind == frames.CANCEL:
            self._writer.close()
            return
        self._writer.write(frames.encode(kind, channel, payload))
        if kind in ENDS and (inside := self._channels.pop(channel, None)) is not None:
            self._connection.end_relay(inside)


def _fence_of(payload: bytes) -> int:
    fence = json.loads(payload).get("fence", 0)
    if not isinstance(fence, int):
        raise ValueError("a fence that is no number")
    return fence
