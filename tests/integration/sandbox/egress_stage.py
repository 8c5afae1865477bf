"""A jail with a way out, and servers of this machine that stand for the internet."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from core.ports import Sandbox
from core.web_access.forward_proxy import ForwardProxy
from core.web_access.guard import AddressGuard
from sandbox.local.egress_policy import EgressConfig, EgressLimits, parse_egress_policy
from tests.support.sandboxes import local_jails
from tests.support.web import serve_http


@dataclass(slots=True)
class FakeWebService:
    """A web server on 127.0.0.1 that notes what it was asked."""

    port: int = 0
    asked: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    bodies: list[bytes] = field(default_factory=list[bytes])


@asynccontextmanager
async def fake_web_service() -> AsyncGenerator[FakeWebService]:
    stage = FakeWebService()

    async def answer(request: web.Request) -> web.StreamResponse:
        stage.asked.append(str(request.rel_url))
        stage.headers.append({name.lower(): value for name, value in request.headers.items()})
        stage.bodies.append(await request.read())
        if request.path == "/away":
            raise web.HTTPFound(request.query["to"])
        if request.path == "/large":
            return web.Response(body=bytes(int(request.query["bytes"])))
        if request.path == "/slow":
            await asyncio.sleep(60)
        return web.Response(text="from outside\n")

    async with serve_http(answer) as url:
        stage.port = int(url.rpartition(":")[2])
        yield stage


@asynccontextmanager
async def jail_with_a_way_out(
    *ports: int, setting: str = "on", limits: EgressLimits | None = None, proxy: ForwardProxy | None = None
) -> AsyncIterator[Sandbox]:
    """Those ports of 127.0.0.1 count as the internet."""
    guard = AddressGuard(frozenset(("127.0.0.1", port) for port in ports), proxy=proxy)
    egress = EgressConfig(policy=parse_egress_policy(setting), limits=limits or EgressLimits(), guard=guard)
    async with local_jails(egress=egress) as jails:
        yield await jails.open("thread", fence=1)
