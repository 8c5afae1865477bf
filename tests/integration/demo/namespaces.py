"""Starting a program as on a machine that forbids namespaces: behind the system call filter of the jail itself."""

import ctypes
import os
import platform
import sys
from pathlib import Path

from sandbox.local import seccomp

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbidden_here() -> str:
    """Why the filter cannot be used here, if so."""
    if sys.platform != "linux":
        return "this is no Linux"
    return "" if seccomp.is_supported(platform.machine()) else f"no filter for {platform.machine()}"


def without_namespaces() -> tuple[str, ...]:
    """What to put in front of a command."""
    return (sys.executable, str(Path(__file__)))


def main() -> None:
    """Installs the filter, then becomes the command that is given."""
    code = seccomp.build_filter(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    loaded = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0),
    ):
        if libc.prctl(*arguments):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - the command of the test


if __name__ == "__main__":
    main()
