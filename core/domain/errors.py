"""Every error of the product, by audience.

ThreadhandError
├── ToolError                 the model reads it; says what to do next
├── AgentError                the user reads it; one plain sentence, never a path, a trace or a secret
│   ├── ModelError            a model call failed
│   │   ├── ModelUnavailable  429, 5xx, timeout, network: may pass, is retried
│   │   ├── ModelRejected     wrong key, unknown model, bad request: will not pass
│   │   └── ContextOverflow   the conversation is larger than the model's window
│   ├── DocumentError         a document cannot be read: broken, protected, empty, too large, hostile
│   ├── SandboxUnavailable    no sandbox can be had (also raised by the file and shell calls of a lost one)
│   │   └── SandboxReplaced   files were lost with it; the next call has a fresh one
│   ├── BudgetExceeded        a limit on cost or turns holds
│   └── ApprovalExpired       nobody has answered what a tool needs a yes for
├── LeaseLost                 another worker owns the thread: write nothing, say nothing
├── ConfigurationError        the operator reads it; one sentence with the remedy
├── StorageUnavailable        the database failed; nothing of the transaction was stored
└── SurfaceError              a chat platform refused or failed
    ├── SurfaceRateLimited    wait `retry_after_seconds`
    ├── SurfaceUnclear        the request may or may not have been carried out: look before sending again
    └── SurfaceRefused        will not pass: gone, forbidden, too large; `code` is the platform's own
"""


class ThreadhandError(Exception):
    """Root of the errors that the product raises on purpose."""


class ToolError(ThreadhandError):
    """A tool could not do what was asked; the text is written for the model."""


class AgentError(ThreadhandError):
    """Ends a run; `str(error)` is one plain sentence for the people in the thread.

    `detail` holds the facts for the operator's log and is never shown in a chat.
    """

    def __init__(self, public_message: str, *, detail: str = "") -> None:
        super().__init__(public_message)
        self.detail = detail


class ModelError(AgentError):
    """A model call failed."""


class ModelUnavailable(ModelError):
    """May pass later: rate limit, server fault, timeout, network.

    `is_late`: no answer came in time, so that the service may have done the work, and count it.
    """

    def __init__(
        self,
        public_message: str,
        *,
        detail: str = "",
        retry_after_seconds: float | None = None,
        is_late: bool = False,
    ) -> None:
        super().__init__(public_message, detail=detail)
        self.retry_after_seconds = retry_after_seconds
        self.is_late = is_late


class ModelRejected(ModelError):
    """Will not pass as it is: key, model name, request."""


class ContextOverflow(ModelError):
    """The request is larger than the model's context window."""


class DocumentError(AgentError):
    """A document cannot be read, and why; it will not pass with the same file."""


class SandboxUnavailable(AgentError):
    """There is no sandbox to run in, or the one in use is gone."""


class SandboxReplaced(SandboxUnavailable):
    """Told once: files were lost with the sandbox, and a fresh one is there for the next call."""


class BudgetExceeded(AgentError):
    """A limit set by the operator holds."""


class ApprovalExpired(AgentError):
    """Nobody has answered in time what a tool needs a yes for."""


class LeaseLost(ThreadhandError):
    """This worker no longer owns the thread; everything it would write is void."""


class ConfigurationError(ThreadhandError):
    """The program cannot start as configured; the text tells the operator what to change."""


class StorageUnavailable(ThreadhandError):
    """The database did not do what was asked (full disk, lost server, locked file); nothing of it was stored."""


class SurfaceError(ThreadhandError):
    """A chat platform did not do what was asked."""


class SurfaceRateLimited(SurfaceError):
    """The platform asks for patience."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SurfaceUnclear(SurfaceError):
    """No answer came, or a server fault: the platform may have carried the request out."""


class SurfaceRefused(SurfaceError):
    """The platform said no, and will say so again."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
