"""Which places on the internet a sandbox may reach, and how much through one connection."""

import re
from dataclasses import dataclass, field
from ipaddress import ip_address

from core.web_access.guard import AddressGuard

GIBIBYTE = 1 << 30
NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
MAIL_PORTS = frozenset((25, 465, 587, 2525))
"""Nobody needs them to fetch something, and a sandbox that sends mail makes enemies."""
CHROMIUM_SERVICE_HOSTS = (
    "android.clients.google.com", "clients1.google.com", "clients2.google.com",
    "clientservices.googleapis.com", "content-autofill.googleapis.com", "edgedl.me.gvt1.com", "mtalk.google.com",
    "optimizationguide-pa.googleapis.com", "redirector.gvt1.com", "safebrowsing.googleapis.com",
    "update.googleapis.com",
)  # fmt: skip
"""Where Chromium reports to by itself; no page needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Names of hosts, `*.` standing for all below, and addresses; `*` is everything. What is denied stays so."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = CHROMIUM_SERVICE_HOSTS

    @property
    def is_open(self) -> bool:
        """Whether anything at all can be reached."""
        return bool(self.allowed)

    def permits(self, host: str) -> bool:
        """`host` in lower case. Says nothing of the address that it leads to."""
        if any(_covers(entry, host) for entry in self.denied):
            return False
        return any(_covers(entry, host) for entry in self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Of one sandbox: connections at a time, and for each of them its time, its silence and its bytes, both ways
    together; `total_bytes` is for all connections until the sandbox is stopped."""

    connections: int = 64
    seconds: float = 3600.0
    idle_seconds: float = 300.0
    head_seconds: float = 20.0
    connect_seconds: float = 15.0
    bytes: int = 4 * GIBIBYTE
    total_bytes: int = 20 * GIBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConfig:
    """What a sandbox may do outside; the guard has the last word on each address."""

    policy: EgressPolicy = field(default_factory=EgressPolicy)
    limits: EgressLimits = field(default_factory=EgressLimits)
    guard: AddressGuard = field(default_factory=AddressGuard)


def parse_egress_policy(setting: str) -> EgressPolicy:
    """`on`, `off`, or names and addresses separated by commas; a `!` before one denies it.

    Denials alone leave the rest open. Raises ValueError with what is wrong.
    """
    entries = [part for part in (piece.strip().lower() for piece in setting.split(",")) if part]
    if entries == ["off"]:
        return EgressPolicy()
    denied = [entry[1:].strip() for entry in entries if entry.startswith("!")]
    allowed = [entry for entry in entries if not entry.startswith("!")]
    if not allowed or allowed == ["on"]:
        allowed = ["*"]
    for entry in (*denied, *allowed):
        if entry in ("on", "off") or not (entry == "*" or is_host_or_address(entry)):
            raise ValueError(
                f"{entry[:100]} is no name of a host such as example.net or *.example.net"
            )
    return EgressPolicy(allowed=tuple(allowed), denied=(*CHROMIUM_SERVICE_HOSTS, *denied))


def is_host_or_address(entry: str) -> bool:
    try:
        ip_address(entry)
    except ValueError:
        return NAME.fullmatch(entry) is not None
    return True


def _covers(entry: str, host: str) -> bool:
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    return entry in ("*", host)
