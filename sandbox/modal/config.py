"""What a Modal sandbox is to be: its app, size, network and life, and the names it goes by."""

import hashlib
import re
from dataclasses import dataclass, field
from ipaddress import ip_network

from sandbox.lifecycle import LifecyclePolicy
from sandbox.limits import SandboxLimits

LIFETIME_SECONDS = 24 * 3600
"""The most that Modal gives."""
NAME_CHARACTERS_MAX = 63
NOT_LEGAL = re.compile(r"[^A-Za-z0-9._-]")
THREAD_TAG = "threadhand-thread"
BORN_TAG = "threadhand-born"
HOME_TAG = "threadhand-home"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """What the SDK is told: None allows all, unless the whole is blocked."""

    is_blocked: bool = False
    networks: list[str] | None = None
    names: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalConfig:
    """`cpu` (cores) and `memory_mebibytes` are what is reserved and what may be used at most.

    `home` tells the sandboxes of one database from those of another in the same app.
    `egress`: names of hosts, with `*.` for all below, or networks; empty: no network at all; ("*",): all of it.
    `idle_timeout_seconds` is Modal's own, the last resort when no program of ours lives; `snapshot_days` 0: for ever.
    """

    app: str = "threadhand"
    home: str = ""
    cpu: tuple[float, float] = (0.5, 2.0)
    memory_mebibytes: tuple[int, int] = (512, 4096)
    egress: tuple[str, ...] = ()
    start_seconds: float = 60
    snapshot_seconds: float = 300
    snapshot_days: int = 30
    silence_seconds: float = 300
    idle_timeout_seconds: int = 1200
    patience: LifecyclePolicy = field(
        default_factory=lambda: LifecyclePolicy(lifetime_seconds=LIFETIME_SECONDS)
    )
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    @property
    def snapshot_ttl_seconds(self) -> int | None:
        return self.snapshot_days * 24 * 3600 or None

    def limits_inside(self) -> dict[str, int]:
        """Memory and processes are Modal's to limit."""
        return {
            "RLIMIT_NOFILE": self.limits.open_files,
            "RLIMIT_FSIZE": self.limits.file_bytes,
            "RLIMIT_CORE": 0,
        }

    def network(self) -> NetworkRules:
        """Networks are told from names by their shape."""
        if not self.egress or "*" in self.egress:
            return NetworkRules(is_blocked=not self.egress)
        networks = [place for place in self.egress if is_network(place)]
        names = [place for place in self.egress if not is_network(place)]
        return NetworkRules(networks=networks or None, names=names or None)

    def tags(self, thread_id: str, *, born_at: float) -> dict[str, str]:
        home = {HOME_TAG: legal_name(self.home)} if self.home else {}
        return {THREAD_TAG: legal_name(thread_id), BORN_TAG: f"{born_at:.0f}", **home}


def legal_name(text: str) -> str:
    """The text where Modal takes it as a name or tag, else one that is as good as unique to it."""
    if 0 < len(text) <= NAME_CHARACTERS_MAX and not NOT_LEGAL.search(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{NOT_LEGAL.sub('-', text)[: NAME_CHARACTERS_MAX - 21]}-{digest}"


def sandbox_name(thread_id: str) -> str:
    """One per thread, and never shaped like an id of Modal's own."""
    return legal_name(f"thread.{thread_id}")


def is_network(place: str) -> bool:
    try:
        ip_network(place)
    except ValueError:
        return False
    return True
