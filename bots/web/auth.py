"""Access control of the API. Without an API token, only local programs have access, but no web pages or proxies."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from bots.web.errors import ApiError
from core.domain.errors import ConfigurationError

API_TOKEN: web.AppKey[str] = web.AppKey("token", str)
"""The API token of the application. If it is empty, only programs on this machine have access to the API."""
LOCAL_ONLY = "Without THREADHAND_API_TOKEN the API answers programs on this machine only, no web pages and no proxies."
_PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")


def is_loopback_host(host: str) -> bool:
    """Whether `host` is `localhost` or a loopback address. Pass the host without a port."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, api_token: str) -> None:
    """Raises ConfigurationError if other machines could reach the API without a token."""
    if not api_token and not is_loopback_host(host):
        raise ConfigurationError(
            f"THREADHAND_HTTP_HOST={host} is reachable from other machines: set THREADHAND_API_TOKEN to a long random"
            " text, or listen on 127.0.0.1."
        )


@web.middleware
async def api_access_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Checks access to `/api` and `/metrics`. All other routes are public or use signed URLs."""
    if request.path.startswith("/api/") or request.path == "/metrics":
        token = request.app[API_TOKEN]
        if token:
            scheme, _, given_token = request.headers.get("Authorization", "").partition(" ")
            is_right = hmac.compare_digest(given_token.strip().encode(errors="replace"), token.encode(errors="replace"))
            if scheme.lower() != "bearer" or not is_right:
                raise ApiError(
                    401,
                    "unauthorized",
                    "Send the header `Authorization: Bearer <API token>`.",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        else:
            # A page in the operator's browser must not reach the API, neither from another origin nor by DNS rebinding.
            # Other machines must not reach it through a local proxy that adds forwarding headers.
            host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
            is_foreign = origin is not None and not is_same_host(origin, host)
            is_cross_site = request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
            is_proxied = any(name in request.headers for name in _PROXY_HEADERS)
            if not is_loopback_host(_host_name(host)) or is_foreign or is_cross_site or is_proxied:
                raise ApiError(403, "forbidden", LOCAL_ONLY)
    return await handler(request)


def host_and_port(address: str) -> str:
    """Returns the host in lower case and the port of a URL or origin, or an empty string if it has no host."""
    try:
        split = urlsplit(address)
        port = split.port or {"https": 443, "wss": 443}.get(split.scheme, 80)
        return f"{split.hostname}:{port}" if split.hostname else ""
    except ValueError:
        return ""


def is_same_host(origin: str, host: str) -> bool:
    """Whether the origin belongs to pages on the host that a `Host` header names."""
    scheme = origin.partition("://")[0]
    return bool(host) and host_and_port(origin) == host_and_port(f"{scheme}://{host}")


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
