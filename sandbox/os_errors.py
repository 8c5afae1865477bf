"""Errors for a sandbox that cannot be used because the disk is full or the operating system refuses."""

import errno

from core.domain.errors import SandboxesBusy, SandboxUnavailable

FULL_DISK_MESSAGE = "The disk for sandboxes is full; ask the operator of this bot to free some space."
TOO_FEW_RESOURCES = "This machine cannot run another sandbox right now. Try again in a few minutes."
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def sandbox_unavailable(error: OSError, otherwise: str, *, doing: str = "") -> SandboxUnavailable:
    """Converts an OSError.

    The public message is `otherwise`, or that the disk is full; `doing` goes into the detail."""
    detail = f"{doing}: {error}" if doing else str(error)
    if error.errno in _PASSING:
        return SandboxesBusy(TOO_FEW_RESOURCES, detail=detail)
    public = FULL_DISK_MESSAGE if error.errno in _FULL else otherwise
    return SandboxUnavailable(public, detail=detail)
