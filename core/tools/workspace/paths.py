"""Paths of the workspace as a model writes them, and what is said about them."""

import unicodedata

from pydantic import BaseModel, Field, field_validator

from core.domain.errors import ToolError

PATH_DESCRIPTION = "Path relative to /workspace."


def workspace_path(path: str) -> str:
    """The path relative to /workspace. Raises ToolError for one that leads out of it, or is none."""
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
    if not cleaned.isprintable() and any(map(_is_control, cleaned)):
        raise ToolError("The path holds control characters; give it without them.")
    return "/".join(parts) or "."


def escape_line_breaks(path: str) -> str:
    """A name as it may stand in a list: whoever chose it cannot add lines to that."""
    return "".join(one.encode("unicode_escape").decode() if _breaks(one) else one for one in path)


def _breaks(character: str) -> bool:
    return _is_control(character) or unicodedata.category(character) in ("Zl", "Zp")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


def with_path_in_error(path: str, error: ToolError) -> ToolError:
    """The sandbox's own sentence, with the file that it is about."""
    if str(error).startswith(f"{path} "):
        return error
    missing = " list_files shows what there is." if "no such file" in str(error) else ""
    return ToolError(f"{path}: {error}{missing}")


class FilePathParams(BaseModel):
    file_path: str = Field(min_length=1, max_length=4096, description=PATH_DESCRIPTION)

    @field_validator("file_path")
    @classmethod
    def _relative(cls, value: str) -> str:
        return validated_workspace_path(value)


def validated_workspace_path(path: str) -> str:
    """`workspace_path` for validators, which may raise ValueError only."""
    try:
        return workspace_path(path)
    except ToolError as error:
        raise ValueError(str(error)) from error
