"""Calls of deployed functions: each is a child process with the deployed code and the environment of its Secrets."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/bin:/usr/bin:/bin"
RUN = """
import asyncio, importlib, json, os, sys
sys.path[:] = [one for one in sys.path if not os.path.isdir(f"{one}/simulator")]  # of an editable installation
module, name, given = sys.argv[1:]
args, kwargs = json.loads(given)
answer = getattr(importlib.import_module(module), name).local(*args, **kwargs)
if asyncio.iscoroutine(answer):
    asyncio.run(answer)
"""


@dataclass(slots=True, kw_only=True)
class FunctionCall:
    """`process` is None where calls are only written down."""

    call_id: str
    function: str
    args: Sequence[object]
    log_path: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""


class FunctionCalls:
    """In order of their beginnings in `made`; only written down there until `execute` says where the code is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packages: Path | None = None
        self.made: list[FunctionCall] = []

    def execute(self, entry: Path, packages: Path) -> None:
        """From here on calls are executed. `entry` is the deployed file, which a container has alone, beside the
        `packages` that its image took along."""
        self._folder.mkdir(exist_ok=True)
        shutil.copy(entry, self._folder)
        self._packages = packages

    async def begin(
        self,
        call_id: str,
        target: tuple[str, str],
        given: tuple[Sequence[object], Mapping[str, object]],
        environment: Mapping[str, str],
    ) -> None:
        """`target` are the module and the name of the function. It is executed beside the caller, who waits for
        nothing but its start. Raises OSError."""
        module, name = target
        log_path = self._folder / f"{call_id}.log"
        call = FunctionCall(call_id=call_id, function=name, args=given[0], log_path=log_path)
        self.made.append(call)
        if self._packages is None:
            return
        with log_path.open("ab") as log:
            call.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", RUN, module, name, json.dumps(given)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"PATH": PATH, **environment, "PYTHONPATH": f"{self._folder}:{self._packages}"},
                start_new_session=True,
            )

    async def close(self) -> None:
        for call in self.made:
            if call.process is not None and call.is_running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(call.process.pid, signal.SIGKILL)
                await call.process.wait()
