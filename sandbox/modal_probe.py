"""Which programs and Python packages a Modal sandbox has: looked up in one, once a process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import modal

from sandbox.modal_image import MODULES, PROBED

PROBE_SECONDS = 30
ANSWER_BYTES_MAX = 64 * 1024
SCRIPT = """\
for name in {programs}; do command -v "$name" >/dev/null && echo "program $name"; done
python3 -c '
import importlib.util
for name in "{modules}".split():
    if importlib.util.find_spec(name): print("module", name)
'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Only names that were asked for, in that order."""

    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


async def found_in(sandbox: modal.Sandbox) -> Found:
    """Raises the SDK's errors, TimeoutError."""
    script = SCRIPT.format(programs=" ".join(PROBED), modules=" ".join(MODULES))
    async with asyncio.timeout(PROBE_SECONDS):
        process = await sandbox.exec.aio(
            "sh", "-c", script, timeout=PROBE_SECONDS, text=False, bufsize=-1
        )
        answer = b""
        async for piece in cast("AsyncIterator[bytes]", process.stdout):
            answer += piece[: ANSWER_BYTES_MAX - len(answer)]
        lines = {tuple(line.split()) for line in answer.decode(errors="replace").splitlines()}
    return Found(
        programs=tuple(name for name in PROBED if ("program", name) in lines),
        modules=tuple(name for name in MODULES if ("module", name) in lines),
    )
