"""How long a large file takes into a local sandbox, and a large archived workspace to be there again."""

import time
from collections.abc import AsyncIterator
from statistics import median

from sandbox.lifecycle_policy import LifecyclePolicy
from tests.bench.figure import Figure, Unmeasurable
from tests.bench.figures.jail import jails

MEGABYTE = 1_000_000
UPLOAD_MEGABYTES = 100
RESTORED_MEGABYTES = 200
TIMES = 3
FILL = """
python3 - <<'END'
import os
for number in range({megabytes}):
    noise = os.urandom(500_000)  # half of it takes no compression
    with open(f"part-{{number}}", "wb") as file:
        file.write(noise + b"a line of text, as programs and people write them\\n" * 10_000)
END
"""


async def upload_s() -> float:
    """From the first byte given to the file in its place, in pieces as an upload brings them."""
    walls: list[float] = []
    piece = bytes(range(256)) * 256

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, UPLOAD_MEGABYTES * MEGABYTE, len(piece)):
            yield piece[: UPLOAD_MEGABYTES * MEGABYTE - start]

    async with jails() as provider:
        files = (await provider.open("upload", fence=1)).files
        for number in range(TIMES):
            started = time.perf_counter()
            written = await files.write(f"file-{number}", pieces())
            walls.append(time.perf_counter() - started)
            assert written == UPLOAD_MEGABYTES * MEGABYTE
    return median(walls)


async def restore_s() -> float:
    """From `open` for an archived thread to a listing of its files."""
    walls: list[float] = []
    async with jails(LifecyclePolicy(stop_after_seconds=0, archive_after_seconds=0)) as provider:
        shell = (await provider.open("restore", fence=1)).shell
        filled = await shell.execute(
            FILL.format(megabytes=RESTORED_MEGABYTES), session="a", folder=None, timeout_seconds=120
        )
        if filled.exit_code != 0:
            raise Unmeasurable(f"the workspace could not be filled: {filled.output[-200:]}")
        for _ in range(TIMES):
            await provider.lifecycle.run_once()  # stops it
            await provider.lifecycle.run_once()  # archives it
            assert provider._workspaces.unpacked_thread_ids() == []
            started = time.perf_counter()
            files = (await provider.open("restore", fence=0)).files
            assert len(await files.list("")) == RESTORED_MEGABYTES
            walls.append(time.perf_counter() - started)
    return median(walls)


UPLOAD = Figure(name="upload_100mb_s", unit="s", bound=1, measure=upload_s)
RESTORE = Figure(name="restore_200mb_s", unit="s", bound=2, measure=restore_s)
