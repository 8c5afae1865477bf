"""What befalls one process, until it runs again as before."""

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
    """As an operator ends it."""
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
    """Started anew, it dies or stops at the failpoint and comes back; False where it did not come by there.

    `is_up` is set when there should be work for it.
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
    """Whether it was stopped by a signal."""
    try:
        said = Path(f"/proc/{program.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return said.rpartition(")")[2].split()[0] == "T"
