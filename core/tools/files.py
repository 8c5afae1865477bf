"""Reading and writing files of the workspace. Paths are relative to /workspace."""

from collections.abc import AsyncIterator

from pydantic import BaseModel, Field, field_validator

from core.errors import ToolError
from core.ports import Files
from core.tools.text import lines_of, text_lines, whole_text
from core.tools.tool import Tool, ToolContext, ToolOutput

READ_BYTES_MAX = 100_000
EDIT_BYTES_MAX = 5_000_000
PLACES_NAMED_MAX = 10
LISTED_MAX = 500
PATH_NOTE = "Path relative to /workspace."


def inside_workspace(path: str) -> str:
    """The path relative to /workspace. Raises ToolError for one that leads out of it, or is none."""
    cleaned = path.strip()
    if cleaned == "/workspace":
        return "."
    cleaned = cleaned.removeprefix("/workspace/")
    if cleaned.startswith("/"):
        raise ToolError(f"{path} is outside /workspace; give a path relative to /workspace.")
    parts = [part for part in cleaned.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{path} climbs with '..'; give a path relative to /workspace without it.")
    if any(ord(character) < 32 for character in cleaned):
        raise ToolError("The path holds control characters.")
    return "/".join(parts) or "."


class WithPath(BaseModel):
    file_path: str = Field(min_length=1, max_length=4096, description=PATH_NOTE)

    @field_validator("file_path")
    @classmethod
    def _relative(cls, value: str) -> str:
        try:
            return inside_workspace(value)
        except ToolError as error:
            raise ValueError(str(error)) from error


class CreateParams(WithPath):
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
            f"{params.file_path} exists already. Use full_file_rewrite to replace it or str_replace to edit it."
        )
    mode = int(params.permissions, 8) & 0o777
    size = await _write(files, params.file_path, params.file_contents, mode)
    return f"Created {params.file_path} ({size} bytes).{_preview(params.file_path, context)}"


class RewriteParams(WithPath):
    """Replace a file as a whole with new contents; it is made where there is none."""

    file_contents: str = Field(description="The whole new contents.")
    permissions: str = Field(
        default="644", pattern="^[0-7]{3,4}$", description="Octal permissions."
    )


async def run_rewrite(params: RewriteParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    mode = int(params.permissions, 8) & 0o777
    size = await _write(files, params.file_path, params.file_contents, mode)
    return f"Wrote {params.file_path} ({size} bytes).{_preview(params.file_path, context)}"


class ReplaceParams(WithPath):
    """Replace one piece of a text file. old_str must be in the file exactly once, to the letter, with its spaces."""

    old_str: str = Field(min_length=1, description="The text to replace.")
    new_str: str = Field(description="The text to put there.")


async def run_replace(params: ReplaceParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    text, encoding = await whole_text(files, params.file_path, bytes_max=EDIT_BYTES_MAX)
    count = text.count(params.old_str)
    if count == 0:
        raise ToolError(
            f"old_str is not in {params.file_path}. Read the file and copy the text exactly, spaces included."
        )
    if count > 1:
        lines = ", ".join(
            str(line) for line in lines_of(text, params.old_str, places_max=PLACES_NAMED_MAX)
        )
        raise ToolError(
            f"old_str is in {params.file_path} {count} times, at the lines {lines}. Take more of the text around it."
        )
    line = text[: text.index(params.old_str)].count("\n") + 1
    # an edit keeps a script executable and a file in its encoding
    mode = 0o755 if text.startswith("#!") else 0o644
    edited = text.replace(params.old_str, params.new_str)
    await _write(files, params.file_path, edited, mode, encoding=encoding)
    return f"Edited {params.file_path} at line {line}.{_preview(params.file_path, context)}"


class DeleteParams(WithPath):
    """Delete a file, or a folder with all that is in it."""


async def run_delete(params: DeleteParams, context: ToolContext) -> str:
    if params.file_path == ".":
        raise ToolError("The workspace itself is not deleted; name what is in it.")
    await (await context.sandbox()).files.delete(params.file_path)
    return f"Deleted {params.file_path}."


class ReadParams(WithPath):
    """Read a text file, whole or from start_line to end_line (both counted from 1 and included). Long files come cut;
    ask for ranges then."""

    start_line: int = Field(default=1, ge=1, description="First line to read.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to read.")


async def run_read(params: ReadParams, context: ToolContext) -> str:
    files = (await context.sandbox()).files
    wanted: list[str] = []
    size, number, cut = 0, 0, False
    async for line in text_lines(files, params.file_path, line_characters_max=READ_BYTES_MAX):
        number += 1
        if number < params.start_line:
            continue
        if params.end_line is not None and number > params.end_line:
            break
        size += len(line)
        if size > READ_BYTES_MAX:
            cut = True
            break
        wanted.append(line)
    if not wanted and not cut:
        return f"[{params.file_path} is empty]" if number == 0 else f"[it has only {number} lines]"
    end = f"\n[cut after line {number - 1}; read on with start_line={number}]" if cut else ""
    return "".join(wanted) + end


class ListParams(BaseModel):
    """List the files and folders in a folder of the workspace, with their sizes."""

    path: str = Field(default=".", max_length=4096, description=PATH_NOTE)


async def run_list(params: ListParams, context: ToolContext) -> ToolOutput:
    entries = await (await context.sandbox()).files.list(inside_workspace(params.path))
    lines = [
        f"{entry.path}/" if entry.kind == "folder" else f"{entry.path} ({entry.size_bytes} bytes)"
        for entry in entries[:LISTED_MAX]
    ]
    if len(entries) > LISTED_MAX:
        lines.append(f"[and {len(entries) - LISTED_MAX} more]")
    return ToolOutput(output="\n".join(lines) or "[the folder is empty]")


async def _exists(files: Files, path: str) -> bool:
    try:
        await files.list(path)
    except ToolError:
        return False
    return True


async def _write(files: Files, path: str, text: str, mode: int, *, encoding: str = "utf-8") -> int:
    async def pieces() -> AsyncIterator[bytes]:
        yield text.encode(encoding, "replace")

    return await files.write(path, pieces(), mode=mode)


def _preview(path: str, context: ToolContext) -> str:
    if not path.lower().endswith((".html", ".htm")):
        return ""
    url = context.preview_url(path)
    return f" People can open it at {url}" if url else ""


create_file = Tool(
    name="create_file",
    params=CreateParams,
    run=run_create,
    title=lambda params: f"Creating {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello')\n"},
    content_parameter="file_contents",
)
full_file_rewrite = Tool(
    name="full_file_rewrite",
    params=RewriteParams,
    run=run_rewrite,
    title=lambda params: f"Writing {params.file_path}",
    example={"file_path": "src/main.py", "file_contents": "print('hello again')\n"},
    content_parameter="file_contents",
    is_idempotent=True,
)
str_replace = Tool(
    name="str_replace",
    params=ReplaceParams,
    run=run_replace,
    title=lambda params: f"Editing {params.file_path}",
    example={"file_path": "src/main.py", "old_str": "hello", "new_str": "good morning"},
)
delete_file = Tool(
    name="delete_file",
    params=DeleteParams,
    run=run_delete,
    title=lambda params: f"Deleting {params.file_path}",
    example={"file_path": "src/old.py"},
)
read_file = Tool(
    name="read_file",
    params=ReadParams,
    run=run_read,
    title=lambda params: f"Reading {params.file_path}",
    example={"file_path": "notes.md", "start_line": 1, "end_line": 40},
    is_idempotent=True,
)
list_files = Tool(
    name="list_files",
    params=ListParams,
    run=run_list,
    title=lambda params: f"Looking into {params.path}",
    example={"path": "src"},
    is_idempotent=True,
)
