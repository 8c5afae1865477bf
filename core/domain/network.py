"""Says which hosts the programs of a sandbox may reach, by the rule that holds for calls (`core.domain.consent`)."""

from dataclasses import dataclass

from core.domain.consent import Reach
from core.domain.sources import Sources
from core.domain.targets import HOST, is_local, value_of


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """The hosts that the programs of a sandbox may reach, as values of `core.domain.targets`. None means any host.

    `commands` holds for all programs but the browser. Pages of others need hosts that nobody names, for their images
    and scripts. So `browser` is None, unless the browser shows a page of the sandbox, which a command may have
    written."""

    commands: frozenset[str] | None = None
    browser: frozenset[str] | None = None


ANY_HOST = NetworkLimits()


def limit_network(call: Reach, sources: Sources, opened: frozenset[str]) -> NetworkLimits:
    """Returns the limits while a call runs that a model wrote which had read these sources.

    `opened` are the hosts to which earlier calls of the run were allowed to send something."""
    if not sources.outside:
        return ANY_HOST
    named = frozenset(value for value in sources.named if value.startswith(HOST))
    commands = named | opened | opened_hosts(call)
    has_own_page = any(source.kind == "browser" and is_local(source.name) for source in sources.read)
    is_limited = has_own_page or any(map(is_local, call.targets))
    return NetworkLimits(commands, commands | _hosts(call) if is_limited else None)


def opened_hosts(call: Reach) -> frozenset[str]:
    """Returns the hosts to which programs may send something, now that this call was allowed."""
    return _hosts(call) if call.kind == "writes_outside" else frozenset()


def _hosts(call: Reach) -> frozenset[str]:
    return frozenset(value for value in map(value_of, call.targets) if value.startswith(HOST))
