"""Paths of the workspace as a model writes them, and what is said about them."""

import unicodedata

from pydantic import BaseModel, Field, field_validator

from core.domain.errors import ToolError

PATH_NOTE = "Path relative to /workspace."


def inside_workspace(path: str) -> str:
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


def on_one_line(path: str) -> str:
    """A name as it may stand in a list: whoever chose it cannot add lines to that."""
    return "".join(one.encode("unicode_escape").decode() if _breaks(one) else one for one in path)


def _breaks(character: str) -> bool:
    return _is_control(character) or unicodedata.category(character) in ("Zl", "Zp")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


def about(path: str, error: ToolError) -> ToolError:
    """The sandbox's own sentence, with the file that it is about."""
    if str(error).startswith(f"{path} "):
        return error
    missing = " list_files shows what there is." if "no such file" in str(error) else ""
    return ToolError(f"{path}: {error}{missing}")


class WithPath(BaseModel):
    file_path: str = Field(min_length=1, max_length=4096, description=PATH_NOTE)

    @field_validator("file_path")
    @classmethod
    def _relative(cls, value: str) -> str:
        return relative(value)


def relative(path: str) -> str:
    """`inside_workspace` for validators, which may raise ValueError only."""
    try:
        return inside_workspace(path)
    except ToolError as error:
        raise ValueError(str(error)) from error
