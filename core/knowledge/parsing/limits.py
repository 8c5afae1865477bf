"""What keeps a hostile document inside the child process: limits of the system, and calls that are shut off."""

import os
import resource
import sys
from contextlib import suppress

from core.knowledge.document import ParseLimits

_SHUT_OFF = frozenset(
    (
        "socket.connect",
        "socket.bind",
        "socket.sendto",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
    )
)


def confine(limits: ParseLimits) -> None:
    """For the rest of this process's life. A limit that the system does not know is left to the parent's clock."""
    soft = limits.cpu_seconds_max
    for kind, value in (
        (resource.RLIMIT_CPU, (soft, soft + 5)),
        (resource.RLIMIT_AS, (limits.memory_bytes_max, limits.memory_bytes_max)),
        (resource.RLIMIT_FSIZE, (0, 0)),
        (resource.RLIMIT_CORE, (0, 0)),
    ):
        # macOS refuses RLIMIT_AS; a lower hard limit that holds already is as good
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, value)
    sys.addaudithook(_shut_off)


def _shut_off(event: str, arguments: tuple[object, ...]) -> None:
    if event in _SHUT_OFF or (event == "open" and _writes(arguments[2])):
        raise PermissionError(f"{event} is shut off here")


def _writes(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
