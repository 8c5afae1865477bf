"""A child process of ours for foreign bytes, which is gone when the call ends, however it ends."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import IO, Literal

import core

_ROOT = Path(core.__file__).parents[1]
_PIECE_BYTES = 1 << 16


class ChildStopped(Exception):
    """The child was ended by us: it had used up its time, or wrote more than it may."""

    def __init__(self, reason: Literal["time", "output"]) -> None:
        super().__init__(reason)
        self.reason = reason


async def run_child(
    module: str, *arguments: str, stdin: IO[bytes], seconds_max: float, bytes_max: int
) -> tuple[bytes, int]:
    """What `python -m module ARGUMENTS` writes, and its exit code. It sees no environment of ours.

    Raises ChildStopped. Limits of memory and CPU time are the module's own to set.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=_ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"},
    )
    try:
        async with asyncio.timeout(seconds_max):
            return await _output(process, bytes_max), await process.wait()
    except TimeoutError as error:
        raise ChildStopped("time") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _output(process: Process, bytes_max: int) -> bytes:
    assert process.stdout is not None  # noqa: S101 - asked for above
    output = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        output += piece
        if len(output) > bytes_max:
            raise ChildStopped("output")
    return bytes(output)
