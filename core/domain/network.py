"""Decides which hosts the programs of a sandbox may reach, by the rule for calls (`core.domain.call_consent`)."""

from dataclasses import dataclass

from core.domain.call_consent import Reach
from core.domain.call_targets import HOST, is_local, normalize_target
from core.domain.sources import Sources


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """The hosts that the programs of a sandbox may reach, as values of `core.domain.call_targets`. None means any host.

    `commands` applies to all programs except the browser. Pages load images and scripts from hosts that nobody names,
    so `browser` is None unless the browser shows a page of the sandbox, which a command may have written."""

    commands: frozenset[str] | None = None
    browser: frozenset[str] | None = None


ANY_HOST = NetworkLimits()
OWN_PAGE = "own page"
"""Stands in the set of opened hosts for a page of the sandbox, which may still be open in the browser."""


def limit_network(call: Reach, sources: Sources, opened: frozenset[str]) -> NetworkLimits:
    """Returns which hosts programs and the browser may reach during a call: any host, unless the model had read
    something from outside when it wrote the call. `opened` are the hosts that earlier calls of the run have opened
    (`opened_hosts`)."""
    if not sources.outside:
        return ANY_HOST
    named = frozenset(value for value in sources.named if value.startswith(HOST))
    opened |= hosts_opened_by(call)
    commands = named | (opened - {OWN_PAGE})
    has_own_page = any(source.kind == "browser" and is_local(source.name) for source in sources.read)
    return NetworkLimits(commands, commands | _hosts(call) if has_own_page or OWN_PAGE in opened else None)


def hosts_opened_by(call: Reach) -> frozenset[str]:
    """Returns the hosts to which programs may send data now that this call was allowed, or OWN_PAGE."""
    if call.moves_page:
        return frozenset({OWN_PAGE} if any(map(is_local, call.targets)) else ())
    return _hosts(call) if call.kind == "connects" else frozenset()


def _hosts(call: Reach) -> frozenset[str]:
    return frozenset(value for value in map(normalize_target, call.targets) if value.startswith(HOST))
