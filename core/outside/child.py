"""Work on foreign bytes in a child process that cannot take more than its limits, and is gone when the call ends."""

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import asdict
from pathlib import Path

import core
from core.knowledge.document import ParseLimits

_ROOT = Path(core.__file__).parents[1]
_PIECE_BYTES = 1 << 16


class ChildFailed(Exception):
    """The child did not do its work within its limits; `str(error)` says why in a few words."""


async def child_output(
    module: str,
    arguments: dict[str, object],
    content: bytes,
    limits: ParseLimits,
    *,
    bytes_max: int,
) -> bytes:
    """What `python -m module ARGUMENTS LIMITS` writes, given the content on its standard input. Raises ChildFailed."""
    with tempfile.TemporaryFile() as file:
        await asyncio.to_thread(file.write, content)
        file.seek(0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, json.dumps(arguments), json.dumps(asdict(limits))),
            stdin=file,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=_ROOT,
            env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"},
        )
        try:
            async with asyncio.timeout(limits.wall_seconds_max):
                output = await _output(process, bytes_max)
                code = await process.wait()
        except TimeoutError as error:
            raise ChildFailed("it takes too long") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if code != 0:
        raise ChildFailed("it is broken, or takes more than it may")
    return output


async def _output(process: Process, bytes_max: int) -> bytes:
    assert process.stdout is not None  # noqa: S101 - asked for above
    output = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        output += piece
        if len(output) > bytes_max:
            raise ChildFailed("it unpacks to too much")
    return bytes(output)
