"""What of a request reaches a program in a sandbox, and what of its answer reaches people."""

import re
from collections.abc import Iterable

from aiohttp import ClientResponse, hdrs, web

from bots.web.deps import PORTS

Headers = list[tuple[str, str]]
_OWN_COOKIE = "threadhand"
_BETWEEN_TWO = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "host"),
)
_OF_PROXIES = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip")
_NOT_FOR_INSIDE = frozenset((*_BETWEEN_TWO, *_OF_PROXIES, "cookie", "authorization", "origin"))
_NOT_FOR_PEOPLE = frozenset(
    (
        *(*_BETWEEN_TWO, "set-cookie", "location"),
        *("strict-transport-security", "alt-svc", "clear-site-data"),
    )
)
_DOMAIN_OF_COOKIE = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_REFERRER = "Referrer-Policy"


def headers_for_inside(request: web.Request, port: int) -> Headers:
    """Without what is between people and us: our cookies, our token, what proxies add."""
    given, host = request.headers, request.headers[hdrs.HOST]
    headers = _without(given.items(), _NOT_FOR_INSIDE, given.get(hdrs.CONNECTION, ""))
    headers.append((hdrs.HOST, f"localhost:{port}"))
    if cookies := _foreign_cookies(given.getall(hdrs.COOKIE, [])):
        headers.append((hdrs.COOKIE, cookies))
    token, authorization = request.app[PORTS].api_token, given.get(hdrs.AUTHORIZATION, "")
    if authorization and not (token and token in authorization):
        headers.append((hdrs.AUTHORIZATION, authorization))
    if origin := given.get(hdrs.ORIGIN):
        is_own = origin.partition("://")[2] == host
        headers.append((hdrs.ORIGIN, f"http://localhost:{port}" if is_own else origin))
    return [*headers, ("X-Forwarded-Host", host), ("X-Forwarded-Proto", request.scheme)]


def headers_for_people(answer: ClientResponse, port: int) -> Headers:
    """Without power over other names below the domain; the address with its secret label is told to no other site."""
    given = answer.headers
    headers = _without(given.items(), _NOT_FOR_PEOPLE, given.get(hdrs.CONNECTION, ""))
    for cookie in given.getall(hdrs.SET_COOKIE, []):
        headers.append((hdrs.SET_COOKIE, _DOMAIN_OF_COOKIE.sub("", cookie)))
    if target := given.get(hdrs.LOCATION):
        own = rf"^https?://(localhost|127\.0\.0\.1):{port}(?=[/?#]|$)"
        headers.append((hdrs.LOCATION, re.sub(own, "", target) or "/"))
    if _REFERRER not in given:
        headers.append((_REFERRER, "same-origin"))
    return headers


def _without(
    headers: Iterable[tuple[str, str]], unwanted: frozenset[str], connection: str
) -> Headers:
    """`connection` is the header of that name, which names more that is between two."""
    named = unwanted.union(part.strip().lower() for part in connection.split(","))
    return [(name, value) for name, value in headers if name.lower() not in named]


def _foreign_cookies(lines: list[str]) -> str:
    parts = (part.strip() for line in lines for part in line.split(";"))
    return "; ".join(part for part in parts if part and not part.lower().startswith(_OWN_COOKIE))
