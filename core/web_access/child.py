"""Work on foreign bytes in a child process that cannot take more than its limits, and is gone when the call ends."""

import asyncio
import json
import tempfile
from dataclasses import asdict

from core.child_process import ChildStopped, run_child
from core.knowledge.document import ParseLimits


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
        try:
            output, code = await run_child(
                module,
                *(json.dumps(arguments), json.dumps(asdict(limits))),
                stdin=file,
                seconds_max=limits.wall_seconds_max,
                bytes_max=bytes_max,
            )
        except ChildStopped as error:
            why = "it takes too long" if error.reason == "time" else "it unpacks to too much"
            raise ChildFailed(why) from error
    if code != 0:
        raise ChildFailed("it is broken, or takes more than it may")
    return output
