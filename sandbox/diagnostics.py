"""What is said where the disk of the sandboxes has no room left."""

import errno

from core.domain.errors import SandboxUnavailable

FULL_DISK_MESSAGE = "The disk for sandboxes is full; whoever runs this bot has to make room."
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def sandbox_unavailable(error: OSError, otherwise: str, *, doing: str = "") -> SandboxUnavailable:
    """The error in our words: `otherwise`, unless a full disk was the cause. `doing` is for the operator."""
    public = FULL_DISK_MESSAGE if error.errno in _FULL else otherwise
    return SandboxUnavailable(public, detail=f"{doing}: {error}" if doing else str(error))
