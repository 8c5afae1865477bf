"""The way into the REST API: authorisation, faults, rate limits, permissions, the access log."""

import asyncio
import fnmatch
import json
import time
from collections import deque

from aiohttp import web

from simulator.discord.files import read_body
from simulator.discord.json_reading import Json, as_object
from simulator.discord.rest.call import Call, CallRecord, Reply
from simulator.discord.rest.errors import MISSING_PERMISSIONS, UNAUTHORIZED, Refused
from simulator.discord.rest.rate_limits import RateLimits, refusal_headers
from simulator.discord.rest.routes import Route, find_route
from simulator.discord.world import World
from simulator.faults import FaultKind
from simulator.recording import record

API_PATH = "/api/v10"
_CALLS_KEPT = 5000
_SUMMARY_CHARACTERS_MAX = 300
_FAULTS: tuple[FaultKind, ...] = ("rate_limit", "server_error", "timeout", "slow", "error_after", "timeout_after")
_MAJOR = ("channel", "guild", "token", "application")
_BROKEN: Json = {"message": "500: Internal Server Error", "code": 0}


class RestHandler:
    """`calls` is the access log, oldest first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limits = RateLimits()
        self._is_closing = asyncio.Event()
        self.calls: deque[CallRecord] = deque(maxlen=_CALLS_KEPT)

    def close(self) -> None:
        """Lets go of the calls that a fault keeps without an answer."""
        self._is_closing.set()

    async def serve(self, request: web.Request) -> web.Response:
        """Every call is logged, with status 0 where the client went away before its answer."""
        at, path = time.monotonic(), request.rel_url.path.removeprefix(API_PATH)
        summary: list[str] = []
        status = 0
        try:
            response = await self._serve(request, f"{request.method} {path}", summary)
            status = response.status
        finally:
            record = CallRecord(method=request.method, path=path, arguments="".join(summary), status=status, at=at)
            self.calls.append(record)
        return response

    async def _serve(self, request: web.Request, name: str, summary: list[str]) -> web.Response:
        """Answers as the call deserves, or as an armed fault wants it."""
        fault = self._world.faults.take(name, *_FAULTS)
        if fault is None:
            return await self._answer(request, name, summary)
        match fault.kind:
            case "rate_limit":
                return _limited(fault.seconds, is_global=False)
            case "server_error":
                return _json(_BROKEN, 500)
            case "timeout":
                return await self._never()
            case "slow":
                await asyncio.sleep(fault.seconds)
            case _:
                pass
        response = await self._answer(request, name, summary)
        match fault.kind:
            case "error_after":
                return _json(_BROKEN, 500)
            case "timeout_after":
                return await self._never()
            case _:
                return response

    async def _never(self) -> web.Response:
        await self._is_closing.wait()
        return _json(_BROKEN, 500)

    async def _answer(self, request: web.Request, name: str, summary: list[str]) -> web.Response:
        headers: dict[str, str] = {}
        try:
            raw_path = request.rel_url.raw_path.removeprefix(API_PATH)
            route, arguments = find_route(request.method, raw_path)
            if not route.is_open:
                expected = f"Bot {self._world.token}"
                if request.headers.get("Authorization") != expected:
                    raise Refused(UNAUTHORIZED)
            wait, is_global = self._limit(route, arguments, headers)
            if wait > 0:
                return _limited(wait, is_global=is_global, headers=headers)
            reply = await self._act(request, route, arguments, name, summary)
        except Refused as refused:
            record("discord refusal", refused.body())
            return _json(refused.body(), refused.status, headers)
        if reply.body is None:
            return web.Response(status=204, headers=headers)
        return _json(reply.body, reply.status, headers)

    async def _act(
        self, request: web.Request, route: Route, arguments: dict[str, str], name: str, summary: list[str]
    ) -> Reply:
        body, uploads = await read_body(request, self._world.settings.file_bytes_max)
        call = Call(
            method=request.method,
            path=request.rel_url.path.removeprefix(API_PATH),
            arguments=arguments,
            query=request.query,
            body=body,
            uploads=uploads,
        )
        told: dict[str, object] = {**call.query, **(as_object(call.body) or {})}
        if call.uploads:
            told["files"] = [upload.filename for upload in call.uploads]
        summary.append(json.dumps(told, ensure_ascii=False)[:_SUMMARY_CHARACTERS_MAX] if told else "")
        for glob in self._world.settings.missing_permissions:
            if fnmatch.fnmatchcase(name, glob):
                raise Refused(MISSING_PERMISSIONS)
        reply = route.act(self._world, call)
        called = f"discord {request.method} {route.template}"
        if body is not None:
            record(f"{called}: body", body)
        if reply.body is not None:
            record(f"{called}: answer", reply.body)
        return reply

    def _limit(self, route: Route, arguments: dict[str, str], headers: dict[str, str]) -> tuple[float, bool]:
        """Answers to interactions do not count against the global limit."""
        scale = self._world.settings.rate_limit_scale
        if scale <= 0:
            return 0.0, False
        if not route.is_open and (wait := self._limits.take_global(scale)) > 0:
            return wait, True
        if route.limit is None:
            return 0.0, False
        major = next((arguments[name] for name in _MAJOR if name in arguments), "")
        wait, told = self._limits.take(route.limit, major, scale)
        headers.update(told)
        return wait, False


def _json(body: object, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """The content type has no charset: clients compare the header as a whole."""
    raw = json.dumps(body, separators=(",", ":")).encode()
    return web.Response(body=raw, status=status, headers={"Content-Type": "application/json", **(headers or {})})


def _limited(wait: float, *, is_global: bool, headers: dict[str, str] | None = None) -> web.Response:
    body: Json = {
        "message": "You are being rate limited.",
        "retry_after": round(wait, 3),
        "global": is_global,
        "code": 0,
    }
    record("discord rate limit", body)
    scope = "global" if is_global else "user"
    return _json(body, 429, {**(headers or {}), **refusal_headers(wait, scope)})
