"""Protocols for everything outside the process: models, sandboxes, chat platforms, queues. Adapters implement them
structurally, and the docstrings are the contract."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from core.domain.events import RunEvent
from core.domain.json import JsonObject
from core.domain.model_options import ModelOptions
from core.domain.network import NetworkLimits
from core.domain.threads import Address, ChatMessage, ChatPage, IncomingFile, Usage


def _ignore() -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request for one model call. `messages` are in the OpenAI format; assistant messages may also contain
    REASONING_KEY. The first `stable_messages` of them are part of later requests, too (0: unknown). `tools` are
    function schemas, none for dialects that write calls as text. `options` is None outside the turns of a run.
    `can_be_shortened`: the caller has a shorter request for the model, should it refuse this one as too long.

    The client calls `on_received` for each part of the response that arrives, also for parts without content, such as
    keep-alive comments and hidden reasoning."""

    model: str
    messages: tuple[JsonObject, ...]
    stable_messages: int = 0
    tools: tuple[JsonObject, ...] = ()
    temperature: float | None = None
    output_tokens_max: int | None = None
    stop_sequences: tuple[str, ...] = ()
    is_streamed: bool = True
    options: ModelOptions | None = None
    can_be_shortened: bool = False
    on_received: Callable[[], None] = field(default=_ignore, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str
    replaces_earlier: bool = False
    """All earlier text of the response was thinking."""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    text: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSnapshot:
    """The whole reasoning of the response so far, which later requests contain under REASONING_KEY.

    It is opaque to everyone but the client that made it. It comes before the first tool call, and again at the end if
    it has changed; the last one counts."""

    content: JsonObject
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A fragment of a native tool call. `index` distinguishes parallel calls. The id and the name may arrive once,
    late or never."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """The last delta of every stream. `usage` is None if the provider does not report it."""

    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried:
    """An attempt has failed, and another one follows. `text` is shown to users. The response starts over, so all
    earlier deltas are void."""

    text: str
    model: str | None = None


ModelDelta = TextDelta | ThinkingDelta | ReasoningSnapshot | ToolCallDelta | ModelFinished | ModelRetried
"""A part of a streamed model response. If another model than the requested one responds, the first and the last
delta name it in `model`."""


@dataclass(frozen=True, slots=True)
class ResponseText:
    """The text of a model's response. `is_cut_off`: the response reached its length limit."""

    text: str
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The state of the browser's active tab. Everything except the numbers comes from the page and is untrusted.

    Each line of `elements` begins with the element's number in brackets. `picture` is a JPEG, or empty."""

    url: str
    title: str
    tabs: tuple[JsonObject, ...]
    elements: tuple[str, ...]
    element_count: int
    pixels_above: int
    pixels_below: int
    picture: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserResult:
    """The result of a browser action. If `error` is set, the action failed, but `state` may still be set.

    `happened` holds sentences about dialogs, tabs and downloads that the action caused."""

    said: str = ""
    error: str | None = None
    happened: tuple[str, ...] = ()
    state: PageState | None = None


class TakeoverConnection(Protocol):
    """A person's connection to the thread's browser. Received messages originate from web pages and are untrusted."""

    async def send(self, message: JsonObject) -> None: ...

    def receive(self) -> AsyncIterator[tuple[JsonObject, bytes]]:
        """Yields messages, some with a JPEG, until the browser ends."""
        ...


class Browser(Protocol):
    """The thread's browser. It starts on first use and keeps its profile in the workspace."""

    async def act(self, action: str, arguments: JsonObject, *, timeout_seconds: float) -> BrowserResult:
        """Performs one action. Raises ToolError if the browser is missing, does not start or does not respond."""
        ...

    def take_over(self) -> AbstractAsyncContextManager[TakeoverConnection]:
        """Context manager: inside the block a user controls the browser, and every `act` fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """The state and output of a command.

    `session` is the name under which `check` finds the command: the name of its session, followed by a number if other
    commands of the session were running when it began. `also_running` names those that run now. `exit_code` is None
    while the command runs. `has_jobs` means that it has ended, but has left something running that may still print.
    `is_found` means that it has printed the text that `check` waited for.

    `output` is what a terminal would show. `is_redrawn` means that some of what was printed is not in it, because it
    was overwritten or erased. If the output is too long, `dropped_bytes` counts the bytes removed from its middle.
    `output_path` names the file inside the sandbox with everything that was printed, or is None if there is none."""

    session: str
    output: str
    exit_code: int | None
    folder: str
    dropped_bytes: int = 0
    output_path: str | None = None
    has_jobs: bool = False
    is_found: bool = False
    is_redrawn: bool = False
    also_running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSession:
    name: str
    command: str
    is_running: bool
    running_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file or folder in a sandbox. `path` is relative to /workspace."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    modified_at: float


class LLM(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Yields deltas, the last of which is the only `ModelFinished`. Closing the generator ends the call at the
        provider.

        Raises ModelUnavailable, ModelRejected or ContextOverflow before or between deltas, never an SDK's own
        exception. Does not retry."""
        ...


class Shell(Protocol):
    """Named shell sessions. Each command runs in a fresh shell that starts from the folder, variables, functions and
    aliases of its session and saves them when it ends. Methods raise SandboxUnavailable if the sandbox is lost."""

    async def execute(self, command: str, *, session: str, folder: str | None, timeout_seconds: float) -> CommandOutput:
        """Runs a command in a session, which is created on first use, and waits no longer than the timeout (0 does not
        wait).

        After the timeout the command keeps running: `exit_code` is None, and `check` returns its later output. Commands
        of one session may run at the same time; the last to end decides what the session keeps. Raises ToolError if
        the folder does not exist."""
        ...

    async def check(
        self, session: str, *, timeout_seconds: float = 0, until: str = "", end_bytes: int | None = None
    ) -> CommandOutput:
        """Returns the output so far of the newest command of this name, or only its last `end_bytes`. Waits until the
        command has ended or printed the text `until` since the last input, but no longer than the timeout. Raises
        ToolError if there is no such command."""
        ...

    async def keep_running(self, session: str) -> None:
        """Lets the session's command outlive the run. Raises LeaseLost if a newer run uses the sandbox."""
        ...

    async def type_text(self, session: str, text: str) -> None:
        """Types text for the session's command; a newline submits it. Raises ToolError if no command runs."""
        ...

    async def terminate(self, session: str, *, keeps_state: bool = False) -> None:
        """Kills every process that commands of this name have started, and forgets the session unless `keeps_state`.
        Raises ToolError if there is none."""
        ...

    async def sessions(self) -> tuple[ShellSession, ...]: ...


NO_FILE = ""
"""The version of a file that does not exist."""


def file_version(content: bytes) -> str:
    """Returns the version of a file with this content."""
    return f"{len(content)}-{hashlib.sha256(content).hexdigest()}"


class Files(Protocol):
    """Files under /workspace. Paths are relative to it; a path that leaves it, by name or through a link, raises
    ToolError."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yields the file's bytes. Raises ToolError if the file does not exist."""
        ...

    async def write(
        self, path: str, pieces: AsyncIterator[bytes], *, mode: int | None = 0o644, expected: str | None = None
    ) -> int:
        """Replaces the file atomically, creates missing folders, and returns the file's size in bytes.

        If `mode` is None, an existing file keeps its permissions and a new file gets 0644. `expected` is the
        `file_version` of the content to replace, NO_FILE if there must be no file yet, or None if any content may be
        replaced.

        Raises FileChanged, or ToolError if the disk or the quota is full, or if the path is a folder."""
        ...

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        """Returns the entries of a folder, sorted by name, or the single entry of a file. Raises ToolError if the
        path does not exist."""
        ...

    async def delete(self, path: str) -> None:
        """Deletes a file, or a folder with its contents. Raises ToolError if the path does not exist."""
        ...


class PortStream(Protocol):
    """A connection to a program inside the sandbox. Methods raise SandboxUnavailable if the sandbox is lost."""

    async def read(self, count_max: int) -> bytes:
        """Waits for data and returns at least one byte. Returns no bytes at the end of the stream."""
        ...

    async def write(self, content: bytes) -> None:
        """Raises BrokenPipeError if the other end has closed the connection."""
        ...

    def close(self) -> None: ...


class Sandbox(Protocol):
    """The isolated machine of one thread."""

    @property
    def shell(self) -> Shell: ...

    @property
    def files(self) -> Files: ...

    @property
    def browser(self) -> Browser: ...

    @property
    def has_fetched(self) -> bool:
        """Whether programs in it may have read something from the internet. Always False without a network."""
        ...

    def limit_network(self, limits: NetworkLimits) -> None:
        """Sets which hosts its programs may reach from now on. A provider that cannot filter connections ignores it."""
        ...

    def take_refused_hosts(self) -> tuple[str, ...]:
        """Returns the hosts that its programs tried to reach since the last call, although the limits do not allow
        them."""
        ...

    async def connect(self, port: int) -> PortStream:
        """Connects to a port on the sandbox's loopback address. Raises ToolError if no program listens on the port."""
        ...

    async def find_port_url(self, port: int) -> str | None:
        """Returns the URL of the port at the sandbox's provider, or None if there is none. The URL works for everyone
        who has it."""
        ...

    async def interrupt(self) -> None:
        """Kills the running commands of all sessions. Sessions, files and our own background services remain."""
        ...

    async def close(self) -> None:
        """Stops the machine. The workspace remains for the next `open`."""
        ...


class SandboxProvider(Protocol):
    """Provides one sandbox per thread."""

    @property
    def name(self) -> str: ...

    async def open(self, thread_id: str, *, fence: int) -> Sandbox:
        """Returns the thread's sandbox and starts it if necessary. Idempotent per thread.

        Ends the commands that a run with a lower fence has not left in the background. Raises SandboxUnavailable with a
        sentence for the user and the technical facts in `detail`."""
        ...

    def release(self, thread_id: str) -> None:
        """Notes that the thread's run has ended, so that its files can be saved and the sandbox stopped to make room.
        Returns immediately; failures are logged."""
        ...

    async def destroy(self, thread_id: str) -> None:
        """Stops the sandbox and permanently deletes the workspace. Does nothing if the thread has no sandbox."""
        ...

    async def close(self) -> None:
        """Stops every sandbox that this process runs. The workspaces remain."""
        ...


ContentT = TypeVar("ContentT", contravariant=True)
Reaction = Literal["seen", "queued", "done", "failed", "asking", "limited"]


Precondition = Callable[[], Awaitable[None]]
"""Raises LeaseLost if this process may no longer write to the thread. A platform's client awaits it immediately
before every request that changes something, after any wait for a rate limit."""


class ChatSurface(Protocol[ContentT]):
    """A chat platform that messages are delivered to. `ContentT` is `bots.delivery.content.Content`.

    Methods raise a subclass of SurfaceError, or the precondition's exception, but never an SDK's own exception."""

    async def post(
        self,
        address: Address,
        content: ContentT,
        *,
        files: Sequence["OutgoingFile"] = (),
        delivery_id: str,
        precondition: Precondition,
    ) -> str:
        """Posts the content and the files as one message in the thread, and returns the id of the message or of a file.
        Delivery ids are sent with it for `find`. A platform that enforces nonces rejects a second post with the same
        id."""
        ...

    async def edit(
        self, address: Address, message_ref: str, content: ContentT, *, precondition: Precondition
    ) -> None: ...

    async def upload(
        self, address: Address, file: "OutgoingFile", *, delivery_id: str, precondition: Precondition
    ) -> str:
        """Posts a file into the thread and returns a message or file id. Raises SurfaceRefused with the code
        `too_large` if the file exceeds the platform's limit."""
        ...

    async def find(self, address: Address, delivery_id: str) -> str | None:
        """Returns the message id of the post with this delivery id, or None. Called after a SurfaceUnclear."""
        ...


class ChatPresence(Protocol):
    """Reactions and typing indicators. Callers log failures, because a failure must not end a run."""

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        """Makes this the bot's only reaction on the message; None removes the reaction. Safe to repeat. Raises
        SurfaceError."""
        ...

    def typing(self, address: Address) -> AbstractAsyncContextManager[None]:
        """Context manager: inside the block the agent is shown as typing, if the platform supports it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A file to post in a chat. `pieces` can be iterated only once. `delivery_id` is set if the file is posted in one
    message with another delivery."""

    name: str
    size_bytes: int
    pieces: AsyncIterator[bytes]
    delivery_id: str = ""


class FileSource(Protocol):
    """Opens files that are attached to a platform's messages."""

    def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        """Yields the file's content. Raises RunError, with a sentence for the user, if the file is gone, forbidden or
        too large.

        Sends the platform's token only to the platform's own hosts."""
        ...


class ChatHistory(Protocol):
    """Messages in a chat thread that the agent did not write."""

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        """Returns the newest messages between the two times, at most `limit`, without the agent's own.

        Without `after`, the thread's first message belongs to the page, too. Raises SurfaceError if nothing can be
        read; the run then continues without these messages."""
        ...

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        """Returns the messages that links in the text lead to, by link.

        A message is None if the bot cannot read it, or if the person might not be allowed to. Raises SurfaceError."""
        ...

    def parse_sent_at(self, message_ref: str) -> datetime:
        """Returns when the message was sent. Raises ValueError if this is no message id."""
        ...


class EventBus(Protocol):
    """Sends run events to the current subscribers. The database remains authoritative."""

    async def publish(self, events: Sequence[RunEvent]) -> None:
        """Publishes the events in order. Never waits for a slow subscriber."""
        ...

    def subscribe(self, run_id: str) -> AbstractAsyncContextManager[AsyncIterator[RunEvent]]:
        """Context manager: yields an iterator over the run's events that are published after the block is entered.

        The iterator ends early if the subscriber falls too far behind; it must then read the missed events from the
        store."""
        ...


class RunQueue(Protocol):
    """Wakes workers when a run is queued. Entries may be lost or repeated: a sweeper finds lost runs, and the lease
    rejects repeated ones."""

    async def put(self, run_id: str) -> None: ...

    async def get(self) -> str:
        """Waits for the next run id and returns it."""
        ...


class StopSignals(Protocol):
    """Sends stop requests to the worker that executes the run. The request itself is stored with the run."""

    async def send(self, run_id: str) -> None: ...

    async def wait(self, run_id: str) -> None:
        """Waits for a stop signal for this run. Also returns if a signal may have been missed, so callers must check
        the stored request."""
        ...
