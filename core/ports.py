"""The ports to the outside world, 1-4 methods each. Adapters satisfy them by shape; every docstring is the contract."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from core.domain.events import RunEvent
from core.domain.messages import JsonObject
from core.domain.threads import Address, ChatMessage, IncomingFile, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `messages` are OpenAI-shaped; `tools` are function schemas, empty for text dialects."""

    model: str
    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...] = ()
    temperature: float | None = None
    output_tokens_max: int | None = None
    stop_sequences: tuple[str, ...] = ()
    is_streamed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    text: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a native call. `index` tells parallel calls apart; id and name may come once, late, or never."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """Always the last delta. `usage` is None where the provider tells none."""

    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage | None = None
    model: str | None = None


ModelDelta = TextDelta | ThinkingDelta | ToolCallDelta | ModelFinished
"""Where another model answers than the request's, the first delta and the last say in `model` which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The tab in front. All of it but the numbers was written by the page.

    `elements` are lines that begin with an element's number in brackets. `picture` is a JPEG, or empty.
    """

    url: str
    title: str
    tabs: tuple[JsonObject, ...]
    elements: tuple[str, ...]
    element_count: int
    pixels_above: int
    pixels_below: int
    html: str = ""
    picture: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserResult:
    """What an action came to. With `error` it was not done; there may be a state all the same.

    `happened`: sentences about dialogs, tabs and downloads on the way.
    """

    said: str = ""
    error: str | None = None
    happened: tuple[str, ...] = ()
    state: PageState | None = None


class BrowserTakeover(Protocol):
    """A person's connection to the browser. What comes from there was made by pages and is not trusted."""

    async def send(self, message: JsonObject) -> None: ...

    def receive(self) -> AsyncIterator[tuple[JsonObject, bytes]]:
        """Messages, some with a JPEG, until the browser ends."""
        ...


class Browser(Protocol):
    """The thread's browser, started at the first need. Its profile lives in the workspace."""

    async def act(
        self, action: str, arguments: JsonObject, *, timeout_seconds: float
    ) -> BrowserResult:
        """Does one thing. Raises ToolError where there is no browser, it does not start or does not answer."""
        ...

    def take_over(self) -> AbstractAsyncContextManager[BrowserTakeover]:
        """Gives the browser to a person while entered; every `act` is an error then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """What a shell session has to say about its newest command.

    `exit_code` is None while it runs. `output` has kept its head and tail and lost `dropped_bytes` in between; then
    `output_path` names the file inside the sandbox that holds all of it.
    """

    output: str
    exit_code: int | None
    folder: str
    dropped_bytes: int = 0
    output_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSession:
    name: str
    command: str
    is_running: bool
    running_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """`path` is relative to /workspace."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    modified_at: float


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


Precondition = Callable[[], Awaitable[None]]
"""Raises LeaseLost if this process may no longer write to the thread. A platform's client awaits it immediately before
every request that changes something, after any wait for a rate limit."""


class ChatSurface(Protocol[ContentT]):
    """A chat platform as the delivery sees it. `ContentT` is `bots.delivery.content.Content`.

    Raises SurfaceRateLimited, SurfaceUnclear or SurfaceRefused, never an SDK's own exception, and whatever the
    precondition raises.
    """

    async def post(
        self, address: Address, content: ContentT, *, delivery_id: str, precondition: Precondition
    ) -> str:
        """Posts into the thread and answers the platform's message id. The id travels with the message, so that
        `find` can recognise it; a platform that enforces nonces refuses the second post by itself."""
        ...

    async def edit(
        self, address: Address, message_ref: str, content: ContentT, *, precondition: Precondition
    ) -> None: ...

    async def upload(
        self,
        address: Address,
        file: "OutgoingFile",
        *,
        delivery_id: str,
        precondition: Precondition,
    ) -> str:
        """Posts a file into the thread; answers a message or file id. SurfaceRefused `too_large` over the limit."""
        ...

    async def find(self, address: Address, delivery_id: str) -> str | None:
        """The message that was posted under this delivery id, if it is there: asked after a SurfaceUnclear."""
        ...


class ChatPresence(Protocol):
    """The signs beside the messages. Whoever gives them logs a failure, which never ends a run."""

    async def react(
        self,
        address: Address,
        message_ref: str,
        reaction: Reaction | None,
        *,
        precondition: Precondition | None = None,
    ) -> None:
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


class ChatHistory(Protocol):
    """What is said in a chat thread beside the agent."""

    async def read(
        self, address: Address, *, before: datetime, limit: int, after: datetime | None = None
    ) -> tuple[ChatMessage, ...]:
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
