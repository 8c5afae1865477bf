"""Validates workspace paths that a model wrote, and formats paths for error messages and lists."""

import unicodedata
from contextlib import suppress

from pydantic import BaseModel, Field, field_validator

from core.domain.errors import FileMissing, ToolError

PATH_DESCRIPTION = "Path relative to /workspace."


def workspace_path(path: str) -> str:
    """Returns the path relative to /workspace.

    Raises ToolError if the path leaves /workspace or has control characters.
    """
    cleaned = path.strip()
    if cleaned == "/workspace":
        return "."
    if cleaned.startswith("/workspace/"):
        cleaned = cleaned.removeprefix("/workspace/").lstrip("/")
    if cleaned.startswith("/"):
        raise ToolError(f"{path} is outside /workspace; give a path relative to /workspace.")
    parts = [part for part in cleaned.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{path} climbs with '..'; give a path relative to /workspace without it.")
    if not cleaned.isprintable() and not {"Cc", "Cs"}.isdisjoint(map(unicodedata.category, cleaned)):
        raise ToolError("The path holds control characters; give it without them.")
    return "/".join(parts) or "."


def file_subject(path: str) -> str:
    """Returns the `Tool.subject` of a call that uses this file or folder of the workspace."""
    with suppress(ToolError):
        path = workspace_path(path)
    return "files" if path == "." else f"files/{path}"


def escape_line_breaks(path: str) -> str:
    """Escapes line breaks and control characters in a path, so that a file name cannot add lines to a list."""
    breaks = ("Cc", "Cs", "Zl", "Zp")
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in breaks else character
        for character in path
    )


def add_path_to_error(path: str, error: ToolError) -> ToolError:
    """Returns the error with the file's path added, because the sandbox's own message may not name the file."""
    if str(error).startswith((f"{path} ", f"{path}: ")):
        return error
    hint = " list_files shows what there is." if isinstance(error, FileMissing) else ""
    return type(error)(f"{path}: {error}{hint}")


def validated_workspace_path(path: str) -> str:
    """Same as `workspace_path`, but raises ValueError, which pydantic validators require."""
    try:
        return workspace_path(path)
    except ToolError as error:
        raise ValueError(str(error)) from error


class FilePathParams(BaseModel):
    file_path: str = Field(min_length=1, max_length=4096, description=PATH_DESCRIPTION)

    _relative = field_validator("file_path")(validated_workspace_path)
