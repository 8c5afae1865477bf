"""Runs the program as a child process of the tests, started as an operator starts it."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.fork_server import PASSED_ON, ForkedProcess, start_program
from tests.paths import REPOSITORY
from tests.support.narrow import require


class Program:
    """`python -m bots up` with the given settings. Its output goes to `log_path`.

    `environment` holds additional variables that are not settings. `wrapped_in` is a command prefix. Unless `is_forked`
    is true, the program is started anew instead of being forked from a process that has imported it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.log_path = folder / "program.log"
        self.environment: dict[str, str] = {}
        self.wrapped_in: tuple[str, ...] = ()
        self.is_forked = True
        self.settings = dict(settings)
        self._process: ForkedProcess | None = None
        self._log_before = 0

    def start(self, *, failpoints: str = "", arguments: tuple[str, ...] = ("up",)) -> None:
        """Starts the program, which must not be running."""
        assert self._process is None or self._process.poll() is not None
        self._log_before = len(self.log())
        known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}  # noqa: TID251 - tests
        with self.log_path.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self._process = start_program(
                arguments,
                folder=self.folder,
                environment={
                    **known,
                    "HOME": str(self.folder),
                    "PYTHONPATH": str(REPOSITORY),
                    "PYTHONUNBUFFERED": "1",
                    **self.environment,
                    **self.settings,
                    "THREADHAND_FAILPOINTS": failpoints,
                },
                stdin=nothing.fileno(),
                stdout=log.fileno(),
                stderr=log.fileno(),
                prefix=self.wrapped_in,
                is_forked=self.is_forked,
            )

    def beside(self, name: str) -> "Program":
        """Returns another program with the same settings, environment and folder, and its own log."""
        other = Program(self.folder, self.settings)
        other.environment |= self.environment
        other.log_path = self.folder / f"{name}.log"
        return other

    def change(self, **settings: str) -> None:
        """Changes settings for the next start. Names are lower-case and without the prefix THREADHAND_."""
        self.settings |= {f"THREADHAND_{name.upper()}": text for name, text in settings.items()}

    @property
    def pid(self) -> int:
        return require(self._process).pid

    @property
    def returncode(self) -> int | None:
        """The exit code: None while the program runs, -9 after a SIGKILL."""
        return self._process.poll() if self._process else None

    async def ended(self, seconds: float = 30) -> int:
        """Waits until the program ends and returns its exit code. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while (code := self.returncode) is None:
                await asyncio.sleep(0.02)
        return code

    def terminate(self) -> None:
        """Sends SIGTERM, as an operator does to stop the program."""
        require(self._process).send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Sends SIGSTOP, which freezes the program as a sleeping machine does, until `resume`."""
        require(self._process).send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        require(self._process).send_signal(signal.SIGCONT)

    @property
    def is_stopped(self) -> bool:
        """Whether the program is frozen, by `pause` or by a failpoint."""
        if not self.is_running:
            return False
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False  # it ended meanwhile
        return status.rpartition(") ")[2].startswith("T")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kills the program if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Returns the program's output so far."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def log_of_this_start(self) -> str:
        return self.log()[self._log_before :]

    def memory_bytes_peak(self) -> int:
        """Returns the program's peak resident memory."""
        return self._memory("VmHWM:")

    def memory_bytes(self) -> int:
        """Returns the program's current resident memory."""
        return self._memory("VmRSS:")

    def _memory(self, figure: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(figure):
                return int(line.split()[1]) * 1024
        raise AssertionError("the machine does not tell")


def armed_at(place: str, at: str, action: str) -> str:
    """Returns the setting that arms a failpoint, whose name ends with `.before` or `.after`.

    `at` is the pass: `step`, `step:number`, `:number`, or "" for the first one. A step is a function that is being
    executed (core/failpoints.py).
    """
    step, _, number = at.partition(":")
    return f"{place}{step and '@' + step}:{action}:{number or 1}"
