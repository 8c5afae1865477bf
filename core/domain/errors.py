"""All errors that the product raises on purpose, grouped by audience.

ThreadhandError
├── ToolError                 for the model; says what to do next
│   ├── FileMissing           there is no such file or folder
│   └── FileChanged           a file is not the version that a write expects; nothing was written
├── RunError                for the user; one plain sentence, never a path, a traceback or a secret
│   ├── ModelError            a model call failed
│   │   ├── ModelUnavailable  429, 5xx, timeout, network: may be temporary, so it is retried
│   │   ├── ModelRejected     wrong key, unknown model, bad request: permanent
│   │   │   └── AnswerRejected  the service cannot read what the model wrote: ask the model again
│   │   └── ContextOverflow   the conversation is larger than the model's context window
│   ├── DocumentError         a document cannot be read: damaged, protected, empty, too large, malicious
│   ├── SandboxUnavailable    no sandbox is available (also raised by file and shell calls of a lost sandbox)
│   │   ├── SandboxesBusy     all sandboxes of the machine are in use: try again later
│   │   └── SandboxReplaced   files were lost with the sandbox; the next call uses a new one
│   ├── BudgetExceeded        a limit on cost or tokens is reached
│   └── ApprovalExpired       a tool needed approval, and no person answered in time
├── LeaseLost                 another worker owns the thread, so write and post nothing
├── ConfigurationError        for the operator; one sentence that includes the remedy
│   └── TokenRefused          a chat platform does not accept its token; others may work
├── StorageUnavailable        the database failed; nothing of the transaction was stored
└── SurfaceError              a chat platform refused a request or failed
    ├── SurfaceRateLimited    wait `retry_after_seconds`
    ├── SurfaceUnclear        the request may have been carried out; check before sending again
    ├── SurfaceUnavailable    the token or the workspace is refused, whatever is asked: may be accepted again later
    └── SurfaceRefused        permanent: gone, forbidden, too large; `code` is the platform's own
"""


class ThreadhandError(Exception):
    """Base class of the errors that the product raises on purpose."""


class ToolError(ThreadhandError):
    """A tool could not do its work. The text is written for the model."""


class FileMissing(ToolError):
    """There is no file or folder at the path."""


class FileChanged(ToolError):
    """A file was not written, because it is no longer the version that the writer has read."""


class RunError(ThreadhandError):
    """Ends a run. `str(error)` is one plain sentence for the users in the thread.

    `detail` holds the technical facts for the operator's log and is never shown in a chat."""

    def __init__(self, public_message: str, *, detail: str = "") -> None:
        super().__init__(public_message)
        self.detail = detail


class ModelError(RunError):
    """A model call failed."""


class ModelUnavailable(ModelError):
    """May succeed later: rate limit, server fault, timeout, network.

    `is_late` means that no response came in time, so the service may have done the work and charge for it."""

    def __init__(
        self, public_message: str, *, detail: str = "", retry_after_seconds: float | None = None, is_late: bool = False
    ) -> None:
        super().__init__(public_message, detail=detail)
        self.retry_after_seconds = retry_after_seconds
        self.is_late = is_late


class ModelRejected(ModelError):
    """Will not succeed unless the key, the model name or the request is changed."""


class AnswerRejected(ModelRejected):
    """The model's service could not read a call that the model wrote. `detail` holds the reason."""


class ContextOverflow(ModelError):
    """The request is larger than the model's context window."""


class DocumentError(RunError):
    """A document cannot be read; the message says why. Retrying with the same file does not help."""


class SandboxUnavailable(RunError):
    """No sandbox could be started, or the current one is gone."""


class SandboxesBusy(SandboxUnavailable):
    """The machine runs as many sandboxes as it can. Passes when one becomes idle."""


class SandboxReplaced(SandboxUnavailable):
    """The sandbox was lost together with files. Raised once; the next call uses a new sandbox."""


class BudgetExceeded(RunError):
    """A limit on cost or tokens is reached. `can_continue` is True if a new run would have a budget of its own."""

    def __init__(self, public_message: str, *, can_continue: bool = False) -> None:
        super().__init__(public_message)
        self.can_continue = can_continue


class ApprovalExpired(RunError):
    """A tool needed approval, and no person answered in time."""


class LeaseLost(ThreadhandError):
    """This worker no longer owns the thread, so it must not write to it."""


class ConfigurationError(ThreadhandError):
    """The program cannot start with this configuration. The text tells the operator what to change."""


class TokenRefused(ConfigurationError):
    """A chat platform does not accept its token, now or at any later time."""


class StorageUnavailable(ThreadhandError):
    """The database failed (full disk, lost server, locked file). Nothing of the transaction was stored."""


class SurfaceError(ThreadhandError):
    """A chat platform failed or refused a request."""


class SurfaceRateLimited(SurfaceError):
    """The platform limits the request rate. Wait `retry_after_seconds` before the next request."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SurfaceUnclear(SurfaceError):
    """The platform did not respond or had a server error, so it may have carried out the request."""


class SurfaceUnavailable(SurfaceError):
    """The platform refused the bot's token or the whole workspace, and carried out nothing. That says nothing about
    this request, which succeeds once the operator has replaced the token, or the platform has moved the workspace."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class SurfaceRefused(SurfaceError):
    """The platform refused this request, or this place, permanently."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
