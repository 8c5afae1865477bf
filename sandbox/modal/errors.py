"""What the Modal SDK raises, as the errors of the product: one table."""

import grpclib
import grpclib.exceptions
import modal.exception

from core.domain.errors import SandboxUnavailable

SDK_ERRORS: tuple[type[Exception], ...] = (
    modal.exception.Error,
    grpclib.GRPCError,
    grpclib.exceptions.StreamTerminatedError,
    OSError,
    TimeoutError,
)
"""All that a call of the SDK may raise when Modal, or the way there, is at fault."""
GONE = (modal.exception.NotFoundError, modal.exception.ConflictError, modal.exception.ClientClosed)
"""The sandbox, snapshot or handle that a call was about is not there any more."""

TOLD = "The operator has to look at it."
NO_ANSWER = "The service that runs sandboxes does not answer. Try again in a few minutes."
_TABLE: tuple[tuple[type[Exception], str, str], ...] = (
    (
        modal.exception.AuthError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "Modal refuses the token: check MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
    ),
    (
        modal.exception.PermissionDeniedError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "the Modal token may not do this: check its rights and MODAL_ENVIRONMENT",
    ),
    (
        modal.exception.ResourceExhaustedError,
        "There is no room for another sandbox just now. Try again in a few minutes.",
        "a limit of the Modal workspace is reached: end sandboxes, or raise the plan's limit",
    ),
    (
        modal.exception.ImageBuildError,
        f"The sandbox cannot be made here. {TOLD}",
        "Modal could not build the image of sandboxes: look at the build's log in its dashboard",
    ),
    (
        modal.exception.VersionError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "Modal does not take this version of its SDK: update Threadhand",
    ),
    (
        modal.exception.InvalidError,
        f"The sandbox cannot be made here. {TOLD}",
        "Modal refuses the request: check the THREADHAND_MODAL settings",
    ),
    (modal.exception.ConnectionError, NO_ANSWER, "Modal cannot be reached"),
    (modal.exception.ServiceError, NO_ANSWER, "Modal answers with a fault"),
    (modal.exception.InternalError, NO_ANSWER, "Modal answers with a fault"),
    (modal.exception.TimeoutError, NO_ANSWER, "Modal takes too long"),
    (TimeoutError, NO_ANSWER, "Modal takes too long"),
    (OSError, NO_ANSWER, "Modal cannot be reached"),
)
_ELSE = ("The sandbox could not be started. Try again.", "Modal failed")
FOR_OPERATOR = (
    modal.exception.AuthError,
    modal.exception.PermissionDeniedError,
    modal.exception.ResourceExhaustedError,
    modal.exception.ImageBuildError,
    modal.exception.VersionError,
    modal.exception.InvalidError,
)
"""Those that will not pass before somebody does something."""


def unavailable(error: Exception, *, doing: str) -> SandboxUnavailable:
    """A sentence for people, and in `detail` the facts with the remedy for the operator."""
    public, hint = told(error)
    facts = str(error).strip()[:400] or type(error).__name__
    return SandboxUnavailable(public, detail=f"{doing}: {hint} ({facts})")


def told(error: Exception) -> tuple[str, str]:
    """The sentence for people and that for the operator."""
    found = ((public, hint) for kind, public, hint in _TABLE if isinstance(error, kind))
    return next(found, _ELSE)
