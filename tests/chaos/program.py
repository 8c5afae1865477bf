"""The program as a child process of the tests: started as an operator starts it, and killed without mercy."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.paths import REPOSITORY

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "COVERAGE_PROCESS_START")


class Program:
    """`python -m bots up` with the settings given; its output goes to `log_path`.

    `environment` holds variables that are no settings; the command `wrapped_in` is put before it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.log_path = folder / "program.log"
        self.environment: dict[str, str] = {}
        self.wrapped_in: tuple[str, ...] = ()
        self.settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_before = 0

    def start(self, *, failpoints: str = "", arguments: tuple[str, ...] = ("up",)) -> None:
        """Starts it anew. It must not be running."""
        assert self._process is None or self._process.poll() is not None
        self._log_before = len(self.log())
        known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}  # noqa: TID251 - tests
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.wrapped_in, sys.executable, "-m", "bots", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={
                    **known,
                    "HOME": str(self.folder),
                    "PYTHONPATH": str(REPOSITORY),
                    "PYTHONUNBUFFERED": "1",
                    **self.environment,
                    **self.settings,
                    "THREADHAND_FAILPOINTS": failpoints,
                },
                start_new_session=True,
            )

    def beside(self, name: str) -> "Program":
        """Another one with the same settings, environment and folder, and a log of its own."""
        other = Program(self.folder, self.settings)
        other.environment |= self.environment
        other.log_path = self.folder / f"{name}.log"
        return other

    def change(self, **settings: str) -> None:
        """Settings (without their prefix, in small letters) for the next start."""
        self.settings |= {f"THREADHAND_{name.upper()}": text for name, text in settings.items()}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; -9 after a SIGKILL."""
        return self._process.poll() if self._process else None

    async def ended(self, seconds: float = 30) -> int:
        """Its exit code, once it has one. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while (code := self.returncode) is None:
                await asyncio.sleep(0.02)
        return code

    def terminate(self) -> None:
        """Asks it to end, as an operator does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Stops it where it is, as a machine does that is asleep; `resume` wakes it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still, by `pause` or by its own hand."""
        if not self.is_running:
            return False
        status = Path(f"/proc/{self.pid}/stat").read_text()
        return status.rpartition(") ")[2].startswith("T")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def log_of_this_start(self) -> str:
        return self.log()[self._log_before :]

    def memory_bytes_peak(self) -> int:
        """The most memory that was resident at once."""
        return self._memory("VmHWM:")

    def memory_bytes(self) -> int:
        """What is resident now."""
        return self._memory("VmRSS:")

    def _memory(self, figure: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(figure):
                return int(line.split()[1]) * 1024
        raise AssertionError("the machine does not tell")
