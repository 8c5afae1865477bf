"""Which programs and Python packages a Modal sandbox has, and whether a browser: looked up in one, once a process."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import modal

from sandbox.inside import places
from sandbox.local.toolbox import CHROMIUMS, INSIDE_FOLDER
from sandbox.modal.image import MODULES, PROBED

PROBE_SECONDS = 30
ANSWER_BYTES_MAX = 64 * 1024
BROWSER_PLACES = {
    "pythons": [f"{INSIDE_FOLDER}/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"],
    "chromiums": [
        *CHROMIUMS,
        f"{INSIDE_FOLDER}/browsers/chromium-*/chrome-linux*/chrome",
        "/usr/bin/chromium",
    ],
}
"""Each sandbox looks there for itself: what one thread did to its own says nothing of the others'."""
SCRIPT = """\
for name in {programs}; do command -v "$name" >/dev/null && echo "program $name"; done
python3 -c '
import importlib.util
for name in "{modules}".split():
    if importlib.util.find_spec(name): print("module", name)
'
python3 -c "$1" "$2"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Only names that were asked for, in that order. `has_browser` is None as long as nobody has looked."""

    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    has_browser: bool | None = None


async def found_in(sandbox: modal.Sandbox) -> Found:
    """Raises the SDK's errors, TimeoutError."""
    script = SCRIPT.format(programs=" ".join(PROBED), modules=" ".join(MODULES))
    async with asyncio.timeout(PROBE_SECONDS):
        process = await sandbox.exec.aio(
            *("sh", "-c", script, "sh", _looking_for_a_browser(), json.dumps(BROWSER_PLACES)),
            timeout=PROBE_SECONDS,
            text=False,
            bufsize=-1,
        )
        answer = b""
        async for piece in cast("AsyncIterator[bytes]", process.stdout):
            answer += piece[: ANSWER_BYTES_MAX - len(answer)]
        lines = {tuple(line.split()) for line in answer.decode(errors="replace").splitlines()}
    return Found(
        programs=tuple(name for name in PROBED if ("program", name) in lines),
        modules=tuple(name for name in MODULES if ("module", name) in lines),
        has_browser=("browser",) in lines,
    )


def _looking_for_a_browser() -> str:
    return Path(places.__file__).read_text("utf-8")
