"""The program inside, for a host at the other end of a network that may vanish without a word.

Started like `agent.py`. Two more settings: `silence_seconds_max`, after which it ends because nobody calls any more,
and `browser_places`, where to look for a browser (see `places`; may be missing). The root is the folder it starts in.
The programs of one sandbox find each other in its folder for temporary files.
"""

from __future__ import annotations

import os
import sys
import time

from sandbox.inside import frames
from sandbox.inside.agent import Program, forget, set_limits
from sandbox.inside.lean import loads, signal
from sandbox.inside.link import Call, Link
from sandbox.inside.loop import Loop
from sandbox.inside.places import browser_at
from sandbox.inside.succession import Succession

TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class Vigil:
    """Listens beside the program to what the host says."""

    def __init__(
        self, loop: Loop, link: Link, succession: Succession, silence_seconds_max: float
    ) -> None:
        self._loop = loop
        self._succession = succession
        self._silence_seconds_max = silence_seconds_max
        self._heard_at = time.monotonic()
        self._greeted = link.on_hello
        self._called = link.on_call
        link.on_hello = self._greet
        link.on_call = self._call
        self._look()

    def _greet(self, hello: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        fence = self._succession.take_over(int(hello.get("fence", 0)))
        self._greeted({**hello, "fence": fence if hello.get("fence") else 0})

    def _call(self, call: Call) -> None:
        self._heard_at = time.monotonic()
        if call.request.get("op") == "fence" and isinstance(call.request.get("fence"), int):
            call.request["fence"] = self._succession.take_over(call.request["fence"])
        self._called(call)

    def _look(self) -> None:
        quiet_seconds = time.monotonic() - self._heard_at
        if quiet_seconds >= self._silence_seconds_max:
            self._loop.is_running = False
        else:
            self._loop.later(min(5.0, self._silence_seconds_max - quiet_seconds), self._look)


def forget_browser(state_folder: str) -> None:
    """What need not last would be saved with the sandbox."""
    if os.path.isdir(f"{state_folder}-browser"):
        import shutil  # only here: it takes its time

        shutil.rmtree(f"{state_folder}-browser", ignore_errors=True)


def end_once(number: int, frame: FrameType | None) -> None:
    """A successor asks until it is done; the second time must not cut short what ends the sessions."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def main() -> None:
    settings: dict[str, Any] = {**loads(sys.argv[3]), "root": os.path.realpath(os.getcwd())}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_once)
    set_limits(settings.get("limits", {}))
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    state_folder = f"/tmp/threadhand-{os.urandom(6).hex()}"
    os.umask(0o022)
    succession = Succession(os.path.join(os.environ.get("TMPDIR", "/tmp"), "threadhand-programs"))  # noqa: TID251 - the sandbox's own
    loop = Loop()
    link = Link(loop, read_fd, write_fd)
    program = Program(loop, link, settings, state_folder)
    if settings.get("browser_places"):
        program.find_browser = lambda: browser_at(settings["browser_places"])
    Vigil(loop, link, succession, float(settings["silence_seconds_max"]))
    link.send_hello({"protocol": frames.PROTOCOL, "pid": os.getpid()})
    try:
        loop.run()
    finally:
        program.close()
        succession.leave()
        forget(state_folder)
        forget_browser(state_folder)
