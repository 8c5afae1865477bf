"""Which hosts a sandbox may reach, and the limits of its connections."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from core.web_access.guard import AddressGuard, IPAddress, unmapped_address

GIBIBYTE = 1 << 30
NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
MAIL_PORTS = frozenset((25, 465, 587, 2525))
"""Always denied, so that a sandbox cannot send spam."""
CHROMIUM_SERVICE_HOSTS = (
    "android.clients.google.com", "clients1.google.com", "clients2.google.com",
    "clientservices.googleapis.com", "content-autofill.googleapis.com", "edgedl.me.gvt1.com", "mtalk.google.com",
    "optimizationguide-pa.googleapis.com", "redirector.gvt1.com", "safebrowsing.googleapis.com",
    "update.googleapis.com",
)  # fmt: skip
"""Hosts that Chromium contacts by itself; no page needs them."""
PACKAGE_HOSTS = ("deb.debian.org", "files.pythonhosted.org", "pypi.org", "security.debian.org")
"""Hosts from which packages are installed. They accept no data that others could read, so no consent is needed. A
package that runs is limited like any other program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Host names (`*.` matches all subdomains) and addresses; `*` matches everything. Denials take precedence."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = CHROMIUM_SERVICE_HOSTS

    @property
    def is_open(self) -> bool:
        """Whether at least one host is allowed."""
        return bool(self.allowed)

    def permits(self, host: str) -> bool:
        """`host` must be in lower case. Check what it resolves to with `permits_address`."""
        if any(_covers(entry, host) for entry in self.denied):
            return False
        return any(_covers(entry, host) for entry in self.allowed)

    def is_named(self, host: str) -> bool:
        """Returns whether the operator has named the host, or the host only distributes packages."""
        return host in PACKAGE_HOSTS or any(_covers(entry, host) for entry in self.allowed if entry != "*")

    def permits_address(self, address: str) -> bool:
        """Returns whether no entry denies the address to which a host name was resolved."""
        return parse_address(address) not in map(parse_address, self.denied)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Limits of one sandbox: concurrent connections, and per connection its duration, idle time and bytes in both
    directions together. `total_bytes` counts all connections until the sandbox is stopped."""

    connections: int = 64
    seconds: float = 3600.0
    idle_seconds: float = 300.0
    head_seconds: float = 20.0
    connect_seconds: float = 15.0
    bytes: int = 4 * GIBIBYTE
    total_bytes: int = 20 * GIBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConfig:
    """What a sandbox may reach. Connections that `policy` allows must also pass `guard`."""

    policy: EgressPolicy = field(default_factory=EgressPolicy)
    limits: EgressLimits = field(default_factory=EgressLimits)
    guard: AddressGuard = field(default_factory=AddressGuard)


def parse_egress_policy(setting: str) -> EgressPolicy:
    """Parses `on`, `off`, or host names and addresses separated by commas; a leading `!` denies an entry.

    With denials only, everything else is allowed. Raises ValueError with the reason."""
    entries = [part for part in (piece.strip().lower() for piece in setting.split(",")) if part]
    if entries == ["off"]:
        return EgressPolicy()
    denied = [entry[1:].strip() for entry in entries if entry.startswith("!")]
    allowed = [entry for entry in entries if not entry.startswith("!")]
    if not allowed or allowed == ["on"]:
        allowed = ["*"]
    for entry in (*denied, *allowed):
        is_known = entry == "*" or parse_address(entry) is not None or NAME.fullmatch(entry)
        if entry in ("on", "off") or not is_known:
            raise ValueError(f"{entry[:100]} is not a host name such as example.net or *.example.net")
    return EgressPolicy(allowed=tuple(allowed), denied=(*CHROMIUM_SERVICE_HOSTS, *denied))


def parse_address(entry: str) -> IPAddress | None:
    """Returns the address that connections to the entry go to, or None if the entry is a name."""
    with suppress(ValueError):
        return unmapped_address(ip_address(entry))


def _covers(entry: str, host: str) -> bool:
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    return entry in ("*", host)
