"""Tools that read and write workspace files. Paths are relative to /workspace."""

import asyncio
import re
import shlex
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from pydantic import BaseModel, Field

from core.context.todo_file import RUNS_COMMANDS, successful_call
from core.domain.call_consent import STAYS
from core.domain.errors import FileChanged, ToolError
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.ports import NO_FILE, Files, file_version
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import (
    PATH_DESCRIPTION,
    FilePathParams,
    add_path_to_error,
    escape_line_breaks,
    file_subject,
    workspace_path,
)
from core.tools.workspace.text_encoding import EDIT_BYTES_MAX, decode_text_file, encode_new_text, replace_undecodable

_WORD = re.compile(r"\S+")


async def read_editable_bytes(files: Files, path: str) -> bytes:
    """Returns a file's bytes, at most one byte more than the limit for edits. Raises ToolError if it cannot be read."""
    return b"".join([piece async for piece in files.read(path, length=EDIT_BYTES_MAX + 1)])


def find_occurrences(text: str, piece: str, *, places_max: int) -> list[int]:
    """Returns the positions of `piece` in the text, at most `places_max`. Overlapping occurrences all count."""
    places: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(places) < places_max:
        places.append(at)
        at = text.find(piece, at + 1)
    return places


def find_line_ignoring_spaces(text: str, piece: str) -> int | None:
    """Returns the number, from 1, of the line where the text matches `piece` except for white space, or None."""
    words, heard = " ".join(piece.split()), " ".join(text.split())
    at = heard.find(words) if words else -1
    if at < 0:
        return None
    words_before = heard.count(" ", 0, at)
    first = next(one for at, one in enumerate(_WORD.finditer(text)) if at == words_before)
    return text.count("\n", 0, first.start()) + 1


EDIT_ATTEMPTS_MAX = 20
OCCURRENCES_NAMED_MAX = 10
OCCURRENCES_COUNTED_MAX = 1000
LISTED_ENTRIES_MAX = 500
EXACT_CHARACTERS_MAX = 2000
CLOCK_DIFFERENCE = timedelta(seconds=2)
"""How much the clock of a sandbox may be ahead of this machine's."""

USES_FILE = frozenset(("create_file", "full_file_rewrite", "str_replace", "read_file", "str_replace_editor"))
_CRLF = re.compile("\r\n")
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4\u0060", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\t\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "),
    }
)
"""Characters that models write in place of others that look like them. Each is replaced by a single character, so that
positions stay the same."""


class CreateParams(FilePathParams):
    """Create a new file with the given contents. An existing file is not touched: use full_file_rewrite or
    str_replace for that."""

    file_contents: str = Field(description="The whole contents.")
    permissions: str = Field(default="644", pattern="^[0-7]{3,4}$", description="Octal permissions.")


async def run_create(params: CreateParams, context: ToolContext) -> str:
    mode = int(params.permissions, 8) & 0o777
    content = encode_new_text(params.file_contents, params.file_path)
    try:
        size = await write_bytes(context, params.file_path, content, mode=mode, expected=NO_FILE)
    except FileChanged as error:
        raise ToolError(
            f"{params.file_path} exists already and was left as it is. Use full_file_rewrite to replace it or"
            " str_replace to edit it."
        ) from error
    return f"Created {params.file_path} ({size} bytes).{preview_note(params.file_path, context)}"


class RewriteParams(FilePathParams):
    """Replace a file as a whole with new contents; it is made where there is none. A file that somebody else made or
    changed and that you have not read since is not replaced."""

    file_contents: str = Field(description="The whole new contents.")
    permissions: str | None = Field(
        default=None, pattern="^[0-7]{3,4}$", description="Octal permissions. Without them, a file keeps what it has."
    )


async def run_rewrite(params: RewriteParams, context: ToolContext) -> str:
    path, content = params.file_path, encode_new_text(params.file_contents, params.file_path)
    mode = None if params.permissions is None else int(params.permissions, 8) & 0o777
    known = context.known_versions.get(path)
    same = file_version(content)  # after a crash, the call may write it twice
    for expected in dict.fromkeys((known or NO_FILE, NO_FILE, same)):
        with suppress(FileChanged):
            size = await write_bytes(context, path, content, mode=mode, expected=expected)
            return f"Wrote {path} ({size} bytes).{preview_note(path, context)}"
    files = (await context.sandbox()).files
    found = file_version(await read_editable_bytes(files, path))
    is_own = False
    if context.messages is not None:
        # whether the newest change was made, or was seen, by a call of an earlier run or turn
        (entry,) = await files.list(path)
        changed_at = datetime.fromtimestamp(entry.modified_at, UTC)
        is_own = is_change_explained(path, changed_at, await context.messages.read_all())
    if is_own:
        with suppress(FileChanged):
            size = await write_bytes(context, path, content, mode=mode, expected=found)
            return f"Wrote {path} ({size} bytes).{preview_note(path, context)}"
    why = "you have not read it yet" if known is None else "it has changed since you read or wrote it"
    beside = await _write_beside(path, content, mode, context)
    raise ToolError(
        f"{path} exists and was left as it is, because {why}. Your text is in {beside}. Read {path}; if nothing of it"
        f" is wanted, put your text in its place with a command: mv {shlex.quote(beside)} {shlex.quote(path)}"
    )


def is_change_explained(path: str, changed_at: datetime, history: Sequence[Message]) -> bool:
    """Returns whether the stored calls of a thread explain the newest change of a file: a call that read or wrote the
    file ended after the change, or the change fell in the turn of a command.

    Uploads, and changes that people make between runs, are not explained by stored calls."""
    turn_began_at = last_at = datetime.max.replace(tzinfo=UTC)
    for message in history:
        if message.type == "assistant":
            turn_began_at = last_at
        last_at = message.created_at
        if changed_at - CLOCK_DIFFERENCE > message.created_at:
            continue
        call = successful_call(message, USES_FILE | RUNS_COMMANDS)
        if call is not None and (
            turn_began_at <= changed_at if call[0] in RUNS_COMMANDS else _used_path(*call) == path
        ):
            return True
    return False


def _used_path(name: str, arguments: JsonObject) -> str | None:
    path = arguments.get("path" if name == "str_replace_editor" else "file_path")
    try:
        return workspace_path(path) if isinstance(path, str) else None
    except ToolError:
        return None


async def _write_beside(path: str, content: bytes, mode: int | None, context: ToolContext) -> str:
    """Writes a text that must not replace a file to a new file beside that file. Returns the path of the new file."""
    for number in count(1):
        beside = f"{path}.new{number if number > 1 else ''}"
        for expected in (NO_FILE, file_version(content)):
            with suppress(FileChanged):
                await write_bytes(context, beside, content, mode=mode, expected=expected)
                return beside
    raise AssertionError("unreachable")


class ReplaceParams(FilePathParams):
    """Replace one piece of a text file. old_str must be in the file exactly once, to the letter, with its spaces."""

    old_str: str = Field(min_length=1, description="The text to replace.")
    new_str: str = Field(description="The text to put there.")


async def run_replace(params: ReplaceParams, context: ToolContext) -> str:
    edit = await edit_text(context, params.file_path, lambda text: replace_once(text, params))
    return f"Edited {params.file_path} at line {edit.line}.{preview_note(params.file_path, context)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """An edit of a file: the bytes before it, the text after it, and the number of the first line that it changed."""

    before: bytes
    after: str
    line: int


async def edit_text(
    context: ToolContext, path: str, edit: Callable[[str], tuple[str, int]], *, known: str = ""
) -> FileEdit:
    """Edits a file's text. `edit` returns the new text, and the number of the first changed line.

    If the file changes meanwhile, its new text is edited, so that no other change is lost. If `known` is given, raises
    ToolError unless it is the version of the file, so that line numbers refer to the lines that the model has seen."""
    files = (await context.sandbox()).files
    for _ in range(EDIT_ATTEMPTS_MAX):
        try:
            content = await read_editable_bytes(files, path)
            text, encoding = await asyncio.to_thread(decode_text_file, content, path)
        except ToolError as error:
            raise add_path_to_error(path, error) from error
        if known and file_version(content) != known:
            raise ToolError(
                f"{path} has changed since you viewed it, so its line numbers may be others. View it again."
            )
        after, line = await asyncio.to_thread(edit, text)
        with suppress(FileChanged):
            new = await asyncio.to_thread(encoding.encode, after, path)
            await write_bytes(context, path, new, mode=None, expected=file_version(content))
            return FileEdit(before=content, after=after, line=line)
    raise ToolError(f"{path} was not edited, because a program keeps changing it. Stop the program first.")


def replace_once(text: str, params: ReplaceParams) -> tuple[str, int]:
    """Returns the text after the replacement, and the number of the line where it begins.

    `old_str` matches with either kind of line ending. The new text gets the line endings of the file."""
    plain = text.replace("\r\n", "\n")
    old = params.old_str.replace("\r\n", "\n")
    at = _only_place(plain, old, params.file_path)
    # converts the positions in the text with normalized line ends to positions in the original text
    ends = [found.start() - number for number, found in enumerate(_CRLF.finditer(text))]
    start, end = (place + bisect_left(ends, place) for place in (at, at + len(old)))
    new = with_line_ends_of(text, params.new_str)
    return f"{text[:start]}{new}{text[end:]}", plain.count("\n", 0, at) + 1


def with_line_ends_of(text: str, added: str) -> str:
    """Returns `added` with the kind of line ending that most lines of the text have."""
    plain = added.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if text.count("\r\n") * 2 > text.count("\n") else plain


def _only_place(text: str, old: str, path: str) -> int:
    """Returns the position of `old` in the text. Raises ToolError unless it occurs exactly once."""
    places = find_occurrences(text, old, places_max=OCCURRENCES_COUNTED_MAX)
    if len(places) > 1:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:OCCURRENCES_NAMED_MAX])
        more = " and more" if len(places) > OCCURRENCES_NAMED_MAX else ""
        count = f"{len(places)}{' or more' if len(places) == OCCURRENCES_COUNTED_MAX else ''}"
        raise ToolError(
            f"old_str is in {path} {count} times, at the lines {lines}{more}. Nothing was changed. Take more of the"
            " text around the place you mean."
        )
    if places:
        return places[0]
    at = text.translate(_LOOKALIKES).find(old.translate(_LOOKALIKES))
    if at >= 0:
        found = replace_undecodable(text[at : at + len(old)][:EXACT_CHARACTERS_MAX])
        raise ToolError(
            f"old_str is not in {path}, but line {text.count(chr(10), 0, at) + 1} has it with other quotes, dashes or"
            f" spaces. Nothing was changed. Copy them from the text of the file, which is:\n{found}"
        )
    near = find_line_ignoring_spaces(text, old)
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
        raise add_path_to_error(params.file_path, error) from error
    context.known_versions.pop(params.file_path, None)
    return f"Deleted {params.file_path}."


class ListFilesParams(BaseModel):
    """List the files and folders in a folder of the workspace, with their sizes."""

    path: str = Field(default=".", max_length=4096, description=PATH_DESCRIPTION)


async def run_list_files(params: ListFilesParams, context: ToolContext) -> ToolOutput:
    try:
        entries = await (await context.sandbox()).files.list(workspace_path(params.path))
    except ToolError as error:
        raise add_path_to_error(params.path, error) from error
    lines = list[str]()
    for entry in entries[:LISTED_ENTRIES_MAX]:
        fact = f" ({entry.size_bytes} bytes)" if entry.kind == "file" else f" ({entry.kind})"
        lines.append(escape_line_breaks(entry.path) + ("/" if entry.kind == "folder" else fact))
    if len(entries) > LISTED_ENTRIES_MAX:
        lines.append(f"[and {len(entries) - LISTED_ENTRIES_MAX} more; list them with a command]")
    return ToolOutput(output="\n".join(lines) or "[the folder is empty]")


async def write_bytes(
    context: ToolContext, path: str, content: bytes, *, mode: int | None, expected: str | None
) -> int:
    """Writes a file and returns the number of bytes. `mode` and `expected` are those of `Files.write`."""
    files = (await context.sandbox()).files
    try:
        size = await files.write(path, in_one_piece(content), mode=mode, expected=expected)
    except FileChanged:
        raise
    except ToolError as error:
        raise add_path_to_error(path, error) from error
    context.known_versions[path] = file_version(content)
    return size


async def in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


PREVIEW_LIMITS = "scripts, dialogs and downloads work there, localStorage and cookies do not"


def preview_note(path: str, context: ToolContext) -> str:
    if not path.lower().endswith((".html", ".htm")):
        return ""
    url = context.links.preview_url(path)
    return f" People can open it at {url} ({PREVIEW_LIMITS})." if url else ""


create_file = Tool(
    name="create_file",
    effect="writes",
    reach=STAYS,
    params=CreateParams,
    run=run_create,
    subject=lambda params: file_subject(params.file_path),
    title=lambda params: f"Creating {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello')\n"},
    content_parameter="file_contents",
    requires=("sandbox",),
)
full_file_rewrite = Tool(
    name="full_file_rewrite",
    effect="writes",
    reach=STAYS,
    params=RewriteParams,
    run=run_rewrite,
    subject=lambda params: file_subject(params.file_path),
    title=lambda params: f"Writing {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello again')\n"},
    content_parameter="file_contents",
    is_idempotent=True,
    requires=("sandbox",),
)
str_replace = Tool(
    name="str_replace",
    effect="writes",
    reach=STAYS,
    params=ReplaceParams,
    run=run_replace,
    subject=lambda params: file_subject(params.file_path),
    title=lambda params: f"Editing {params.file_path}",
    example={"file_path": "src/main.py", "old_str": "hello", "new_str": "good morning"},
    requires=("sandbox",),
)
delete_file = Tool(
    name="delete_file",
    effect="writes",
    reach=STAYS,
    params=DeleteParams,
    run=run_delete,
    subject=lambda params: file_subject(params.file_path),
    title=lambda params: f"Deleting {params.file_path}",
    example={"file_path": "src/old.py"},
    requires=("sandbox",),
)
list_files = Tool(
    name="list_files",
    effect="reads",
    reach=STAYS,
    params=ListFilesParams,
    run=run_list_files,
    subject=lambda params: file_subject(params.path),
    title=lambda params: f"Looking into {params.path if params.path != '.' else 'the workspace'}",
    example={"path": "src"},
    is_idempotent=True,
    requires=("sandbox",),
)
