"""The `str_replace_editor` tool, which views and edits text files and can undo its edits."""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from core.domain.call_consent import STAYS
from core.domain.errors import FileMissing, ToolError
from core.ports import NO_FILE, FileEntry, Files, file_version
from core.tools.tool import Tool, ToolContext
from core.tools.workspace.file_changes import (
    CreateParams,
    ReplaceParams,
    edit_text,
    in_one_piece,
    preview_note,
    read_editable_bytes,
    replace_once,
    run_create,
    with_line_ends_of,
)
from core.tools.workspace.paths import (
    PATH_DESCRIPTION,
    add_path_to_error,
    escape_line_breaks,
    file_subject,
    validated_workspace_path,
)
from core.tools.workspace.reading import READ_CHARACTERS_MAX, read_numbered_lines, with_line_number
from core.tools.workspace.text_encoding import EDIT_BYTES_MAX, replace_undecodable

UNDO_FOLDER = ".undo"
UNDO_STEPS_MAX = 10
_ABSENT = "absent"
_STEP = re.compile(rf"[0-9]{{6,9}}\.[0-9a-f]{{16}}(\.{_ABSENT})?")
"""The name of an undo step: its number, the digest of the file after the edit, and a suffix if the edit created
the file."""


async def save_undo_step(files: Files, path: str, before: bytes | None) -> str:
    """Saves a file's content from before its newest edit, and deletes the oldest steps above the limit. Returns "", or
    a note for the model if that failed. It is not an error, because the edit is made.

    `before` is None if the edit created the file.
    """
    steps = await _steps(files, path)
    number = 1 + (_number(steps[-1]) if steps else 0)
    after = _digest_of(await _version(files, path))
    name = f"{number:06}.{after}{f'.{_ABSENT}' if before is None else ''}"
    try:
        await files.write(f"{_undo_folder(path)}/{name}", in_one_piece(before or b""))
        for old in steps[: max(0, len(steps) + 1 - UNDO_STEPS_MAX)]:
            await files.delete(f"{_undo_folder(path)}/{old}")
    except ToolError as error:
        return f" undo_edit cannot take this back: {error}"
    return ""


async def undo_newest_edit(files: Files, path: str) -> bool:
    """Undoes the newest edit of a file. Returns False if the edit had created the file, which is then deleted.

    Raises ToolError if there is no edit to undo, or if undoing it would lose a later change by another program.
    """
    steps = await _steps(files, path)
    if not steps:
        raise ToolError(f"There is no edit of {path} by this tool that could be taken back.")
    step = f"{_undo_folder(path)}/{steps[-1]}"
    is_there = not steps[-1].endswith(_ABSENT)
    found = await _version(files, path)
    if found != NO_FILE and _digest_of(found) != steps[-1].split(".")[1]:
        way = f"What it was before is in {step}, should you want it back."
        raise ToolError(
            f"{path} was changed by something else since that edit, which would be lost. Nothing was taken back."
            f" {way if is_there else 'The edit had made the file: delete it if nobody wants it.'}"
        )
    if is_there:
        before = in_one_piece(await read_editable_bytes(files, step))
        await files.write(path, before, mode=None, expected=found)
    elif found != NO_FILE:
        await files.delete(path)
    await files.delete(step)
    return is_there


async def _version(files: Files, path: str) -> str:
    """Returns the version of a file, or NO_FILE if nothing is there. What cannot be read, such as a folder, has a
    version that matches no edit."""
    try:
        return file_version(await read_editable_bytes(files, path))
    except FileMissing:
        return NO_FILE
    except ToolError:
        return "unreadable"


async def _steps(files: Files, path: str) -> list[str]:
    """Returns the names of the undo steps, oldest first. Other files in the folder are ignored."""
    try:
        entries = await files.list(_undo_folder(path))
    except ToolError:
        return []
    names = (entry.path.rpartition("/")[2] for entry in entries if entry.kind == "file")
    return sorted((name for name in names if _STEP.fullmatch(name)), key=_number)


def _number(step: str) -> int:
    return int(step.partition(".")[0])


def _digest_of(version: str) -> str:
    return version.partition("-")[2][:16]


def _undo_folder(path: str) -> str:
    return f"{UNDO_FOLDER}/{hashlib.sha256(path.encode()).hexdigest()[:24]}"


Command = Literal["view", "create", "str_replace", "insert", "undo_edit"]
SNIPPET_LINES = 4
NUMBER_CHARACTERS = 8
ENTRIES_MAX = 300
_NEEDED = {"create": "file_text", "str_replace": "old_str", "insert": "new_str"}


class EditorParams(BaseModel):
    """View, create and edit text files. view shows a file with its line numbers, or a folder two levels deep; create
    makes a new file; str_replace replaces old_str, which must be in the file exactly once; insert puts new_str after
    line insert_line; undo_edit takes back the newest edit that this tool made to the file."""

    command: Command = Field(description="What to do.")
    path: str = Field(min_length=1, max_length=4096, description=PATH_DESCRIPTION)
    file_text: str | None = Field(default=None, description="For create: the whole contents.")
    old_str: str | None = Field(default=None, description="For str_replace: the text to replace.")
    new_str: str | None = Field(default=None, description="For str_replace and insert: the text to put there.")
    insert_line: int | None = Field(
        default=None, ge=0, description="For insert: the line after which; 0 is the beginning."
    )
    view_range: list[int] | None = Field(
        default=None, description="For view: first and last line, such as [11, 20]; -1 as the last is the end."
    )

    _relative = field_validator("path")(validated_workspace_path)

    @model_validator(mode="after")
    def _is_complete(self) -> "EditorParams":
        needed = _NEEDED.get(self.command)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"{self.command} needs {needed}")
        if self.command == "str_replace" and not self.old_str:
            raise ValueError("old_str is empty")
        if self.command == "insert" and self.insert_line is None:
            raise ValueError("insert needs insert_line")
        if self.view_range is not None and len(self.view_range) != 2:
            raise ValueError("view_range is two numbers, the first and the last line")
        return self


async def run_editor(params: EditorParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    try:
        match params.command:
            case "view":
                entries = await files.list(params.path)
                if not (len(entries) == 1 and entries[0].path == params.path and entries[0].kind != "folder"):
                    if params.view_range is not None:
                        raise ToolError(f"{params.path} is a folder; view it without view_range.")
                    lines: list[str] = []
                    for entry in entries:
                        names = _visible_names([entry])
                        if names and entry.kind == "folder" and len(lines) + 1 < ENTRIES_MAX:
                            names += _visible_names(await files.list(entry.path))
                        lines += names
                    if len(lines) > ENTRIES_MAX:
                        lines[ENTRIES_MAX:] = ["[and more; view the folders inside]"]
                    return "\n".join(lines) or f"[{params.path} holds no files but hidden ones]"
                if entries[0].size_bytes > EDIT_BYTES_MAX:
                    return await _lines(params, files.read(params.path))
                content = await read_editable_bytes(files, params.path)
                context.known_versions[params.path] = file_version(content)
                return await _lines(params, in_one_piece(content))
            case "create":
                made = CreateParams(file_path=params.path, file_contents=params.file_text or "")
                said = await run_create(made, context)
                return said + await save_undo_step(files, params.path, None)
            case "str_replace":
                new = params.new_str or ""
                replaced = ReplaceParams(file_path=params.path, old_str=params.old_str or "", new_str=new)
                edit = await edit_text(context, params.path, lambda text: replace_once(text, replaced))
                note = await save_undo_step(files, params.path, edit.before) + preview_note(params.path, context)
                shown = _snippet(edit.after, edit.line, edit.line + new.count("\n"))
                return f"Edited {params.path} at line {edit.line}.{note}\n{shown}"
            case "insert":
                at, new = params.insert_line or 0, (params.new_str or "").removesuffix("\n")

                def insert(text: str) -> tuple[str, int]:
                    lines = text.split("\n")
                    count = len(lines) - (lines[-1] == "")
                    if at > count:
                        raise ToolError(f"insert_line is {at}, but the file has {count} lines.")
                    added = with_line_ends_of(text, f"{new}\n").removesuffix("\n")
                    return "\n".join([*lines[:at], added, *lines[at:]]), at + 1

                known = context.known_versions.get(params.path)
                if known is None and at:
                    raise ToolError("View the file first: insert_line is the number of a line that you have seen.")
                edit = await edit_text(context, params.path, insert, known=known if known and at else "")
                note = await save_undo_step(files, params.path, edit.before)
                shown = _snippet(edit.after, edit.line, edit.line + new.count("\n"))
                return f"Edited {params.path} after line {at}.{note}\n{shown}"
            case "undo_edit":
                if await undo_newest_edit(files, params.path):
                    return f"Took back the newest edit of {params.path}."
                return f"Took back the creation of {params.path}: it is gone."
    except ToolError as error:
        raise add_path_to_error(params.path, error) from error


async def _lines(params: EditorParams, content: AsyncIterator[bytes]) -> str:
    first, last = params.view_range or (1, -1)
    if first < 1:
        raise ToolError(f"view_range begins at {first}, but lines are counted from 1.")
    if last != -1 and last < first:
        raise ToolError(f"view_range ends at {last}; give {first} or more, or -1 for the end.")
    shown: list[str] = []
    room = READ_CHARACTERS_MAX
    lines = read_numbered_lines(content, params.path, start_line=first, line_characters_max=READ_CHARACTERS_MAX)
    async with aclosing(lines):
        async for number, text in lines:
            if number < first:
                continue
            room -= len(text) + NUMBER_CHARACTERS
            if room < 0 or -1 < last < number:
                if room < 0 and shown:
                    shown.append(f"[cut before line {number}; view on with view_range=[{number}, -1]]")
                elif room < 0:
                    shown.append(with_line_number(number, text[: READ_CHARACTERS_MAX // 2]))
                    how = f"view on with view_range=[{number + 1}, -1]"
                    shown.append(f"[line {number} is longer than can be shown; {how}]")
                break
            shown.append(with_line_number(number, text.removesuffix("\n")))
    if not shown and first > 1:
        raise ToolError(f"{params.path} ends before line {first}.")
    return "\n".join(shown) or "[the file is empty]"


def _visible_names(entries: Sequence[FileEntry]) -> list[str]:
    visible = (entry for entry in entries if not entry.path.rpartition("/")[2].startswith("."))
    return [escape_line_breaks(entry.path) + ("/" if entry.kind == "folder" else "") for entry in visible]


def _snippet(text: str, first: int, last: int) -> str:
    """Returns the edited lines with a few lines of context around them."""
    lines = replace_undecodable(text).split("\n")
    first = max(1, first - SNIPPET_LINES)
    last = min(len(lines), last + SNIPPET_LINES)
    shown: list[str] = []
    room = READ_CHARACTERS_MAX
    for number in range(first, last + 1):
        line = with_line_number(number, lines[number - 1])
        room -= len(line) + 1
        if room < 0 and shown:
            shown.append(f"[cut before line {number}; view on with view_range=[{number}, -1]]")
            break
        shown.append(line[:READ_CHARACTERS_MAX])
    return "\n".join(shown)


_WORDS: dict[Command, str] = {
    "view": "Looking into",
    "create": "Creating",
    "str_replace": "Editing",
    "insert": "Editing",
    "undo_edit": "Taking back an edit of",
}

str_replace_editor = Tool(
    name="str_replace_editor",
    effect="writes",
    reach=STAYS,
    params=EditorParams,
    run=run_editor,
    subject=lambda params: file_subject(params.path),
    title=lambda params: f"{_WORDS[params.command]} {params.path}",
    example={"command": "str_replace", "path": "src/main.py", "old_str": "hello", "new_str": "good morning"},
    requires=("sandbox",),
)
