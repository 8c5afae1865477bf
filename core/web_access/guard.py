"""Restricts the connections that the host makes for a model to addresses of the public internet."""

import errno
import socket
from asyncio import Semaphore, get_running_loop, shield
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp import TCPConnector, hdrs
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from core.domain.errors import ToolError
from core.web_access.forward_proxy import ForwardProxy

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
SCHEMES = ("http", "https")
URL_CHARACTERS_MAX = 4096
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_LOOKUPS = ThreadPoolExecutor(128, thread_name_prefix="name lookup")
"""Threads that resolve the names which models and sandboxes choose. They are separate, so that a slow name server
delays nothing else in the program, and so many that it does not delay other sandboxes. A thread is started only if all
others are busy."""

# private or special addresses that `is_global` accepts in some or all versions of Python, and the metadata service of
# Azure, 168.63.129.16, whose address is public
_REFUSED_4 = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "240.0.0.0/4")))
_GLOBAL_6 = IPv6Network("2000::/3")
_REFUSED_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")


class RefusedAddress(OSError):
    """Raised if the guard refuses to connect. The message is always the same, to reveal nothing about the target."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "not an address of the public internet")


def is_refused_address(address: IPAddress | str) -> bool:
    """Returns whether connections to the address are refused, because it is invalid or not an ordinary public address.

    Refused are this machine, its network, metadata services, multicast, reserved ranges, and the IPv6 forms of these
    IPv4 addresses.
    """
    try:
        known = ip_address(address)
    except ValueError:
        return True
    if isinstance(known, IPv6Address):
        if (plain := unmapped_address(known)) != known:
            return is_refused_address(plain)
        if known not in _GLOBAL_6 or any(known in one for one in _REFUSED_6):
            return True
        return not known.is_global
    return not known.is_global or known.is_multicast or any(known in one for one in _REFUSED_4)


def unmapped_address(address: IPAddress) -> IPAddress:
    """Returns the IPv4 address that an IPv6 address leads to (mapped or NAT64), or else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def is_own_address(address: IPAddress) -> bool:
    """Returns whether packets to the address stay on this machine, whichever interface has it.

    Asks the kernel's routing table by connecting a datagram socket, which sends nothing. If packets stay here, their
    source is the same as their target. Unlike a list of interfaces, the routing table cannot be out of date. Raises
    OSError if no socket can be opened."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False  # without a route, no connection gets there either
        source = ip_address(probe.getsockname()[0])
    return source == address or source.is_loopback


def _look_up(host: str, port: int, family: int = 0, flags: int = 0) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags)
    return [
        ResolveResult(hostname=host, host=str(to[0]), port=port, family=kind, proto=proto, flags=_NUMERIC)
        for kind, _, proto, _, to in found
    ]


class _Resolver(AbstractResolver):
    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        loop, flags = get_running_loop(), int(socket.AI_ADDRCONFIG)
        return await loop.run_in_executor(_LOOKUPS, _look_up, host, port, family, flags)

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Allows connections to public addresses of other machines only.

    `allowed` lists exempt pairs of address and port, for tests. `refused` are further networks that lead to this
    machine or its surroundings, such as the address of a load balancer in front of it. With a `proxy`, connections are
    made through it, to the same addresses.
    """

    allowed: frozenset[tuple[str, int]] = frozenset()
    refused: tuple[IPNetwork, ...] = ()
    is_own: Callable[[IPAddress], bool] = is_own_address
    proxy: ForwardProxy | None = None

    def permits(self, address: str, port: int) -> bool:
        if (address, port) in self.allowed:
            return True
        if is_refused_address(address):
            return False
        target = unmapped_address(ip_address(address))
        return not any(target in network for network in self.refused) and not self.is_own(target)

    def connector(self) -> TCPConnector:
        """Returns a connector that checks the actual address of each connection, which defeats DNS rebinding. With a
        proxy, the only connection is that to the proxy."""
        if self.proxy is not None:
            return TCPConnector(force_close=True)
        return TCPConnector(socket_factory=self._socket, resolver=_Resolver(), use_dns_cache=False, force_close=True)

    def _socket(self, info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        family, kind, protocol, _, (address, port, *_) = info
        if not self.permits(str(address), int(str(port))):
            raise RefusedAddress
        return socket.socket(family, kind, protocol)

    async def request_options(self, url: URL) -> tuple[URL, dict[str, Any]]:
        """Returns the URL to request with a session on `connector`, and further arguments of the request.

        A proxy gets an address that was checked instead of the name, because it would look the name up again. Raises as
        `addresses` does."""
        if self.proxy is None:
            return url, {}
        host = url.host or ""
        (address, *_) = await self.resolve_host(host, url.port or 0)
        name = {hdrs.HOST: url.authority}
        if url.scheme == "http":  # such a request goes to the proxy itself
            return url.with_host(address), {"proxy": self.proxy.url, "headers": {**name, **self.proxy.headers}}
        tunnel = {"proxy": self.proxy.url, "proxy_headers": self.proxy.headers, "server_hostname": host}
        return url.with_host(address), {**tunnel, "headers": name}

    async def resolve_host(self, host: str, port: int, slots: Semaphore | None = None) -> tuple[str, ...]:
        """Resolves the host and returns its permitted addresses. Connect to these; do not resolve the name again.

        A lookup occupies one of the `slots` until its thread has ended, even if the caller no longer waits. Raises
        RefusedAddress if no address is permitted, and OSError if the name is unknown."""
        held = slots or Semaphore()
        await held.acquire()
        lookup = get_running_loop().run_in_executor(_LOOKUPS, _look_up, host, port)
        lookup.add_done_callback(lambda _: held.release())
        named = dict.fromkeys(one["host"] for one in await shield(lookup))
        permitted = tuple(address for address in named if self.permits(address, port))
        if not permitted:
            raise RefusedAddress
        return permitted


def parse_web_url(text: str) -> URL:
    """Parses the URL of a page. Raises ToolError unless it is http or https without credentials."""
    try:
        url = URL(text.strip())
        host, port = url.host, url.port
    except ValueError as error:
        raise ToolError(f"{text[:200]} is no valid URL. Give one that begins with https://.") from error
    if len(text) > URL_CHARACTERS_MAX:
        raise ToolError(f"The URL is longer than {URL_CHARACTERS_MAX} characters.")
    if url.scheme not in SCHEMES or not host or not port:
        raise ToolError(f"{text[:200]} is no web address. Give one that begins with https://.")
    if url.user is not None or url.password is not None:
        raise ToolError("A URL with a user name or a password in it is not opened. Leave them out.")
    return url.with_fragment(None)


def is_loopback(url: URL) -> bool:
    """Returns whether the URL points to this machine."""
    host = url.host or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
