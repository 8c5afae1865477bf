"""Running a module of ours in a child process, for untrusted input. The process never outlives the call."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import IO, Literal

import core

_ROOT = Path(core.__file__).parents[1]
_PIECE_BYTES = 1 << 16


class ChildStopped(Exception):
    """We killed the child because it ran too long or wrote too much."""

    def __init__(self, reason: Literal["time", "output"]) -> None:
        super().__init__(reason)
        self.reason = reason


async def run_child(
    module: str, *arguments: str, stdin: IO[bytes], seconds_max: float, bytes_max: int
) -> tuple[bytes, int]:
    """Runs `python -m module ARGUMENTS` with an empty environment; returns its output and its exit code.

    Raises ChildStopped. The module sets its own limits on memory and CPU time.
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
    assert process.stdout is not None  # noqa: S101 - requested above
    output = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        output += piece
        if len(output) > bytes_max:
            raise ChildStopped("output")
    return bytes(output)
