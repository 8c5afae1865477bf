"""What a program in a sandbox asks of the proxy: the head of its request, checked, and as it is passed on."""

import re
from dataclasses import dataclass

HEADERS_MAX = 200
REQUEST_LINE = re.compile(r"([A-Za-z]{1,20}) ([!-~]{1,16000}) HTTP/1\.([01])")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}):[ \t]*([^\x00\r\n]*)")
AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253}))(?::([0-9]{1,5}))?")
OF_THE_PROXY = frozenset(
    (b"connection", b"host", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te")
)  # fmt: skip


class Refused(Exception):
    """The request is not carried out; the text goes back to the program inside."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    """`head` is sent on to the host; empty for a tunnel, whose bytes are nobody's business."""

    host: str
    port: int
    head: bytes = b""

    @property
    def is_tunnel(self) -> bool:
        return not self.head


def parsed(head: bytes) -> ProxyRequest:
    """Of the bytes up to and with the empty line. Raises Refused."""
    line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matched = REQUEST_LINE.fullmatch(line.decode("latin-1"))
    if matched is None or len(headers) > HEADERS_MAX:
        raise Refused(400, "This is no request that the proxy understands.")
    method, target = matched[1].upper(), matched[2]
    if method == "CONNECT":
        host, port = _place(target, None)
        return ProxyRequest(host=host, port=port)
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise Refused(400, "This proxy takes CONNECT, and addresses that begin with http://.")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :].partition("#")[0]
    host, port = _place(authority, 80)
    path = path if path.startswith("/") else f"/{path}"
    first = f"{method} {path} HTTP/1.{matched[3]}\r\nHost: {authority}\r\n".encode("latin-1")
    return ProxyRequest(
        host=host, port=port, head=first + _passed_on(headers) + b"Connection: close\r\n\r\n"
    )


def _place(authority: str, default_port: int | None) -> tuple[str, int]:
    matched = AUTHORITY.fullmatch(authority)
    if matched is None or (matched[3] is None and default_port is None):
        raise Refused(400, "This is no name of a host with a port.")
    port = int(matched[3]) if matched[3] else default_port
    if not port or port > 65_535:
        raise Refused(400, "There is no such port.")
    return (matched[1] or matched[2]).lower().rstrip("."), port


def _passed_on(lines: list[bytes]) -> bytes:
    """The headers that are meant for the host, each on a line of its own."""
    named: list[tuple[bytes, bytes]] = []
    for line in lines:
        matched = HEADER_LINE.fullmatch(line)
        if matched is None:
            raise Refused(400, "The headers of the request are malformed.")
        named.append((matched[1].lower(), line))
    dropped: set[bytes] = set(OF_THE_PROXY)
    for name, line in named:
        if name == b"connection":
            dropped.update(part.strip().lower() for part in line.partition(b":")[2].split(b","))
    dropped -= {b"content-length", b"transfer-encoding"}  # they say where the body ends
    return b"".join(line + b"\r\n" for name, line in named if name not in dropped)
