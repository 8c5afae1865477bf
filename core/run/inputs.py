"""Converts inputs from people into user messages, with the author's name and the sandbox paths of attached files."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.context.message_text import attributed_text, build_user_message, one_line, safe_name
from core.context.request_tail import PICTURES_MAX
from core.domain.errors import AgentError, SandboxReplaced, ToolError
from core.domain.messages import Message
from core.domain.threads import IncomingFile, ThreadInput
from core.ports import Files, FileSource
from core.run.thread_sandbox import ThreadSandbox
from core.tools.pictures import image_context_message
from core.web_access.pictures import IMAGE_BYTES_MAX, prepare_for_model

log = logging.getLogger(__name__)

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")

UPLOADS = "uploads"
STORED = "[Attached file: /workspace/"
UNHEARD = "\n[You cannot hear it. If it holds what they ask, as a voice message does, say so and ask them to write it.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    """How attached files are downloaded from the chat platform into the sandbox.

    `sources` maps platform names to their downloads. `bytes_max` limits each file. `is_named` returns whether a message
    already names the file at a path; one of the same size that none names is left from an earlier attempt of the run.
    """

    sources: Mapping[str, FileSource]
    platform: str
    bytes_max: int
    is_named: Callable[[str], bool]


async def prepare_user_message(
    one: ThreadInput, run_id: str, machine: ThreadSandbox, taken: set[str], uploads: Uploads
) -> tuple[Message, ...]:
    """Stores the input's files in the sandbox. Returns the messages that show pictures, then the user message.

    For each file the text contains its path, or the reason why the file could not be stored. The names of stored files
    are added to `taken`.
    """
    pictures: list[Message] = []
    files: list[str] = []
    for file in one.files:
        known = set(taken)
        files.append(await store_file(file, taken, machine, uploads))
        if _may_be_picture(file) and len(pictures) < PICTURES_MAX:
            pictures += [
                shown
                for name in taken - known
                if (shown := await _picture(one, run_id, f"{UPLOADS}/{name}", machine)) is not None
            ]
    text = "\n".join(line for line in (attributed_text(one), *files) if line)
    return (*pictures, build_user_message(one, run_id, text))


def _may_be_picture(file: IncomingFile) -> bool:
    """Whether the file's type, or its name if no type was given, is that of a picture."""
    is_untyped = file.mime_type in ("", "application/octet-stream")
    return file.mime_type.startswith("image/") or (is_untyped and file.name.lower().endswith(PICTURE_ENDINGS))


async def _picture(one: ThreadInput, run_id: str, path: str, machine: ThreadSandbox) -> Message | None:
    """Returns the message that shows an attached picture, or None if it cannot be shown."""
    content = bytearray()
    try:
        sandbox = await machine.sandbox()
        async for piece in sandbox.files.read(path, length=IMAGE_BYTES_MAX + 1):
            content += piece
        picture = await prepare_for_model(bytes(content), name=path)
    except (AgentError, ToolError) as error:
        log.info("an attached picture is not shown: %s", error)
        return None
    return image_context_message(
        picture, place=path, original_size=len(content), thread_id=one.thread_id, run_id=run_id
    )


async def store_file(file: IncomingFile, taken: set[str], machine: ThreadSandbox, uploads: Uploads) -> str:
    """Downloads a file into the sandbox. Returns a line with its path, or with the reason why it is not there."""
    name = safe_name(file.name)
    source = uploads.sources.get(uploads.platform)
    if source is None:
        return f"[Attached file {name}: it cannot be fetched here]"
    remark = ""
    try:
        try:
            sandbox = await machine.sandbox()
        except SandboxReplaced as replaced:
            remark = f"[{one_line(str(replaced))}]\n"
            sandbox = await machine.sandbox()
        name = unique_name(name, taken | await _names_in_use(sandbox.files, file, uploads))
        taken.add(name)
        path = f"{UPLOADS}/{name}"
        size = await sandbox.files.write(path, source.open(file, bytes_max=uploads.bytes_max))
    except (AgentError, ToolError) as error:
        log.warning("a file was not stored: %s", type(error).__name__)
        return f"{remark}[Attached file {name} could not be stored: {one_line(str(error))}]"
    unheard = UNHEARD if file.is_audio else ""
    return f"{remark}{STORED}{path} ({one_line(file.mime_type)}, {size} bytes)]{unheard}"


async def _names_in_use(files: Files, file: IncomingFile, uploads: Uploads) -> set[str]:
    """Returns the file names in the upload folder that a new file must not overwrite.

    A file of the same size that no message names may be overwritten: an earlier attempt of the run has stored it.
    """
    try:
        entries = await files.list(UPLOADS)
    except ToolError:
        return set()
    return {
        entry.path.rpartition("/")[2]
        for entry in entries
        if entry.size_bytes != file.size_bytes or uploads.is_named(entry.path)
    }


def unique_name(name: str, taken: set[str]) -> str:
    """Returns the name, with a number added if the name is taken: `name-2.txt`."""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{stem}-{count}{dot}{suffix}"
    return candidate
