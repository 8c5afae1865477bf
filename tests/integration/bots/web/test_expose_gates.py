"""The end of the ways to ports of sandboxes, while somebody comes."""

import asyncio
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from bots.inbound.commands.schedules import ScheduleDeps
from bots.web.deps import WebDeps
from bots.web.links import SignedLinks
from bots.web.port_proxy import PortProxies
from core.ports import Sandbox, SandboxProvider
from core.stores import Conversations, Inbox, TakeoverClaims
from storage.memory.event_bus import MemoryEventBus


class Sleepy:
    """Sandboxes that take for ever to open. State: how many wait for one."""

    def __init__(self) -> None:
        self.waiting = 0

    async def open(self, thread_id: str, *, fence: int) -> Sandbox:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError("unreachable")


async def unwanted(*_: object) -> Any:
    raise AssertionError("nothing is received or stopped here")


def port_proxies_over(sleepy: Sleepy, folder: Path) -> PortProxies:
    ports = WebDeps(
        conversations=cast(Conversations, None),
        takeover_claims=cast(TakeoverClaims, None),
        bus=MemoryEventBus(),
        receive=unwanted,
        inbox=cast(Inbox, None),
        post=unwanted,
        propose=unwanted,
        stop=unwanted,
        sandboxes=cast(SandboxProvider, sleepy),
        spool_folder=folder,
        links=SignedLinks(b"s" * 32, ""),
        upload_bytes_max=1,
        schedules=cast(ScheduleDeps, None),
    )
    return PortProxies(ports)


@pytest.mark.parametrize("turns", range(8))
async def test_who_comes_at_the_last_moment_is_not_left_waiting(tmp_path: Path, turns: int) -> None:
    sleepy = Sleepy()
    proxies = port_proxies_over(sleepy, tmp_path)
    proxy = await proxies.open("thread", 8000)
    path = proxy.server.sockets[0].getsockname()
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(30)
        caller.connect(path)
        for _ in range(turns):
            await asyncio.sleep(0)
        await proxies.close()
        assert await asyncio.to_thread(_heard, caller) == b""
    assert sleepy.waiting == 0, "who carries a connection has ended with the way"


def _heard(caller: socket.socket) -> bytes:
    try:
        return caller.recv(1)
    except ConnectionResetError:  # it was never accepted
        return b""
