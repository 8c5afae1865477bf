"""What of a request reaches a program in a sandbox, and what of its answer reaches people."""

import re

from aiohttp import ClientResponse, hdrs, web
from multidict import CIMultiDict

from bots.web.ports import PORTS

_OWN_COOKIE = "threadhand"
_BETWEEN_TWO = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "host"),
)
_OF_PROXIES = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip")
_NOT_FOR_INSIDE = frozenset((*_BETWEEN_TWO, *_OF_PROXIES, "cookie", "authorization"))
_NOT_FOR_PEOPLE = frozenset(
    (*_BETWEEN_TWO, "set-cookie", "strict-transport-security", "alt-svc", "clear-site-data")
)
_DOMAIN_OF_COOKIE = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)


def headers_for_inside(request: web.Request, port: int) -> CIMultiDict[str]:
    """Without what is between people and us: our cookies, our token, what proxies add."""
    named = {part.strip().lower() for part in request.headers.get(hdrs.CONNECTION, "").split(",")}
    headers = CIMultiDict(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in _NOT_FOR_INSIDE | named
    )
    if cookies := _foreign_cookies(request.headers.getall(hdrs.COOKIE, [])):
        headers[hdrs.COOKIE] = cookies
    token = request.app[PORTS].api_token
    authorization = request.headers.get(hdrs.AUTHORIZATION, "")
    if authorization and not (token and token in authorization):
        headers[hdrs.AUTHORIZATION] = authorization
    host = request.headers[hdrs.HOST]
    if headers.get(hdrs.ORIGIN, "").partition("://")[2] == host:
        headers[hdrs.ORIGIN] = f"http://localhost:{port}"
    headers[hdrs.HOST] = f"localhost:{port}"
    headers["X-Forwarded-Host"] = host
    headers["X-Forwarded-Proto"] = request.scheme
    return headers


def _foreign_cookies(lines: list[str]) -> str:
    parts = (part.strip() for line in lines for part in line.split(";"))
    return "; ".join(part for part in parts if part and not part.lower().startswith(_OWN_COOKIE))


def headers_for_people(answer: ClientResponse, port: int) -> CIMultiDict[str]:
    """Without power over other names below the domain; the address with its secret label is told to no other site."""
    named = {part.strip().lower() for part in answer.headers.get(hdrs.CONNECTION, "").split(",")}
    headers = CIMultiDict(
        (name, value)
        for name, value in answer.headers.items()
        if name.lower() not in _NOT_FOR_PEOPLE | named
    )
    for cookie in answer.headers.getall(hdrs.SET_COOKIE, []):
        headers.add(hdrs.SET_COOKIE, _DOMAIN_OF_COOKIE.sub("", cookie))
    if target := headers.get(hdrs.LOCATION):
        headers[hdrs.LOCATION] = (
            re.sub(rf"^https?://(localhost|127\.0\.0\.1):{port}(?=[/?#]|$)", "", target) or "/"
        )
    headers.setdefault("Referrer-Policy", "same-origin")
    return headers
