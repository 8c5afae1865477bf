"""The toolbox: Python packages and a browser for programs in a sandbox, made by `scripts/setup --toolbox`.

Standard library only: the set-up script imports it before anything is installed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.local.programs import Lacking, Python, is_reachable

INSIDE_FOLDER = "/opt/toolbox"
REPOSITORY = Path(__file__).parents[2]
SHARED_FOLDER = Path("/var/lib/threadhand/toolbox")
REMEDY = "Run: scripts/setup --toolbox"
CHROMIUMS = (
    "/usr/lib/chromium/chromium",  # the program itself: the script in /usr/bin wants files that a jail has not
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium/chromium",
    "/opt/google/chrome/chrome",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """`folder` is on the host and seen inside as /opt/toolbox; the other paths are those inside.

    `more_folders` are bound too, each at its own path.
    """

    folder: Path
    python: str
    chromium: str
    more_folders: tuple[Path, ...] = ()

    @property
    def version(self) -> str:
        """Another one when the packages or the browser are others."""
        browser = Path(self.chromium)
        if self.chromium.startswith(f"{INSIDE_FOLDER}/"):
            browser = self.folder / browser.relative_to(INSIDE_FOLDER)
        parts = [str(path.stat().st_mtime_ns) for path in (self.folder / "pyvenv.cfg", browser)]
        return hashlib.sha256("".join([self.python, self.chromium, *parts]).encode()).hexdigest()[
            :16
        ]

    def bound(self) -> tuple[tuple[Path, str], ...]:
        """The folders of the host, and where each is seen inside."""
        return ((self.folder, INSIDE_FOLDER), *((path, str(path)) for path in self.more_folders))

    def for_the_browser(self) -> dict[str, str]:
        """What the program inside needs to know to start the browser."""
        return {"python": self.python, "chromium": self.chromium}


def toolbox_folder(*, drops_user: bool) -> Path:
    """Where the toolbox belongs: beside `.venv`, unless only this user may enter there."""
    if not drops_user or all(part.stat().st_mode & 0o001 for part in (REPOSITORY / "x").parents):
        return REPOSITORY / ".toolbox"
    return SHARED_FOLDER


def find_toolbox(python: Python, *, drops_user: bool) -> Toolbox:
    """The toolbox for programs of this Python. Raises Lacking where there is none, or none that fits."""
    folder = toolbox_folder(drops_user=drops_user)
    ours = folder / "bin" / "python3"
    if not (folder / "pyvenv.cfg").is_file() or not is_reachable(ours, drops_user=drops_user):
        raise Lacking("The toolbox of the sandbox is not made.", REMEDY)
    if ours.resolve() != python.path.resolve():
        raise Lacking(f"The toolbox is made for {ours.resolve()}, not {python.path}.", REMEDY)
    chromium = find_chromium(folder, drops_user=drops_user)
    if chromium is None:
        raise Lacking("There is no Chromium for the sandbox.", REMEDY)
    inside, more = _seen_inside(chromium, folder)
    return Toolbox(
        folder=folder, python=f"{INSIDE_FOLDER}/bin/python3", chromium=inside, more_folders=more
    )


def find_chromium(folder: Path, *, drops_user: bool) -> Path | None:
    """The system's Chromium or Chrome, else the one in the toolbox."""
    found = (path for path in _chromiums(folder) if is_reachable(path, drops_user=drops_user))
    return next(found, None)


def _chromiums(folder: Path) -> Iterator[Path]:
    yield from map(Path, CHROMIUMS)
    yield from sorted(folder.glob("browsers/chromium-*/chrome-linux*/chrome"), reverse=True)


def _seen_inside(chromium: Path, folder: Path) -> tuple[str, tuple[Path, ...]]:
    if chromium.is_relative_to(folder):
        return f"{INSIDE_FOLDER}/{chromium.relative_to(folder)}", ()
    if chromium.is_relative_to("/usr"):
        return str(chromium), ()
    return str(chromium), (chromium.parent,)
