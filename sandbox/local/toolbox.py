"""Finds the toolbox: a folder of Python packages and a browser for programs in a sandbox.

`scripts/setup --toolbox` makes it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.local.jail_requirements import MissingRequirement, PythonInstallation, is_reachable

INSIDE_FOLDER = "/opt/toolbox"
REPOSITORY = Path(__file__).parents[2]
SHARED_FOLDER = Path("/var/lib/threadhand/toolbox")
REMEDY = "Run: scripts/setup --toolbox"
CHROMIUMS = (
    "/usr/lib/chromium/chromium",  # the binary: the script in /usr/bin needs files that a jail lacks
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium/chromium",
    "/opt/google/chrome/chrome",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxToolbox:
    """`folder` is the path on the host, mounted as /opt/toolbox; the other paths are inside the jail.

    `more_folders` are mounted too, each at its own path."""

    folder: Path
    python: str
    chromium: str
    more_folders: tuple[Path, ...] = ()

    @property
    def version(self) -> str:
        """A hash that changes when the packages or the browser change."""
        browser = Path(self.chromium)
        if self.chromium.startswith(f"{INSIDE_FOLDER}/"):
            browser = self.folder / browser.relative_to(INSIDE_FOLDER)
        parts = [str(path.stat().st_mtime_ns) for path in (self.folder / "pyvenv.cfg", browser)]
        return hashlib.sha256("".join([self.python, self.chromium, *parts]).encode()).hexdigest()[:16]

    def mounts(self) -> tuple[tuple[Path, str], ...]:
        """Returns pairs of a host folder and its path inside the jail."""
        return ((self.folder, INSIDE_FOLDER), *((path, str(path)) for path in self.more_folders))

    def browser_settings(self) -> dict[str, str]:
        """Returns the settings with which the program inside starts the browser."""
        return {"python": self.python, "chromium": self.chromium}


def toolbox_folder(*, drops_user: bool) -> Path:
    """Returns where the toolbox belongs: next to `.venv`, unless other users cannot enter that folder."""
    if not drops_user or all(part.stat().st_mode & 0o001 for part in (REPOSITORY / "x").parents):
        return REPOSITORY / ".toolbox"
    return SHARED_FOLDER


def require_toolbox(python: PythonInstallation, *, drops_user: bool) -> SandboxToolbox:
    """Returns the toolbox for this Python. Raises MissingRequirement if there is none that fits."""
    folder = toolbox_folder(drops_user=drops_user)
    ours = folder / "bin" / "python3"
    if not (folder / "pyvenv.cfg").is_file() or not is_reachable(ours, drops_user=drops_user):
        raise MissingRequirement("The toolbox of the sandbox is not installed.", REMEDY)
    if ours.resolve() != python.path.resolve():
        raise MissingRequirement(f"The toolbox is made for {ours.resolve()}, not {python.path}.", REMEDY)
    chromium = find_chromium(folder, drops_user=drops_user)
    if chromium is None:
        raise MissingRequirement("There is no Chromium for the sandbox.", REMEDY)
    inside, more = _path_inside(chromium, folder)
    return SandboxToolbox(folder=folder, python=f"{INSIDE_FOLDER}/bin/python3", chromium=inside, more_folders=more)


def find_chromium(folder: Path, *, drops_user: bool) -> Path | None:
    """Returns the system's Chromium or Chrome, else the one in the toolbox, or None."""
    found = (path for path in _chromium_candidates(folder) if is_reachable(path, drops_user=drops_user))
    return next(found, None)


def _chromium_candidates(folder: Path) -> Iterator[Path]:
    yield from map(Path, CHROMIUMS)
    yield from sorted(folder.glob("browsers/chromium-*/chrome-linux*/chrome"), reverse=True)


def _path_inside(chromium: Path, folder: Path) -> tuple[str, tuple[Path, ...]]:
    if chromium.is_relative_to(folder):
        return f"{INSIDE_FOLDER}/{chromium.relative_to(folder)}", ()
    if chromium.is_relative_to("/usr"):
        return str(chromium), ()
    return str(chromium), (chromium.parent,)
