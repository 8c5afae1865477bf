"""A jail for the programs that parse documents, pages and images. It has no network and no files except their code.

The content is passed in over stdin, and the result is returned over stdout. Such a jail starts in a hundredth of a
second and is used for one document."""

import platform
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import core
from core.knowledge.parsing.parser_process import ConfinedCommand
from sandbox.local import jail, seccomp
from sandbox.local.jail_requirements import MissingRequirement, is_reachable, require_bwrap
from sandbox.local.workspaces import UIDS

PROBE_SECONDS = 20
UID = UIDS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserJail:
    """The configuration of the jail. `uid` is None if the parsers run as the user of this program, because no other
    user could read its code."""

    bwrap: Path
    folders: tuple[Path, ...]
    uid: int | None

    def confine(self, command: list[str], stack: ExitStack) -> ConfinedCommand:
        """Satisfies `core.knowledge.parsing.parser_process.Confine`."""
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        flags = [*jail.isolation_flags(environment), *jail.system_flags(), "--remount-ro", "/dev"]
        for folder in self.folders:
            flags += ["--ro-bind", str(folder), str(folder)]
        flags += ["--chdir", str(_code_folder().parent)]
        filtering = jail.open_memory_file(seccomp.build_filter(platform.machine(), starts_processes=False), stack)
        flags += ["--seccomp", str(filtering), "--remount-ro", "/"]
        arguments = jail.open_memory_file("\0".join(flags).encode() + b"\0", stack)
        options: dict[str, Any] = {"executable": self.bwrap, "pass_fds": (arguments, filtering), "env": {}, "cwd": "/"}
        if self.uid is not None:
            options |= {"user": self.uid, "group": self.uid, "extra_groups": []}
        return ConfinedCommand(arguments=["bwrap", "--args", str(arguments), "--", *command], options=options)


def require_parser_jail(folder: Path) -> ParserJail:
    """Tries a jail once, which blocks for about 50 ms. `folder` may receive a copy of bubblewrap.

    Raises MissingRequirement."""
    if not seccomp.is_supported(platform.machine()):
        raise MissingRequirement("There is no system call filter for this machine.", "")
    own = {Path(sys.prefix), Path(sys.base_prefix), _code_folder()}
    folders = tuple(sorted(path for path in own if not path.is_relative_to("/usr")))
    drops_user = jail.runs_as_root() and all(is_reachable(path, drops_user=True) for path in own)
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.mkdir(mode=0o755, exist_ok=True)
    found = ParserJail(
        bwrap=require_bwrap(folder, drops_user=drops_user), folders=folders, uid=UID if drops_user else None
    )
    with ExitStack() as stack:
        confined = found.confine([sys.executable, "-c", "import core"], stack)
        try:
            subprocess.run(
                confined.arguments,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=True,
                **confined.options,
            )
        except subprocess.CalledProcessError as error:
            reason = error.stderr.decode(errors="replace").strip()[-300:]
            raise MissingRequirement(f"bubblewrap refused: {reason}", "") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingRequirement(f"bubblewrap does not start: {error}.", "") from error
    return found


def _code_folder() -> Path:
    return Path(core.__file__).parent
