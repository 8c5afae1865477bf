"""Converts inputs from people into user messages, with the author's name and the sandbox paths of attached files."""

import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from core.context.request_tail import PICTURES_MAX
from core.context.tokens import with_token_count
from core.context.untrusted_text import wrap_message
from core.domain.errors import AgentError, SandboxReplaced, ToolError
from core.domain.messages import Message
from core.domain.threads import IncomingFile, ThreadInput
from core.ports import Files, FileSource
from core.run.thread_sandbox import ThreadSandbox
from core.tools.pictures import image_context_message
from core.web_access.pictures import IMAGE_BYTES_MAX, prepare_for_model

log = logging.getLogger(__name__)

UPLOADS = "uploads"
NAME_BYTES_MAX = 120
TEXT_CHARACTERS_MAX = 200_000
STORED = "[Attached file: /workspace/"
UNHEARD = "\n[You cannot hear it. If it holds what they ask, as a voice message does, say so and ask them to write it.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    """How attached files are downloaded from the chat platform into the sandbox.

    `sources` maps platform names to their downloads. `bytes_max` limits each file. `is_repeated` is True if an earlier
    attempt of the run may already have stored the files.
    """

    sources: Mapping[str, FileSource]
    platform: str
    bytes_max: int
    is_repeated: bool


async def prepare_user_message(
    one: ThreadInput, run_id: str, machine: ThreadSandbox, uploads: Uploads
) -> tuple[Message, ...]:
    """Stores the input's files in the sandbox. Returns the messages that show pictures, then the user message.

    For each file the text contains its path, or the reason why the file could not be stored.
    """
    taken: set[str] = set()
    pictures: list[Message] = []
    files: list[str] = []
    for file in one.files:
        known = set(taken)
        files.append(await store_file(file, taken, machine, uploads))
        if file.mime_type.startswith("image/") and len(pictures) < PICTURES_MAX:
            pictures += [
                shown
                for name in taken - known
                if (shown := await _picture(one, run_id, f"{UPLOADS}/{name}", machine)) is not None
            ]
    text = "\n".join(line for line in (attributed_text(one), *files) if line)
    return (*pictures, build_user_message(one, run_id, text))


async def _picture(
    one: ThreadInput, run_id: str, path: str, machine: ThreadSandbox
) -> Message | None:
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
        picture,
        place=path,
        original_size=len(content),
        thread_id=one.thread_id,
        run_id=run_id,
    )


def unread_message(one: ThreadInput, run_id: str) -> Message:
    """Returns the user message for an input that the run did not read; its attached files are named, not downloaded."""
    lines = [
        attributed_text(one),
        *(f"[Attached file, not fetched: {safe_name(file.name)}]" for file in one.files),
    ]
    return build_user_message(one, run_id, "\n".join(line for line in lines if line))


def build_user_message(one: ThreadInput, run_id: str, text: str) -> Message:
    message = Message(
        type="user",
        content={"role": "user", "content": text},
        is_llm_message=True,
        thread_id=one.thread_id,
        run_id=run_id,
        metadata={
            "author": one.author.name,
            "author_id": one.author.person_id,
            "message_ref": one.message_ref,
        },
    )
    return with_token_count(message)


def attributed_text(one: ThreadInput) -> str:
    """Returns the input's text with the author's name and id, in a form that the text cannot forge."""
    text = one.text[:TEXT_CHARACTERS_MAX]
    if not one.author.name:
        return text
    who = f"{one_line(one.author.name)} ({one.author.person_id})"
    if not text and one.kind != "edit":
        return f"{who} sent files:"
    notes = "[A change of an earlier message:]\n" if one.kind == "edit" else ""
    if one.author.is_app:
        notes += "[An app wrote this, not a person:]\n"
    if one.attention != "addressed":
        notes += "[It does not mention you: call no_reply if it is not for you.]\n"
    return notes + wrap_message(text, author=who)


async def store_file(
    file: IncomingFile, taken: set[str], machine: ThreadSandbox, uploads: Uploads
) -> str:
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

    If an earlier attempt of the run may have stored the file, existing files of the same size may be overwritten.
    """
    try:
        entries = await files.list(UPLOADS)
    except ToolError:
        return set()
    return {
        entry.path.rpartition("/")[2]
        for entry in entries
        if not (uploads.is_repeated and entry.size_bytes == file.size_bytes)
    }


def safe_name(name: str) -> str:
    """Returns a safe file name: no folders, control characters or leading dot, and at most NAME_BYTES_MAX bytes."""
    flat = unicodedata.normalize("NFC", name).replace("\\", "/")
    base = PurePosixPath(flat).name if flat.strip("/") else ""
    kept = "".join(
        character
        for character in base
        if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    cleaned = re.sub(r"\s+", " ", kept).strip(" .") or "file"
    while len(cleaned.encode()) > NAME_BYTES_MAX:
        stem, dot, suffix = cleaned.rpartition(".")
        cleaned = f"{stem[:-1]}{dot}{suffix}" if dot and len(suffix) < 12 and stem else cleaned[:-1]
    return cleaned


def unique_name(name: str, taken: set[str]) -> str:
    """Returns the name, with a number added if the name is taken: `name-2.txt`."""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{stem}-{count}{dot}{suffix}"
    return candidate


def one_line(text: str) -> str:
    return " ".join(text.split())
