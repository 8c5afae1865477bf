"""Stores which hosts the jail of a thread may reach, and whether it has reached any. This is in files beside its
workspace, because another process may run the jail."""

import json
from contextlib import suppress
from pathlib import Path
from typing import cast

from core.domain.network import ANY_HOST, NetworkLimits

REFUSED_BYTES_MAX = 10_000
NOBODY = NetworkLimits(frozenset(), frozenset())


class ThreadNetwork:
    """Satisfies `sandbox.client.sandbox_client.Network`. `home` is the thread's folder, which the jail cannot see."""

    def __init__(self, home: Path) -> None:
        self._limits_file = home / "network"
        self._refused_file = home / "refused-hosts"
        self._fetched_file = home / "fetched"

    @property
    def has_fetched(self) -> bool:
        """Whether a connection to a host was ever opened, because the files can keep what it brought. A file that
        cannot be looked for counts as there."""
        try:
            self._fetched_file.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def record_connection(self) -> None:
        """Raises OSError. The connection must not be used then."""
        self._fetched_file.touch()

    def store_limits(self, limits: NetworkLimits) -> None:
        """Stores which hosts may be reached, for the process that runs the jail. Raises OSError."""
        if limits == self.limits():
            return
        if limits == ANY_HOST:
            self._limits_file.unlink(missing_ok=True)
            return
        self._limits_file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._limits_file.with_name("network-draft")
        draft.write_text(json.dumps({"commands": _stored(limits.commands), "browser": _stored(limits.browser)}))
        draft.rename(self._limits_file)

    def limits(self) -> NetworkLimits:
        """Returns the limits that were stored last. If they cannot be read, no host may be reached."""
        try:
            stored: object = json.loads(self._limits_file.read_bytes())
        except FileNotFoundError:
            return ANY_HOST
        except (OSError, ValueError, RecursionError):
            return NOBODY
        fields = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
        return NetworkLimits(_hosts(fields.get("commands", ())), _hosts(fields.get("browser", ())))

    def record_refusal(self, host: str) -> None:
        with suppress(OSError), self._refused_file.open("a") as file:  # only the model's note is lost
            if file.tell() < REFUSED_BYTES_MAX:
                file.write(f"{host}\n")

    def take_refused_hosts(self) -> tuple[str, ...]:
        """Returns the hosts that were refused since the last call, each once."""
        try:
            hosts = self._refused_file.read_text("utf-8", "replace").split()
            self._refused_file.unlink(missing_ok=True)
        except OSError:
            return ()
        return tuple(dict.fromkeys(hosts))


def _stored(hosts: frozenset[str] | None) -> list[str] | None:
    return None if hosts is None else sorted(hosts)


def _hosts(stored: object) -> frozenset[str] | None:
    if stored is None:
        return None
    return frozenset(map(str, cast("list[object]", stored))) if isinstance(stored, list) else frozenset()
