"""Tools that read and write workspace files. Paths are relative to /workspace."""

import codecs
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import islice

from pydantic import BaseModel, Field, model_validator

from core.domain.errors import ToolError
from core.ports import FileEntry, Files
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import (
    PATH_DESCRIPTION,
    FilePathParams,
    escape_line_breaks,
    with_path_in_error,
    workspace_path,
)

HEAD_BYTES = 8192
_WORD = re.compile(r"\S+")


async def read_numbered_lines(
    files: Files, path: str, *, start_line: int, line_characters_max: int
) -> AsyncGenerator[tuple[int, str], None]:
    """Yields each line's number, counted from 1, and its text with the line break.

    A line longer than `line_characters_max` is yielded in several pieces with the same number. Lines before
    `start_line` are skipped in batches; each batch yields the number of its last line with an empty text. Raises
    ToolError if the file is binary.
    """
    decoder: codecs.IncrementalDecoder | None = None
    number, rest = 1, ""
    async for piece in files.read(path):
        if decoder is None:
            decoder = codecs.getincrementaldecoder(detect_encoding(piece, path))(errors="replace")
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        if lines and number + len(lines) < start_line:
            number += len(lines)
            yield number - 1, ""
            lines.clear()
        for line in lines:
            yield number, line + "\n"
            number += 1
        if len(rest) > line_characters_max:
            yield number, rest
            rest = ""
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest:
        yield number, rest


async def read_text(files: Files, path: str, *, bytes_max: int) -> tuple[str, str]:
    """Returns a file's text and its encoding. Raises ToolError if the file is binary, too large, or not valid text."""
    content = bytearray()
    async for piece in files.read(path, length=bytes_max + 1):
        content += piece
    if len(content) > bytes_max:
        raise ToolError(
            f"{path} is larger than {bytes_max} bytes; edit it with a command such as sed."
        )
    encoding = detect_encoding(bytes(content), path)
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not valid {encoding} text; edit it with a program.") from error


def encode_text(text: str, encoding: str, path: str) -> bytes:
    """Encodes text for a file. Raises ToolError if the encoding lacks a character; no replacement is written."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = ascii(text[error.start])
        raise ToolError(
            f"{path} is {encoding} text, which cannot hold the character {character}. Nothing was written. Leave the"
            " character out, or convert the file to UTF-8 first."
        ) from error


def detect_encoding(head: bytes, path: str) -> str:
    """Returns the encoding of a text file, detected from its first bytes. Raises ToolError if the file is binary."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if b"\x00" in head[:HEAD_BYTES]:
        raise ToolError(
            f"{path} is a binary file, not text. Use a program that knows its format, or attach it for the people."
        )
    try:
        # the incremental decoder accepts a head that ends inside a character
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def find_occurrences(text: str, piece: str, *, places_max: int) -> list[int]:
    """Returns the positions of `piece` in the text, at most `places_max`. Overlapping occurrences all count."""
    places: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(places) < places_max:
        places.append(at)
        at = text.find(piece, at + 1)
    return places


def find_line_ignoring_spaces(text: str, piece: str) -> int | None:
    """Returns the number of the line, counted from 1, where the text matches `piece` except for white space.

    Returns None if the text does not contain it.
    """
    words, heard = " ".join(piece.split()), " ".join(text.split())
    at = heard.find(words) if words else -1
    if at < 0:
        return None
    words_before = heard.count(" ", 0, at)
    first = next(islice(_WORD.finditer(text), words_before, None))
    return text.count("\n", 0, first.start()) + 1


READ_CHARACTERS_MAX = 50_000
"""Smaller than the limit for tool results, so that a file's text is never truncated a second time in the middle."""
EDIT_BYTES_MAX = 5_000_000
OCCURRENCES_NAMED_MAX = 10
OCCURRENCES_COUNTED_MAX = 1000
LISTED_ENTRIES_MAX = 500


class CreateParams(FilePathParams):
    """Create a new file with the given contents. An existing file is not touched: use full_file_rewrite or
    str_replace for that."""

    file_contents: str = Field(description="The whole contents.")
    permissions: str = Field(
        default="644", pattern="^[0-7]{3,4}$", description="Octal permissions."
    )


async def run_create(params: CreateParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    if await _exists(files, params.file_path):
        raise ToolError(
            f"{params.file_path} exists already and was left as it is. Use full_file_rewrite to replace it or"
            " str_replace to edit it."
        )
    mode = int(params.permissions, 8) & 0o777
    size = await write_text(files, params.file_path, params.file_contents, mode)
    return f"Created {params.file_path} ({size} bytes).{_preview(params.file_path, context)}"


class RewriteParams(FilePathParams):
    """Replace a file as a whole with new contents; it is made where there is none."""

    file_contents: str = Field(description="The whole new contents.")
    permissions: str = Field(
        default="644", pattern="^[0-7]{3,4}$", description="Octal permissions."
    )


async def run_rewrite(params: RewriteParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    mode = int(params.permissions, 8) & 0o777
    size = await write_text(files, params.file_path, params.file_contents, mode)
    return f"Wrote {params.file_path} ({size} bytes).{_preview(params.file_path, context)}"


class ReplaceParams(FilePathParams):
    """Replace one piece of a text file. old_str must be in the file exactly once, to the letter, with its spaces."""

    old_str: str = Field(min_length=1, description="The text to replace.")
    new_str: str = Field(description="The text to put there.")


async def run_replace(params: ReplaceParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    try:
        text, encoding = await read_text(files, params.file_path, bytes_max=EDIT_BYTES_MAX)
    except ToolError as error:
        raise with_path_in_error(params.file_path, error) from error
    line = _only_place(text, params)
    edited = text.replace(params.old_str, params.new_str)
    await write_text(files, params.file_path, edited, mode=None, encoding=encoding)
    return f"Edited {params.file_path} at line {line}.{_preview(params.file_path, context)}"


def _only_place(text: str, params: ReplaceParams) -> int:
    """Returns the number of the line where `old_str` begins. Raises ToolError unless `old_str` occurs exactly once."""
    path, places = (
        params.file_path,
        find_occurrences(text, params.old_str, places_max=OCCURRENCES_COUNTED_MAX),
    )
    if len(places) > 1:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:OCCURRENCES_NAMED_MAX])
        more = " and more" if len(places) > OCCURRENCES_NAMED_MAX else ""
        count = f"{len(places)}{' or more' if len(places) == OCCURRENCES_COUNTED_MAX else ''}"
        raise ToolError(
            f"old_str is in {path} {count} times, at the lines {lines}{more}. Nothing was changed. Take more of the"
            " text around the place you mean."
        )
    if places:
        return text.count("\n", 0, places[0]) + 1
    if "\r\n" in text and params.old_str.replace("\n", "\r\n") in text:
        raise ToolError(
            f"old_str is not in {path}: its lines end in \\r\\n, yours in \\n. Nothing was changed. Replace a part of"
            " one line at a time, or convert the file first."
        )
    near = find_line_ignoring_spaces(text, params.old_str)
    hint = f" Line {near} differs from it in its spaces only." if near else ""
    raise ToolError(
        f"old_str is not in {path}. Nothing was changed.{hint} Read the file and copy the text exactly, spaces"
        " included."
    )


class DeleteParams(FilePathParams):
    """Delete a file, or a folder with all that is in it."""


async def run_delete(params: DeleteParams, context: ToolContext) -> str:
    if params.file_path == ".":
        raise ToolError("The workspace itself is not deleted; name what is in it.")
    try:
        await (await context.sandbox()).files.delete(params.file_path)
    except ToolError as error:
        raise with_path_in_error(params.file_path, error) from error
    return f"Deleted {params.file_path}."


class ReadParams(FilePathParams):
    """Read a text file, whole or from start_line to end_line (both counted from 1 and included). Long files come cut;
    ask for ranges then."""

    start_line: int = Field(default=1, ge=1, description="First line to read.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to read.")

    @model_validator(mode="after")
    def _in_order(self) -> "ReadParams":
        if self.end_line is not None and self.end_line < self.start_line:
            raise ValueError(f"end_line {self.end_line} is before start_line {self.start_line}")
        return self


async def run_read(params: ReadParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    reading = _Reading(params)
    lines = read_numbered_lines(
        files,
        params.file_path,
        start_line=params.start_line,
        line_characters_max=READ_CHARACTERS_MAX,
    )
    try:
        async with aclosing(lines):
            async for number, text in lines:
                if not reading.takes(number, text):
                    break
    except ToolError as error:
        raise with_path_in_error(params.file_path, error) from error
    return reading.shown()


class _Reading:
    """Collects the requested lines up to the size limit, and a note about the lines that did not fit."""

    def __init__(self, params: ReadParams) -> None:
        self._params = params
        self._wanted: list[str] = []
        self._room = READ_CHARACTERS_MAX
        self._last = 0
        self._note = ""

    def takes(self, number: int, text: str) -> bool:
        """Adds a line or a piece of a line. Returns False if no more lines are needed."""
        is_new_line, self._last = number != self._last, number
        if number < self._params.start_line:
            return True
        if self._params.end_line is not None and number > self._params.end_line:
            return False
        if len(text) <= self._room:
            self._wanted.append(text)
            self._room -= len(text)
            return True
        if is_new_line and self._wanted:
            self._note = f"[cut before line {number}; read on with start_line={number}]"
        else:
            self._wanted.append(text[: self._room] + "\n")
            self._note = (
                f"[line {number} is too long to be shown whole; take it apart with a command. The next line is"
                f" start_line={number + 1}]"
            )
        return False

    def shown(self) -> str:
        if self._wanted:
            return "".join(self._wanted) + self._note
        path = self._params.file_path
        return f"[{path} is empty]" if self._last == 0 else f"[{path} has only {self._last} lines]"


class ListFilesParams(BaseModel):
    """List the files and folders in a folder of the workspace, with their sizes."""

    path: str = Field(default=".", max_length=4096, description=PATH_DESCRIPTION)


async def run_list_files(params: ListFilesParams, context: ToolContext) -> ToolOutput:
    try:
        entries = await (await context.sandbox()).files.list(workspace_path(params.path))
    except ToolError as error:
        raise with_path_in_error(params.path, error) from error
    lines = [_listed(entry) for entry in entries[:LISTED_ENTRIES_MAX]]
    if len(entries) > LISTED_ENTRIES_MAX:
        lines.append(f"[and {len(entries) - LISTED_ENTRIES_MAX} more; list them with a command]")
    return ToolOutput(output="\n".join(lines) or "[the folder is empty]")


def _listed(entry: FileEntry) -> str:
    path = escape_line_breaks(entry.path)
    if entry.kind == "folder":
        return f"{path}/"
    return (
        f"{path} ({entry.size_bytes} bytes)" if entry.kind == "file" else f"{path} ({entry.kind})"
    )


async def _exists(files: Files, path: str) -> bool:
    try:
        await files.list(path)
    except ToolError:
        return False
    return True


async def write_text(
    files: Files, path: str, text: str, mode: int | None, *, encoding: str = "utf-8"
) -> int:
    """Writes text to a file and returns the number of bytes.

    `mode` holds the file's permissions. With None, an existing file keeps its permissions and a new file gets
    0644.
    """
    content = encode_text(text, encoding, path)

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    try:
        return await files.write(path, pieces(), mode=mode)
    except ToolError as error:
        raise with_path_in_error(path, error) from error


def _preview(path: str, context: ToolContext) -> str:
    if not path.lower().endswith((".html", ".htm")):
        return ""
    url = context.links.preview_url(path)
    return f" People can open it at {url}" if url else ""


create_file = Tool(
    name="create_file",
    params=CreateParams,
    run=run_create,
    title=lambda params: f"Creating {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello')\n"},
    content_parameter="file_contents",
    requires=("sandbox",),
)
full_file_rewrite = Tool(
    name="full_file_rewrite",
    params=RewriteParams,
    run=run_rewrite,
    title=lambda params: f"Writing {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello again')\n"},
    content_parameter="file_contents",
    is_idempotent=True,
    requires=("sandbox",),
)
str_replace = Tool(
    name="str_replace",
    params=ReplaceParams,
    run=run_replace,
    title=lambda params: f"Editing {params.file_path}",
    example={"file_path": "src/main.py", "old_str": "hello", "new_str": "good morning"},
    requires=("sandbox",),
)
delete_file = Tool(
    name="delete_file",
    params=DeleteParams,
    run=run_delete,
    title=lambda params: f"Deleting {params.file_path}",
    example={"file_path": "src/old.py"},
    requires=("sandbox",),
)
read_file = Tool(
    name="read_file",
    params=ReadParams,
    run=run_read,
    title=lambda params: f"Reading {params.file_path}",
    example={"file_path": "notes.md", "start_line": 1, "end_line": 40},
    is_idempotent=True,
    requires=("sandbox",),
)
list_files = Tool(
    name="list_files",
    params=ListFilesParams,
    run=run_list_files,
    title=lambda params: f"Looking into {params.path if params.path != '.' else 'the workspace'}",
    example={"path": "src"},
    is_idempotent=True,
    requires=("sandbox",),
)
