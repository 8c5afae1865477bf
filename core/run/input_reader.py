"""Reads what users write to a run while it is executed, and adds it to the run's history, with the sandbox paths of
attached files."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from core.context.background_messages import (
    BACKGROUND_MESSAGES_MAX,
    BackgroundMessageReader,
    build_background_message,
    files_by_model_id,
    find_known_files,
    message_line,
    refers_to_files,
)
from core.context.message_text import attribute_text, build_unread_message, build_user_message, one_line
from core.context.request_tail import PICTURES_MAX
from core.context.untrusted_text import wrap_untrusted
from core.domain.budget import PlannedCall, Reservation
from core.domain.errors import RunError, SandboxReplaced, SurfaceError, ToolError
from core.domain.events import MessageAdded
from core.domain.messages import Message
from core.domain.threads import IncomingFile, Lease, Thread, ThreadInput
from core.ports import FileSource
from core.run.deps import RunDeps
from core.run.recorder import RunRecorder
from core.run.thread_sandbox import ThreadSandbox
from core.tools.pictures import build_picture_message
from core.tools.tool import ThreadChat
from core.web_access.pictures import IMAGE_BYTES_MAX, prepare_picture

log = logging.getLogger(__name__)

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")

UPLOADS = "uploads"
STORED = "[Attached file: /workspace/"
UNHEARD = "\n[You cannot hear it. If it holds what they ask, as a voice message does, say so and ask them to write it.]"
PREPARATIONS_MAX = 5
"""The maximum number of times that inputs are read again because they have changed. Later changes are read in the next
turn."""
OMITTED_AUTHORS = {"?": "others"}
"""Stands for the authors of messages that were left out, so that nobody counts as alone with the agent in a long
thread."""
FILES_AT_ONCE_MAX = 5
"""The maximum number of files from earlier messages that are fetched because a request refers to files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentDownloads:
    """How attached files are downloaded from the chat platform into the sandbox.

    `sources` maps platform names to their downloads. `bytes_max` limits each file. `is_named` returns whether a message
    already names the file at a path. A file of the same size that no message names was left by an earlier attempt of
    the run."""

    sources: Mapping[str, FileSource]
    platform: str
    bytes_max: int
    is_named: Callable[[str], bool]


class InputReader:
    """Reads the inputs of one run and the chat messages around them. `has_read` is True once inputs were read, and
    `must_answer` while somebody who addressed the agent waits for a reply."""

    def __init__(
        self, lease: Lease, thread: Thread, deps: RunDeps, recorder: RunRecorder, sandbox: ThreadSandbox
    ) -> None:
        self.has_read = False
        self.must_answer = False
        self._lease = lease
        self._address = thread.address
        self._knows_authors = thread.earlier_authors is not None
        self._deps = deps
        self._recorder = recorder
        self._sandbox = sandbox
        self._background = BackgroundMessageReader(
            deps.chat.histories, partial(deps.stores.conversations.unread_talk, lease.thread_id)
        )
        self._history: Sequence[Message] = ()
        self._files: dict[str, IncomingFile] = {}
        self._fetched: dict[str, str] = {}
        self._names: set[str] = set()

    @property
    def chat(self) -> ThreadChat | None:
        """The chat thread as the run's tools read it, or None if the run has no chat thread."""
        is_chat = self._address.platform in self._deps.chat.histories
        return ThreadChat(read=self.read_chat, fetch_file=self.fetch_file) if is_chat else None

    def remember_history(self, history: Sequence[Message]) -> None:
        """Notes which chat messages the history contains, so that none of them is added as background again."""
        self._background.remember(history, reads_all=not self._knows_authors)
        self._history = history

    async def take_steering(self) -> Sequence[Message]:
        """Stores and returns what users wrote since the last call. Cancels the run if the worker is draining."""
        return await self._taken(await self._recorder.read_inputs())

    async def begin_turn(self, call: PlannedCall) -> tuple[Sequence[Message], Reservation]:
        """Does the same as `take_steering`, and reserves what the turn's model call may cost."""
        inputs, reservation = await self._recorder.begin_turn(call)
        return await self._taken(inputs), reservation

    async def _taken(self, inputs: Sequence[ThreadInput]) -> Sequence[Message]:
        if self._deps.draining.is_set():
            raise asyncio.CancelledError("handed over between two turns, with everything stored")
        messages, prepared = await self._prepare(inputs)
        for input_id, own in prepared.items():
            for message in own:
                self._recorder.emit(MessageAdded(message=message))
                messages.append(message)
            self._recorder.mark_inputs_taken([input_id])
        self.must_answer |= any(one.attention == "addressed" for one in inputs)
        self.has_read = True
        return messages

    async def _prepare(self, inputs: Sequence[ThreadInput]) -> tuple[list[Message], dict[str, tuple[Message, ...]]]:
        """Returns the background messages before the inputs, and the messages of the inputs by input id. If users
        delete or change an input while files are fetched, it is left out or read again."""
        background: list[Message] = []
        prepared: dict[str, tuple[Message, ...]] = {}
        for _ in range(PREPARATIONS_MAX if inputs else 0):
            new = [one for one in inputs if one.input_id not in prepared]
            background += await self._read_background(new)
            for one in new:
                prepared[one.input_id] = await prepare_user_messages(
                    one, self._lease.run_id, self._sandbox, self._names, self._uploads()
                )
            inputs = await self._deps.stores.journal.read_inputs(self._lease)
            if all(one.input_id in prepared for one in inputs):
                break
        return background, {one.input_id: prepared[one.input_id] for one in inputs if one.input_id in prepared}

    async def store_unread_inputs(self, *, until: datetime | None = None) -> None:
        """Adds the inputs that the run did not read to the history, so that they do not start another run. With
        `until`, adds only those that were sent up to that time."""
        await self._recorder.commit()
        for one in await self._deps.stores.journal.read_inputs(self._lease):
            if until is not None and one.sent_at > until:
                continue
            message = build_unread_message(one, self._lease.run_id)
            self._recorder.emit(MessageAdded(message=message))
            self._recorder.mark_inputs_taken([one.input_id])

    async def read_chat(self, before: str) -> str:
        """Returns the thread's messages before the message with this id, as lines of JSON. Raises ToolError."""
        history = self._deps.chat.histories[self._address.platform]
        try:
            sent_at = history.parse_sent_at(before)
            page = await history.read(self._address, before=sent_at, limit=BACKGROUND_MESSAGES_MAX)
        except ValueError:
            raise ToolError(f"{before!r} is no message id: take `message` of the oldest one that you know.") from None
        except SurfaceError as error:
            raise ToolError(f"The thread cannot be read just now: {error}") from error
        shown = ((page.root,) if page.root else ()) + page.messages
        if not shown:
            return "Nothing was said in the thread before that message."
        self._files |= files_by_model_id(shown)
        note = f"{page.omitted:,} messages before these are not shown. " if page.omitted else ""
        lines = "\n".join(map(message_line, shown))
        return f"[{note}It was not said to you.]\n{wrap_untrusted(lines, source='the chat thread')}"

    async def fetch_file(self, file_id: str) -> str:
        """Stores a file of a chat message in the sandbox. Returns the line that names it. Raises ToolError."""
        if file_id not in self._fetched:
            if file_id not in self._files:
                history = await self._deps.stores.conversations.llm_messages(self._lease.thread_id)
                self._files = find_known_files(history) | self._files
            file = self._files.get(file_id)
            if file is None:
                raise ToolError(
                    f"There is no file {file_id!r} in the messages that you have seen. Read the thread again."
                )
            line = await store_file(file, self._names, self._sandbox, self._uploads())
            if STORED not in line:
                return line
            self._fetched[file_id] = line
        return self._fetched[file_id]

    def _uploads(self) -> AttachmentDownloads:
        return AttachmentDownloads(
            sources=self._deps.chat.file_sources,
            platform=self._address.platform,
            bytes_max=self._deps.chat.file_bytes_max,
            # only a run that was taken over leaves files that its history does not name
            is_named=lambda path: (
                self._lease.attempt == 1 or any(path in str(one.content.get("content")) for one in self._history)
            ),
        )

    async def _read_background(self, inputs: Sequence[ThreadInput]) -> list[Message]:
        background = await self._background.read(self._address, inputs)
        if background is None:
            return []
        page = background.page
        if not self._knows_authors and background.is_first and not background.note:
            # stores who had written before the agent joined, once the thread was read from its beginning
            self._knows_authors = True
            written = ((page.root,) if page.root else ()) + page.messages
            authors = {one.author.person_id: one.author.name for one in written if not one.is_app}
            conversations, omitted = self._deps.stores.conversations, OMITTED_AUTHORS if page.omitted else {}
            await conversations.note_earlier_authors(self._lease.thread_id, authors | omitted)
        files = background.files
        self._files |= files
        is_asked = any(refers_to_files(one.text, files) for one in inputs)
        wanted = list(files)[-FILES_AT_ONCE_MAX:] if files and is_asked else []
        message = build_background_message(
            background,
            thread_id=self._lease.thread_id,
            run_id=self._lease.run_id,
            fetched=[await self.fetch_file(file_id) for file_id in wanted],
        )
        self._recorder.mark_talk_read(background.read_refs)
        if message is None:
            return []
        self._recorder.emit(MessageAdded(message=message))
        return [message]


async def prepare_user_messages(
    thread_input: ThreadInput, run_id: str, sandbox: ThreadSandbox, taken_names: set[str], uploads: AttachmentDownloads
) -> tuple[Message, ...]:
    """Stores the input's files in the sandbox. Returns the messages that show pictures, then the user message.

    For each file the text contains its path, or the reason why the file could not be stored. The names of stored files
    are added to `taken`.
    """
    pictures: list[Message] = []
    files: list[str] = []
    for file in thread_input.files:
        known = set(taken_names)
        files.append(await store_file(file, taken_names, sandbox, uploads))
        is_untyped = file.mime_type in ("", "application/octet-stream")
        is_named_picture = is_untyped and file.name.lower().endswith(PICTURE_ENDINGS)
        if (file.mime_type.startswith("image/") or is_named_picture) and len(pictures) < PICTURES_MAX:
            pictures += [
                shown
                for name in taken_names - known
                if (shown := await _picture(thread_input, run_id, f"{UPLOADS}/{name}", sandbox)) is not None
            ]
    text = "\n".join(line for line in (attribute_text(thread_input), *files) if line)
    return (*pictures, build_user_message(thread_input, run_id, text))


async def _picture(one: ThreadInput, run_id: str, path: str, machine: ThreadSandbox) -> Message | None:
    """Returns the message that shows an attached picture, or None if it cannot be shown."""
    content = bytearray()
    try:
        sandbox = await machine.open()
        async for piece in sandbox.files.read(path, length=IMAGE_BYTES_MAX + 1):
            content += piece
        picture = await prepare_picture(bytes(content), name=path)
    except (RunError, ToolError) as error:
        log.info("an attached picture is not shown: %s", error)
        return None
    return build_picture_message(
        picture, place=path, original_size=len(content), thread_id=one.thread_id, run_id=run_id
    )


async def store_file(
    file: IncomingFile, taken_names: set[str], sandbox_of_thread: ThreadSandbox, uploads: AttachmentDownloads
) -> str:
    """Downloads a file into the sandbox. Returns a line with its path, or with the reason why it is not there."""
    name = file.name
    source = uploads.sources.get(uploads.platform)
    if source is None:
        return f"[Attached file {name}: it cannot be fetched here]"
    remark = ""
    try:
        try:
            sandbox = await sandbox_of_thread.open()
        except SandboxReplaced as replaced:
            remark = f"[{one_line(str(replaced))}]\n"
            sandbox = await sandbox_of_thread.open()
        try:
            entries = await sandbox.files.list(UPLOADS)
        except ToolError:
            entries = ()
        # a file of the same size that no message names may be overwritten: an earlier attempt of the run has stored it
        in_use = (one for one in entries if one.size_bytes != file.size_bytes or uploads.is_named(one.path))
        name = unique_name(name, taken_names | {one.path.rpartition("/")[2] for one in in_use})
        taken_names.add(name)
        path = f"{UPLOADS}/{name}"
        size = await sandbox.files.write(path, source.open(file, bytes_max=uploads.bytes_max))
    except (RunError, ToolError) as error:
        log.warning("a file was not stored: %s", type(error).__name__)
        return f"{remark}[Attached file {name} could not be stored: {one_line(str(error))}]"
    unheard = UNHEARD if file.is_audio else ""
    return f"{remark}{STORED}{path} ({file.mime_type}, {size} bytes)]{unheard}"


def unique_name(name: str, taken: set[str]) -> str:
    """Returns the name, with a number added if the name is taken: `name-2.txt`."""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{stem}-{count}{dot}{suffix}"
    return candidate
