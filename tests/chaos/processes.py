"""Kills, freezes or stops a process, and restores it afterwards."""

import asyncio
import time
from pathlib import Path

from tests.chaos.program import Program

END_SECONDS = 60.0


async def killed(program: Program, arguments: tuple[str, ...], seconds: float) -> None:
    program.kill()
    await asyncio.sleep(seconds)
    program.start(arguments=arguments)


async def frozen(program: Program, seconds: float) -> None:
    program.pause()
    await asyncio.sleep(seconds)
    program.resume()


async def ended(program: Program, arguments: tuple[str, ...], seconds: float) -> None:
    """Stops the program with SIGTERM, as an operator does, and restarts it after `seconds`."""
    program.terminate()
    await program.ended(END_SECONDS)
    await asyncio.sleep(seconds)
    program.start(arguments=arguments)


async def armed(
    program: Program,
    arguments: tuple[str, ...],
    failpoint: str,
    seconds: float,
    *,
    patience_seconds: float,
    is_up: asyncio.Event,
) -> bool:
    """Restarts the program with a failpoint that kills or stops it, then restores it after `seconds`.

    Returns False if the program does not reach the failpoint within `patience_seconds`. Sets `is_up` once the program
    has started, so that the caller can give it work.
    """
    program.kill()
    program.start(arguments=arguments, failpoints=failpoint)
    deadline = time.monotonic() + patience_seconds
    while program.is_running and not stands_still(program):
        if time.monotonic() > deadline:
            await killed(program, arguments, 0)
            return False
        if program.log_of_this_start():
            is_up.set()
        await asyncio.sleep(0.05)
    await asyncio.sleep(seconds)
    if program.is_running:
        program.resume()
    else:
        program.start(arguments=arguments)
    return True


def stands_still(program: Program) -> bool:
    """Whether the program was stopped by a signal."""
    try:
        said = Path(f"/proc/{program.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return said.rpartition(")")[2].split()[0] == "T"
