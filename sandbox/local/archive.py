"""The files of a thread as one compressed archive: packed and unpacked by a program in a jail of its own.

The host opens nothing in a workspace. It sees the archive, and how the program has ended.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.failpoints import Failpoint
from sandbox.inside import packing
from sandbox.local import bwrap
from sandbox.local.bwrap import JailPlan
from sandbox.local.jail import start_process
from sandbox.local.workspaces import Workspace

PACK = Failpoint("sandbox.pack")
UNPACK = Failpoint("sandbox.unpack")
SECONDS_MAX = 1800.0
MEMORY_BYTES = 1 << 30
START = (
    f"import sys; sys.path.insert(0, {bwrap.PROGRAM_FOLDER!r}); "
    "from sandbox.inside.packing import main; main()"
)


class NotPacked(Exception):
    """The files stay as they are; the text is for the operator."""


class BrokenArchive(Exception):
    """The archive is not whole, and its files are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """`plan` makes the plan of a jail for a workspace's folder."""

    executable: Path
    plan: Callable[[Path], JailPlan]
    drops_user: bool

    async def pack(self, workspace: Workspace) -> None:
        """Leaves the archive in place of the folder; cut off, one of the two is whole. Raises NotPacked."""
        with PACK:
            draft = workspace.archive.with_suffix(".part")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                code = await self._run("pack", workspace.path, workspace.uid, descriptor)
                if code != packing.DONE:
                    raise NotPacked(f"packing ended with {code}")
                await asyncio.to_thread(os.fsync, descriptor)
                draft.rename(workspace.archive)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            await asyncio.to_thread(workspace.remove_folder)

    async def unpack(self, workspace: Workspace) -> None:
        """Leaves the folder in place of the archive. Raises BrokenArchive, NotPacked."""
        with UNPACK:
            draft = await asyncio.to_thread(workspace.make_draft)
            descriptor = os.open(workspace.archive, os.O_RDONLY | os.O_CLOEXEC)
            try:
                code = await self._run("unpack", draft, workspace.uid, descriptor)
            finally:
                os.close(descriptor)
            if code == packing.BROKEN:
                raise BrokenArchive
            if code != packing.DONE:
                raise NotPacked(f"unpacking ended with {code}")
            draft.rename(workspace.path)
            workspace.archive.unlink()

    async def _run(
        self, what: Literal["pack", "unpack"], folder: Path, uid: int, descriptor: int
    ) -> int:
        plan = self.plan(folder)
        limits = {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_FSIZE": plan.limits.workspace_bytes}
        with ExitStack() as stack:
            arguments_fd, descriptors = bwrap.arguments(plan, stack)
            command = [
                "bwrap",
                "--args",
                str(arguments_fd),
                "--",
                str(plan.python),
                "-I",
                "-S",
                "-c",
                START,
            ]
            command += [what, str(descriptor), json.dumps(limits)]
            process = start_process(
                self.executable, command, [*descriptors, descriptor], uid, self.drops_user
            )
        try:
            return await asyncio.to_thread(process.wait, SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise NotPacked(f"it takes longer than {SECONDS_MAX:g} s") from error
        finally:
            process.kill()
            process.wait()
