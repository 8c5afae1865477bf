"""A fake web service on a free port of this machine, with given routes and configurable faults."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.support.web import serve_http

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    """A request that the fake service received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeWebService:
    """A running fake service. `trouble` holds responses to the next requests, instead of the routes' own.

    `faults` maps endings of paths to responses that replace those of all matching requests.
    """

    url: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    trouble: deque[Answer] = field(default_factory=deque)
    faults: dict[str, Answer] = field(default_factory=dict)

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address and port, in the format of AddressGuard's exemptions."""
        return ("127.0.0.1", self.port)


@asynccontextmanager
async def fake_web_service(routes: Sequence[web.RouteDef]) -> AsyncIterator[FakeWebService]:
    """Context manager: serves the routes inside the block."""
    state = FakeWebService()

    @web.middleware
    async def take_down(request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        state.asked.append(Asked(request.method, request.path, dict(request.query), headers, body))
        if state.trouble:
            return await state.trouble.popleft()(request)
        for end, answer in state.faults.items():
            if request.path.endswith(end):
                return await answer(request)
        return await handler(request)

    app = web.Application(middlewares=[take_down], client_max_size=100 << 20)
    app.add_routes(routes)
    async with serve_http(app) as state.url:
        state.port = int(state.url.rpartition(":")[2])
        yield state


def refusal(status: int, body: object = None, **headers: str) -> Answer:
    """Returns a handler that responds with an error as JSON. Underscores in header names stand for dashes."""

    async def answer(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"detail": "no"} if body is None else body, status=status, headers=named)

    return answer


def says(content: bytes, content_type: str = "application/json", **headers: str) -> Answer:
    """Returns a handler that responds with the bytes and status 200."""

    async def answer(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, headers={"Content-Type": content_type, **named})

    return answer


def moved(target: str, status: int = 302) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": target})

    return answer


async def silent(request: web.Request) -> web.StreamResponse:
    """Sends no response until the client disconnects."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.01)
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    """Sends an endless response."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    try:
        while True:
            await response.write(b'"' + b"x" * (1 << 16))
    except ConnectionError:
        return response


@dataclass(frozen=True)
class Field:
    """A part of a multipart form."""

    content: bytes
    content_type: str
    file_name: str | None


async def form_of(request: web.Request) -> dict[str, Field]:
    """Returns the parts of a multipart form whose body has already been read."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    whole = BytesParser(policy=HTTP).parsebytes(head + await request.read())
    return {
        str(part.get_param("name", header="content-disposition")): Field(
            part.get_content().encode() if part.get_content_maintype() == "text" else part.get_content(),
            part.get_content_type(),
            part.get_filename(),
        )
        for part in whole.iter_parts()
    }
