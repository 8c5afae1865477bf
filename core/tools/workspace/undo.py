"""What files were before they were edited. It lies in the workspace beside them, so that it lives as long as they do,
follows them to a restored sandbox, and is no other thread's."""

import hashlib
import re
from collections.abc import AsyncIterator

from core.domain.errors import ToolError
from core.ports import Files
from core.tools.workspace.files import EDIT_BYTES_MAX

FOLDER = ".undo"
STEPS_MAX = 10
_ABSENT = "absent"
_STEP = re.compile(rf"[0-9]{{6,9}}\.[0-9a-f]{{16}}(\.{_ABSENT})?")
"""Its number, and what the file was after it."""


async def content_of(files: Files, path: str) -> bytes:
    """The bytes of a file that may be edited. Raises ToolError."""
    content = bytearray()
    async for piece in files.read(path, length=EDIT_BYTES_MAX + 1):
        content += piece
    return bytes(content)


async def remember(files: Files, path: str, before: bytes | None) -> None:
    """Keeps what the file was before its newest edit; None: there was none. Only the newest steps are kept."""
    steps = await _steps(files, path)
    number = 1 + (_number(steps[-1]) if steps else 0)
    after = _digest(await content_of(files, path))
    name = f"{number:06}.{after}{f'.{_ABSENT}' if before is None else ''}"
    await files.write(f"{_folder(path)}/{name}", _pieces(before or b""))
    for old in steps[: max(0, len(steps) + 1 - STEPS_MAX)]:
        await files.delete(f"{_folder(path)}/{old}")


async def take_back(files: Files, path: str) -> bool:
    """Makes the file what it was before; False: it is gone, as it was. Raises ToolError where nothing is remembered, or
    where it would take back what something else wrote since."""
    steps = await _steps(files, path)
    if not steps:
        raise ToolError(f"There is no edit of {path} by this tool that could be taken back.")
    step = f"{_folder(path)}/{steps[-1]}"
    is_there = not steps[-1].endswith(_ABSENT)
    if await _is_changed(files, path, steps[-1]):
        way = f"What it was before is in {step}, should you want it back."
        raise ToolError(
            f"{path} was changed by something else since that edit, which would be lost. Nothing was taken back."
            f" {way if is_there else 'The edit had made the file: delete it if nobody wants it.'}"
        )
    if is_there:
        await files.write(path, _pieces(await content_of(files, step)), mode=None)
    else:
        await files.delete(path)
    await files.delete(step)
    return is_there


async def _is_changed(files: Files, path: str, step: str) -> bool:
    """Whether the file is there and is not what the edit made of it."""
    try:
        content = await content_of(files, path)
    except ToolError:
        return False
    return _digest(content) != step.split(".")[1]


async def _steps(files: Files, path: str) -> list[str]:
    """The names of the steps, the oldest first. What somebody else has put there is passed over."""
    try:
        entries = await files.list(_folder(path))
    except ToolError:
        return []
    names = (entry.path.rpartition("/")[2] for entry in entries if entry.kind == "file")
    return sorted((name for name in names if _STEP.fullmatch(name)), key=_number)


def _number(step: str) -> int:
    return int(step.partition(".")[0])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _folder(path: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(path.encode()).hexdigest()[:24]}"


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content
