"""Parses documents in a child process with limits on time, memory and output."""

import asyncio
import hashlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

import core
from core.domain.errors import DocumentError
from core.failpoints import Failpoint
from core.knowledge.document import Document, ParseLimits
from core.tasks import shield, spawn_awaited

_ROOT = Path(core.__file__).parents[1]
_PIECE_BYTES = 1 << 16
_PARSE = Failpoint("knowledge.parse")
_BYTES_PER_CHARACTER = 4
_TITLE_CHARACTERS_MAX = 300
_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Document)
_SIGNALS: dict[int, str] = {signal.SIGXCPU: "time", signal.SIGKILL: "memory"}
"""The limit that a process exceeded, by the signal with which the system killed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinedCommand:
    """A command that runs the child in a jail. `options` are further arguments for `subprocess`."""

    arguments: list[str]
    options: dict[str, Any]


Confine = Callable[[list[str], ExitStack], ConfinedCommand]
"""Puts a command in a jail. The stack closes the descriptors that it opens."""

_confine: Confine | None = None


def set_child_confinement(confine: Confine | None) -> None:
    """Sets for the whole process how child processes are confined. With None, a child has only the limits that it sets
    on itself. That is unsafe, because native code of a parsing library can evade some of them."""
    global _confine
    _confine = confine


async def run_in_child(
    module: str, arguments: dict[str, object], file: bytes | IO[bytes], limits: ParseLimits, *, bytes_max: int
) -> bytes:
    """Runs `python -m module ARGUMENTS LIMITS` with the file on stdin and an empty environment, in a jail if there is
    one (`set_child_confinement`). Returns its output. The module sets its own limits on memory and CPU time.

    Raises DocumentError if the module fails, runs too long or writes too much."""
    if isinstance(file, bytes):
        with tempfile.TemporaryFile() as spooled:
            await asyncio.to_thread(spooled.write, file)
            spooled.seek(0)
            return await run_in_child(module, arguments, spooled, limits, bytes_max=bytes_max)
    command = [sys.executable, "-m", module, json.dumps(arguments), json.dumps(asdict(limits))]
    starting = spawn_awaited(_start(command, file), name="start a parser")
    try:
        async with asyncio.timeout(limits.wall_seconds_max):
            process = await asyncio.shield(starting)
            assert process.stdout is not None  # noqa: S101 - requested by _start
            output = bytearray()
            while piece := await process.stdout.read(_PIECE_BYTES):
                output += piece
                if len(output) > bytes_max:
                    raise _error("text", f"{bytes_max // _BYTES_PER_CHARACTER}")
            code = await process.wait()
    except TimeoutError as error:
        raise _error("time") from error
    finally:
        await shield(_end(starting), name="end a parser")
    if code:
        signal_number = code - 128 if code > 128 else -code  # bubblewrap reports signals as shells do
        raise _error(_SIGNALS.get(signal_number, "broken"), f"exit code {code}")
    return bytes(output)


async def _start(command: list[str], stdin: IO[bytes]) -> Process:
    options: dict[str, Any] = {"cwd": _ROOT, "env": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}}
    with ExitStack() as stack:
        if _confine is not None:
            confined = _confine(command, stack)
            command, options = confined.arguments, confined.options
        return await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=DEVNULL, **options)


async def _end(starting: asyncio.Task[Process]) -> None:
    """Ends the process, even if it is just being started. asyncio alone would kill only bubblewrap."""
    with suppress(Exception):  # the process was not started
        process = await starting
        if process.returncode is None:
            _kill(process)
            await process.wait()


def _kill(process: Process) -> None:
    """Kills the process and its children. Bubblewrap killed alone at its start leaves a child that waits forever."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # so that it cannot start another process
    with suppress(OSError):
        # until it has stopped, it may be starting another process
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    process.kill()


_SENTENCES = {
    "broken": "The file is damaged, or is not what its name says; it cannot be read.",
    "protected": "The file is protected by a password. Remove the password and send it again.",
    "empty": "There is no text in the file.",
    "scanned": "There is no text in the PDF: its pages are pictures. Send one with recognised text, or ask the agent"
    " to look at its pages.",
    "unsupported": "Files of this kind cannot be read. PDF, Word, PowerPoint, Excel, OpenDocument, RTF, EPUB, CSV,"
    " HTML, e-mail, zip, Markdown and text can.",
    "binary_workbook": "Binary Excel files (xlsb) cannot be read. Save it as xlsx or PDF and send it again.",
    "apple": "Files of Pages, Numbers and Keynote cannot be read. Export it as PDF and send it again.",
    "outlook": "Messages of Outlook (msg) cannot be read. Save it as eml, HTML or PDF and send it again.",
    "winmail": "Only Outlook can open a winmail.dat. Ask its sender to send the message as HTML or plain text.",
    "pages": "The file has {fact} pages; that is too many. Send the part that matters.",
    "cells": "The tables have more than {fact} cells; that is too many. Send the part that matters.",
    "unpacked": "The file unpacks to far more than a document holds. Send the part that matters, unpacked.",
    "hostile": "The file declares entities, which no office program writes; it was not read.",
    "nested": "The file is nested too deeply to be read.",
    "text": "The file holds more than {fact} characters of text; that is too many. Send the part that matters.",
    "memory": "Reading the file takes more memory than a document may. Send a smaller part of it.",
    "time": "Reading the file takes too long. Send a smaller part of it, or another format.",
    "size": "The file is larger than {fact} MB. Send a smaller part of it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledFile:
    """A file that was received completely. `content_hash` is its SHA-256 in hexadecimal."""

    file: IO[bytes]
    content_hash: str
    size_bytes: int


@asynccontextmanager
async def spool_to_file(
    pieces: AsyncIterator[bytes], limits: ParseLimits, *, name: str = ""
) -> AsyncGenerator[SpooledFile, None]:
    """Context manager: yields the bytes as an unnamed temporary file. Raises DocumentError if they are too many.

    A CSV or TSV file that is too large is truncated instead, because `parse_document` can read its beginning."""
    digest, size = hashlib.sha256(), 0
    is_cut_at_limit = name.lower().endswith((".csv", ".tsv"))
    with tempfile.TemporaryFile() as file:
        async for piece in pieces:
            room = limits.file_bytes_max - size
            size += len(piece)
            if len(piece) > room and not is_cut_at_limit:
                raise _error("size", str(limits.file_bytes_max // 1_000_000))
            digest.update(piece)
            await asyncio.to_thread(file.write, piece[:room])
            if size >= limits.file_bytes_max and is_cut_at_limit:
                break
        file.seek(0)
        yield SpooledFile(file=file, content_hash=digest.hexdigest(), size_bytes=size)


async def parse_document(
    file: bytes | IO[bytes], *, name: str, limits: ParseLimits | None = None, wanted_page: int = 1
) -> Document:
    """Parses a file. An open file is read from its current position. `name` only distinguishes text formats. An archive
    is read as the list of its files, and the file that is its `wanted_page`.

    Raises DocumentError with a message for people. The child process has ended by the time the call returns or
    raises."""
    limits = limits or ParseLimits()
    arguments: dict[str, object] = {"name": name[-200:], "wanted_page": wanted_page}
    bytes_max = limits.text_characters_max * _BYTES_PER_CHARACTER
    with _PARSE:
        output = await run_in_child("core.knowledge.parsing.child", arguments, file, limits, bytes_max=bytes_max)
    return await asyncio.to_thread(parse_output, output)


def parse_output(output: bytes) -> Document:
    """Returns the document in the child's output, which is untrusted, so it is validated. Raises DocumentError.

    The last line has the title and kind, or the reason why the file cannot be read."""
    try:
        *lines, last = output.splitlines()
        result: dict[str, object] = json.loads(last)
        if reason := result.get("error"):
            raise _error(str(reason), str(result.get("fact", "")))
        document = _DOCUMENT.validate_python({**result, "pages": tuple(map(json.loads, lines))})
    except (ValueError, TypeError, RecursionError, AttributeError) as error:
        raise _error("broken", type(error).__name__) from error
    return replace(document, title=" ".join(document.title.split())[:_TITLE_CHARACTERS_MAX])


def _error(reason: str, fact: str = "") -> DocumentError:
    sentence = _SENTENCES.get(reason, _SENTENCES["broken"])
    return DocumentError(sentence.format(fact=fact), detail=f"{reason} {fact}".strip())
