"""A Web API request from its token to its answer: faults, scopes, rate limits, arguments, the method."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from simulator.faults import Fault, Faults
from simulator.recording import record
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.organisation import Organisation
from simulator.slack.settings import SlackSettings
from simulator.slack.web_api import METHODS, Call, Method
from simulator.slack.web_api.arguments import read_arguments
from simulator.slack.web_api.call import SCARCE, Platform, missing_scope
from simulator.slack.web_api.organisations import ORGANISATION_METHODS
from simulator.slack.web_api.rate_limits import Rates
from simulator.slack.world import Workspace

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS = {"rate_limit": 429, "server_error": 500, "error_after": 500, "timeout": 0, "timeout_after": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One call that an app made.

    `status` is 0 where no answer was given, `error` empty where the call passed, and `at` is `time.monotonic()` when
    the call arrived. The arguments are those that the platform works with: read them, do not change them.
    """

    method: str
    arguments: Payload
    status: int
    error: str
    at: float
    team_id: str = ""


@dataclass(slots=True)
class WebApi:
    """Answers calls for every workspace; which one is meant, the token says."""

    settings: SlackSettings
    faults: Faults
    platform: Platform
    calls: deque[ApiCall]
    rates: Rates
    hanging: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serves `/api/<method>`."""
        at, method = time.monotonic(), request.match_info["method"]
        before = self.faults.take(method, "rate_limit", "server_error", "timeout", "slow", "refuse")
        arguments: Payload = {}
        team_id = ""
        try:
            arguments = await read_arguments(request)
            if before is not None and before.kind == "refuse":
                raise Refused(before.code)
            if before is not None and before.kind != "slow":
                self._note(method, arguments, _STATUS[before.kind], before.kind, at, "")
            if before is not None and (early := await self._misbehave(before)) is not None:
                return early
            holder = self._authorise(request, method, arguments)
            if isinstance(holder, Organisation):
                team_id, body = self._run_for_all(holder, method, arguments, at)
            else:
                team_id, body = holder.team_id, self.run(holder, method, arguments, at)
        except Refused as refusal:
            body = refusal.answer()
        error = str(body.get("error", ""))
        response = self._answer(method, body)
        _record(method, arguments, body)
        after = self.faults.take(method, "error_after", "timeout_after")
        status = response.status if after is None else _STATUS[after.kind]
        self._note(method, arguments, status, error, at, team_id)
        if after is None:
            return response
        return await self._misbehave(after) or response

    def disturbing(self, name: str, handle: Handle) -> Handle:
        """The handler of another address, under the faults that are armed for this name."""

        async def disturbed(request: web.Request) -> web.StreamResponse:
            before = self.faults.take(name, "rate_limit", "server_error", "timeout", "slow")
            if before is not None and (early := await self._misbehave(before)) is not None:
                return early
            response = await handle(request)
            after = self.faults.take(name, "error_after", "timeout_after")
            return response if after is None else await self._misbehave(after) or response

        return disturbed

    def _note(self, method: str, arguments: Payload, status: int, error: str, at: float, team_id: str) -> None:
        kept = {key: value for key, value in arguments.items() if key != "token"}
        self.calls.append(ApiCall(method=method, arguments=kept, status=status, error=error, at=at, team_id=team_id))

    async def _misbehave(self, fault: Fault) -> web.Response | None:
        match fault.kind:
            case "rate_limit":
                return _rate_limited(max(1, round(fault.seconds)))
            case "server_error" | "error_after":
                return web.Response(status=500, text="Internal Server Error")
            case "slow":
                await asyncio.sleep(fault.seconds)
                return None
            case _:
                self.hanging += 1
                await self.closing.wait()
                return web.Response(status=500)

    def _authorise(self, request: web.Request, method: str, arguments: Payload) -> Workspace | Organisation:
        header = request.headers.get("Authorization", "")
        token = header.removeprefix("Bearer ").strip() or str(arguments.get("token", ""))
        if not token:
            raise Refused("not_authed")
        tenants = self.platform.tenants
        known = METHODS.get(method)
        kinds = {self.settings.app_token: "app", self.settings.configuration_token: "configuration"}
        kind = kinds.get(token, "bot")
        if kind != "bot":
            if known is None or known.caller != kind:
                raise Refused("not_allowed_token_type")
            return next(iter(tenants.workspaces.values()))
        holder = tenants.tokens.get(token) or tenants.organisation_with(token)
        if holder is None:
            raise Refused("account_inactive" if token in tenants.revoked else "invalid_auth")
        if known is not None and known.caller != "bot":
            raise Refused("not_allowed_token_type")
        return holder

    def _run_for_all(
        self, organisation: Organisation, method: str, arguments: Payload, now: float
    ) -> tuple[str, Payload]:
        """The workspace that the call was about, and its answer. Raises Refused."""
        tenants = self.platform.tenants
        if (answer := ORGANISATION_METHODS.get(method)) is not None:
            body = answer(tenants, organisation, arguments)
            return organisation.organisation_id, {"ok": True, **body}
        workspace = tenants.meant(organisation, method, arguments)
        return workspace.team_id, self.run(workspace, method, arguments, now)

    def run(self, workspace: Workspace, method: str, arguments: Payload, now: float) -> Payload:
        """The answer of a call whose token is known. Raises Refused."""
        known = METHODS.get(method)
        if known is None:
            raise Refused("unknown_method", req_method=method)
        channel = str(arguments.get("channel", ""))
        tier = known.tier
        if self.settings.is_history_scarce and method in SCARCE:
            tier = "scarce"
        wait = self.rates.take(workspace.team_id, method, tier, channel, now)
        if wait:
            raise Refused("ratelimited", retry_after=wait)
        self._check(workspace, known, arguments)
        return {"ok": True, **known.run(Call(self.platform, workspace, method, arguments))}

    def _check(self, workspace: Workspace, known: Method, arguments: Payload) -> None:
        granted = self.settings.scopes
        if known.scopes and not any(scope in granted for scope in known.scopes):
            raise missing_scope(workspace, ",".join(known.scopes))
        missing = [name for name in known.required if arguments.get(name) in (None, "")]
        if missing:
            raise Refused(
                "invalid_arguments", messages=tuple(f"[ERROR] missing required field: {name}" for name in missing)
            )

    def _answer(self, method: str, body: Payload) -> web.Response:
        if body.get("error") == "ratelimited":
            return _rate_limited(int(body.pop("retry_after")))
        response = web.json_response(body)
        response.headers["X-OAuth-Scopes"] = ",".join(self.settings.scopes)
        known = METHODS.get(method)
        if known is not None and known.scopes:
            response.headers["X-Accepted-OAuth-Scopes"] = ",".join(known.scopes)
        return response


def _record(method: str, arguments: Payload, body: Payload) -> None:
    if not body.get("ok"):
        record("slack refusal", body)
        return
    sent = {name: value for name, value in arguments.items() if name != "token"}
    record(f"slack {method}: arguments", sent)
    record(f"slack {method}: answer", body)


def _rate_limited(seconds: int) -> web.Response:
    return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(seconds)})
