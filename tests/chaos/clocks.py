"""Clocks that jump. Debian's libfaketime changes a process's time of day, but not its monotonic clock."""

from pathlib import Path

from tests.requirements_of_the_machine import is_required, lacking

LIBRARY = "*/faketime/libfaketimeMT.so.1"


class Clock:
    """The time of day of processes that are started with `environment`. They must be able to read `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        found = _libraries()
        if not found:
            lacking("faketime", "there is no libfaketime (Debian: faketime)")
        self._path = folder / f"{name}.clock"
        self.jump(0)
        self.environment = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def jump(self, seconds: int) -> None:
        """Sets the clock to the machine's time plus `seconds`."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.chmod(0o644)
        new.replace(self._path)


def clocks_that_jump(folder: Path, count: int) -> tuple[Clock, ...]:
    """Returns `count` clocks, or none if the machine has no libfaketime and it is not required."""
    if not _libraries() and not is_required("faketime"):
        return ()
    return tuple(Clock(folder, f"clock{number}") for number in range(count))


def _libraries() -> list[Path]:
    return sorted(Path("/usr/lib").glob(LIBRARY))
