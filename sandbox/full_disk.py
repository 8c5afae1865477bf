"""What is said where the disk of the sandboxes has no room left."""

import errno

from core.domain.errors import SandboxUnavailable

FULL_DISK = "The disk for sandboxes is full; whoever runs this bot has to make room."
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def not_had(error: OSError, otherwise: str, *, doing: str = "") -> SandboxUnavailable:
    """The error in our words: `otherwise`, unless a full disk was the cause. `doing` is for the operator."""
    public = FULL_DISK if error.errno in _FULL else otherwise
    return SandboxUnavailable(public, detail=f"{doing}: {error}" if doing else str(error))
