"""Configuration of Modal sandboxes: app, size, network and lifetime, and their names and tags."""

import hashlib
import re
from dataclasses import dataclass, field
from ipaddress import ip_network

from core.web_access.forward_proxy import ForwardProxy
from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.limits import SandboxLimits

LIFETIME_SECONDS = 24 * 3600
"""Modal's maximum."""
NAME_CHARACTERS_MAX = 63
NOT_LEGAL = re.compile(r"[^A-Za-z0-9._-]")
THREAD_TAG = "threadhand-thread"
BORN_TAG = "threadhand-born"
HOME_TAG = "threadhand-home"
LOSS_TAG = "threadhand-loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """Network arguments for the SDK. None allows everything, unless the network is blocked."""

    is_blocked: bool = False
    networks: list[str] | None = None
    names: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalConfig:
    """`cpu` (cores) and `memory_mebibytes` are pairs of the reserved and the maximum amount.

    `home` distinguishes the sandboxes of one database from those of another in the same app. `egress`: host names (`*.`
    for all subdomains) or networks; empty: no network; ("*",): the whole internet. `idle_timeout_seconds` is enforced
    by Modal, if no process of ours is left to do it. `snapshot_days` 0: no expiry. `is_left_running`: a sandbox
    outlives the process that opened it, and a janitor elsewhere stops it."""

    app: str = "threadhand-sandboxes"
    home: str = ""
    cpu: tuple[float, float] = (0.5, 2.0)
    memory_mebibytes: tuple[int, int] = (512, 4096)
    egress: tuple[str, ...] = ()
    browser_proxy: ForwardProxy | None = None
    start_seconds: float = 60
    snapshot_seconds: float = 300
    snapshot_days: int = 30
    silence_seconds: float = 300
    is_left_running: bool = False
    idle_timeout_seconds: int = 1200
    lifecycle_policy: LifecyclePolicy = field(
        default_factory=lambda: LifecyclePolicy(lifetime_seconds=LIFETIME_SECONDS)
    )
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    @property
    def snapshot_ttl_seconds(self) -> int | None:
        return self.snapshot_days * 24 * 3600 or None

    def rlimits(self) -> dict[str, int]:
        """Returns the limits to set per process. Modal itself limits memory and the number of processes."""
        return {"RLIMIT_NOFILE": self.limits.open_files, "RLIMIT_FSIZE": self.limits.file_bytes, "RLIMIT_CORE": 0}

    def network(self) -> NetworkRules:
        """Returns the SDK arguments for `egress`, with its networks and host names separated."""
        if not self.egress or "*" in self.egress:
            return NetworkRules(is_blocked=not self.egress)
        networks = [place for place in self.egress if is_network(place)]
        names = [place for place in self.egress if not is_network(place)]
        return NetworkRules(networks=networks or None, names=names or None)

    def tags(self, thread_id: str) -> dict[str, str]:
        home = {HOME_TAG: legal_name(self.home)} if self.home else {}
        return {THREAD_TAG: legal_name(thread_id), **home}


def legal_name(text: str) -> str:
    """Returns the text if Modal accepts it as a name or tag, else a shortened form with a hash."""
    if 0 < len(text) <= NAME_CHARACTERS_MAX and not NOT_LEGAL.search(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{NOT_LEGAL.sub('-', text)[: NAME_CHARACTERS_MAX - 21]}-{digest}"


def sandbox_name(thread_id: str, *, after: str, attempt: int = 1) -> str:
    """Returns the name of the thread's next sandbox, which never looks like one of Modal's ids.

    Modal gives up a name only when its sandbox has ended, up to 35 s after it was terminated, so each has its own. It
    follows from `after`, the id of the sandbox before, so that processes that create one at the same time collide."""
    life = hashlib.sha256(f"{after} {attempt}".encode()).hexdigest()[:8]
    return legal_name(f"thread.{thread_id}.{life}")


def is_network(place: str) -> bool:
    try:
        ip_network(place)
    except ValueError:
        return False
    return True
