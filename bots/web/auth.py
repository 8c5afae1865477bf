"""Who may call the API: a bearer token, or, without one, programs on this machine and no web page."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from bots.web.errors import ApiError
from core.domain.errors import ConfigurationError

API_TOKEN: web.AppKey[str] = web.AppKey("token", str)
"""The API token of an application; empty: open, to programs on this machine alone."""
_OF_PROXIES = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")


def is_loopback(host: str) -> bool:
    """Whether the host, as written in a setting or a Host header without port, means this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, api_token: str) -> None:
    """Raises ConfigurationError where the API would be open to other machines without a token."""
    if not api_token and not is_loopback(host):
        raise ConfigurationError(
            f"THREADHAND_HTTP_HOST={host} is reachable from other machines: set THREADHAND_API_TOKEN to a long random"
            " text, or listen on 127.0.0.1."
        )


@web.middleware
async def auth_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Guards `/api` and `/metrics`; the other routes are harmless, or carry a signature of their own."""
    if request.path.startswith("/api/") or request.path == "/metrics":
        token = request.app[API_TOKEN]
        if token:
            _check_token(request, token)
        else:
            _check_local(request)
    return await handler(request)


def _check_token(request: web.Request, token: str) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    is_right = hmac.compare_digest(
        given.strip().encode(errors="replace"), token.encode(errors="replace")
    )
    if scheme.lower() != "bearer" or not is_right:
        raise ApiError(
            401,
            "unauthorized",
            "Send the header `Authorization: Bearer <API token>`.",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _check_local(request: web.Request) -> None:
    """A page in the operator's browser must not reach the open API: by a foreign origin, or a name that an attacker
    points at 127.0.0.1. Nor must strangers behind a proxy of this machine, as far as it says that it is one."""
    host = _host_name(request.headers.get("Host", ""))
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and host_and_port(origin) != request.headers.get("Host")
    is_cross_site = request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
    is_carried = any(name in request.headers for name in _OF_PROXIES)
    if not is_loopback(host) or is_foreign or is_cross_site or is_carried:
        raise ApiError(
            403,
            "forbidden",
            "Without THREADHAND_API_TOKEN the API answers programs on this machine only, no web pages and no proxies.",
        )


def host_and_port(address: str) -> str:
    """Host and port of an address or an origin; empty where it has none."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return ""


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
