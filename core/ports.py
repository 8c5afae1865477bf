"""The ports to the outside world, 1-4 methods each. Adapters satisfy them by shape; every docstring is the contract."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from core.browser_port import Browser
from core.domain.events import RunEvent
from core.domain.threads import Address, Heard, IncomingFile
from core.machine_facts import CommandOutput as CommandOutput
from core.machine_facts import FileEntry as FileEntry
from core.machine_facts import ShellSession as ShellSession
from core.model_calls import ModelDelta as ModelDelta
from core.model_calls import ModelFinished as ModelFinished
from core.model_calls import ModelRequest as ModelRequest
from core.model_calls import TextDelta as TextDelta
from core.model_calls import ThinkingDelta as ThinkingDelta
from core.model_calls import ToolCallDelta as ToolCallDelta


class LLM(Protocol):
    """A language model."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Yields deltas and, last, exactly one `ModelFinished`. Closing the generator ends the call at the provider.

        Raises ModelUnavailable, ModelRejected or ContextOverflow, before the first delta or in the middle; never an
        SDK's own exception. Does not retry.
        """
        ...


class Shell(Protocol):
    """Named shell sessions that keep directory, environment and jobs. Raises SandboxUnavailable when lost."""

    async def execute(
        self, command: str, *, session: str, folder: str | None, timeout_seconds: float
    ) -> CommandOutput:
        """Runs in the session (made on first use) and waits at most the timeout; 0 returns at once.

        A command still running then goes on; `exit_code` is None and `check` follows it. Raises ToolError when the
        session is busy or the folder does not exist.
        """
        ...

    async def check(self, session: str, *, timeout_seconds: float = 0) -> CommandOutput:
        """The output so far of the newest command. Raises ToolError for an unknown session."""
        ...

    async def type_text(self, session: str, text: str) -> None:
        """Types into the running command of the session; a line ends with a newline. Raises ToolError if none runs."""
        ...

    async def terminate(self, session: str) -> None:
        """Kills everything that the session started, and the session. Raises ToolError for an unknown one."""
        ...

    async def sessions(self) -> tuple[ShellSession, ...]: ...


class Files(Protocol):
    """Files under /workspace. Paths are relative to it; a path that leads out, by name or link, is a ToolError."""

    def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yields the bytes in pieces. Raises ToolError where there is no such file."""
        ...

    async def write(
        self, path: str, pieces: AsyncIterator[bytes], *, mode: int | None = 0o644
    ) -> int:
        """Replaces the file as a whole (never half of it seen), making folders on the way; answers its size.

        With the mode None the file keeps its permissions, and a new one gets 0644.

        Raises ToolError when the disk or the quota is full, or the path is a folder.
        """
        ...

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        """The entries of a folder sorted by name, or the one entry of a file. Raises ToolError if neither."""
        ...

    async def delete(self, path: str) -> None:
        """Removes a file, or a folder with all it holds. Raises ToolError if there is none."""
        ...


class PortStream(Protocol):
    """A connection to a program inside. Raises SandboxUnavailable when the sandbox is lost."""

    async def read(self, count_max: int) -> bytes:
        """At least one byte, as soon as there is one; none at the end."""
        ...

    async def write(self, content: bytes) -> None:
        """Raises BrokenPipeError when the other end has closed."""
        ...

    def close(self) -> None: ...


class Sandbox(Protocol):
    """One thread's machine."""

    @property
    def shell(self) -> Shell: ...

    @property
    def files(self) -> Files: ...

    @property
    def browser(self) -> Browser: ...

    async def connect(self, port: int) -> PortStream:
        """Connects to what listens there on the loopback address. Raises ToolError where nothing does."""
        ...

    async def link(self, port: int) -> str | None:
        """The port's address at whoever runs the sandbox, for all who have it; None where there is none."""
        ...

    async def interrupt(self) -> None:
        """Kills every running command of every session; sessions, files and background services of ours stay."""
        ...

    async def close(self) -> None:
        """Stops the machine; the workspace stays for the next `open`."""
        ...


class SandboxProvider(Protocol):
    """Gives each thread its own machine."""

    @property
    def name(self) -> str: ...

    async def open(self, thread_id: str, *, fence: int) -> Sandbox:
        """The thread's sandbox, started or found; commands of lower fences in it are ended. Idempotent per thread.

        Raises SandboxUnavailable with a sentence for the user and the facts in `detail`.
        """
        ...

    def rest(self, thread_id: str) -> None:
        """A run of the thread has ended: a good moment to save its files. Returns at once; a failure is logged."""
        ...

    async def destroy(self, thread_id: str) -> None:
        """Stops the sandbox and deletes the workspace for good. Succeeds where there is none."""
        ...

    async def close(self) -> None:
        """Stops every sandbox that this process runs; workspaces stay."""
        ...


ContentT = TypeVar("ContentT", contravariant=True)
Reaction = Literal["seen", "queued", "done", "failed", "asking"]


class ChatSurface(Protocol[ContentT]):
    """A chat platform as the delivery sees it. `ContentT` is `bots.delivery.content.Content`.

    Raises SurfaceRateLimited, SurfaceUnclear or SurfaceRefused, never an SDK's own exception.
    """

    async def post(self, address: Address, content: ContentT, *, delivery_id: str) -> str:
        """Posts into the thread and answers the platform's message id. The id travels with the message, so that
        `find` can recognise it; a platform that enforces nonces refuses the second post by itself."""
        ...

    async def edit(self, address: Address, message_ref: str, content: ContentT) -> None: ...

    async def upload(self, address: Address, file: "OutgoingFile", *, delivery_id: str) -> str:
        """Posts a file into the thread; answers a message or file id. SurfaceRefused `too_large` over the limit."""
        ...

    async def find(self, address: Address, delivery_id: str) -> str | None:
        """The message that was posted under this delivery id, if it is there: asked after a SurfaceUnclear."""
        ...


class ChatPresence(Protocol):
    """The signs beside the messages. Whoever gives them logs a failure, which never ends a run."""

    async def react(self, address: Address, message_ref: str, reaction: Reaction | None) -> None:
        """Makes this the bot's only reaction on the message; None removes it. May be repeated. Raises SurfaceError."""
        ...

    def typing(self, address: Address) -> AbstractAsyncContextManager[None]:
        """Shows the agent as typing while entered, where the platform can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A file for a chat. `pieces` may be iterated once."""

    name: str
    size_bytes: int
    pieces: AsyncIterator[bytes]


class FileSource(Protocol):
    """Opens the files that a platform's messages carry."""

    def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        """Yields the content. Raises AgentError (a sentence for the user) when it is gone, forbidden or too large.

        Sends the platform's token to the platform's own hosts only.
        """
        ...


class ThreadTalk(Protocol):
    """What is said in a chat thread beside the agent."""

    async def read(
        self, address: Address, *, before: datetime, limit: int, after: datetime | None = None
    ) -> tuple[Heard, ...]:
        """The newest messages between the two moments, at most `limit`, oldest first; none that the agent wrote.

        Raises SurfaceError: the run then goes on without them.
        """
        ...


class EventBus(Protocol):
    """Carries run events to whoever listens now. The database is the truth; the bus only makes it live."""

    async def publish(self, events: Sequence[RunEvent]) -> None:
        """In order. Never blocks on a slow reader."""
        ...

    def subscribe(self, run_id: str) -> AbstractAsyncContextManager[AsyncIterator[RunEvent]]:
        """Everything published for the run after the context is entered. A reader that falls too far behind gets its
        iterator ended early, and reads what it missed from the store."""
        ...


class RunQueue(Protocol):
    """Wakes workers. May lose or repeat an entry: a sweeper finds the lost, the lease settles the repeated."""

    async def put(self, run_id: str) -> None: ...

    async def claim(self) -> str:
        """Waits for a run id."""
        ...


class StopSignals(Protocol):
    """Carries "stop this run" to the worker that runs it; the request itself is stored with the run."""

    async def send(self, run_id: str) -> None: ...

    async def wait(self, run_id: str) -> None:
        """Returns once a stop for this run is sent after the call began, or where one may have been missed: look at
        the stored request then."""
        ...
