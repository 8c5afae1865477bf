"""Starts the browser's server in the toolbox's Python on first use, and connects calls to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket

from sandbox.inside import processes
from sandbox.inside.event_loop import EventLoop, Timer
from sandbox.inside.host_connection import Call, CallError
from sandbox.inside.socket_relay import SocketRelay

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from typing import Any

START_SECONDS = 30.0
NO_BROWSER = "This sandbox has no browser."
SAID_BYTES_MAX = 300
START = "import sys; sys.path.insert(0, sys.argv.pop()); from sandbox.inside.browser.server import main; main()"


class BrowserLauncher:
    """`settings` names `python` and `chromium`, and perhaps a proxy, as in `BrowserSettings`. None: no browser."""

    def __init__(self, loop: EventLoop, root: str, state_folder: str, settings: dict[str, Any] | None) -> None:
        self._loop = loop
        self._root = root
        self._folder = f"{state_folder}-browser"
        self._settings = settings
        self._process: Any = None
        self._is_ready = False
        self._waiting: list[SocketRelay] = []
        self._deadline: Timer | None = None

    @property
    def server_pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def open(self, call: Call) -> None:
        """Relays the call's data to and from the server. With `restart`, first ends a server that does not respond."""
        if self._settings is None:
            raise CallError(NO_BROWSER, "unknown")
        if call.request.get("restart") is True:
            self.close()
        relay = SocketRelay(self._loop, call)
        if self._process is not None and self._process.poll() is not None:
            self._reset()
        if self._is_ready:
            try:
                self._connect(relay)
                return
            except OSError:  # a killed process closes its socket before it is reaped
                self.close()
        self._waiting.append(relay)
        if self._process is None:
            self._start(self._settings)

    def close(self) -> None:
        """Kills the server and everything it started."""
        process = self._process
        if process is None:
            return
        processes.kill_processes_of({process.pid: "browser"})  # like the bash of a command, it leads a session
        process.wait()
        self._reset()

    def _start(self, settings: dict[str, Any]) -> None:
        import subprocess  # imported late, because the import takes a tenth of the start

        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        environment = os.environ  # noqa: TID251 - the sandbox's own, made by the host
        server_settings = {
            "socket": f"{self._folder}/socket",
            "root": self._root,
            "scratch": f"{self._folder}/scratch",
            "chromium": settings["chromium"],
            "proxy": environment.get("http_proxy") or environment.get("HTTP_PROXY") or "",
            **settings,
        }
        package = os.path.abspath(f"{os.path.dirname(__file__)}/../../..")
        with open(f"{self._folder}/said", "wb") as stderr_file:
            self._process = subprocess.Popen(
                [str(settings["python"]), "-c", START, package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
                start_new_session=True,
                cwd=self._root,
            )
        # not an argument, which every program in the sandbox could read
        self._process.stdin.write(f"{json.dumps(server_settings)}\n".encode())
        self._process.stdin.flush()
        self._loop.on_readable(self._process.stdout.fileno(), self._on_server_output)
        self._deadline = self._loop.call_later(START_SECONDS, self._refuse)

    def _on_server_output(self) -> None:
        if b"ready" in os.read(self._process.stdout.fileno(), 4096):
            self._loop.on_readable(self._process.stdout.fileno(), None)
            self._stop_waiting()
            self._is_ready = True
            waiting, self._waiting = self._waiting, []
            for relay in waiting:
                try:
                    self._connect(relay)
                except OSError as error:
                    relay.refuse(CallError(f"The browser does not answer: {error.strerror}."))
        else:
            self._refuse()

    def _refuse(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.close()
        for relay in waiting:
            relay.refuse(CallError(f"The browser does not start: {self._last_error_line()}"))

    def _last_error_line(self) -> str:
        with contextlib.suppress(OSError), open(f"{self._folder}/said", "rb") as stderr_file:
            lines = stderr_file.read(64 * 1024).decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:SAID_BYTES_MAX] if lines else "there is no error message."
        return "there is no error message."

    def _connect(self, relay: SocketRelay) -> None:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(f"{self._folder}/socket")
        except OSError:
            connected.close()
            raise
        relay.connect(connected)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _reset(self) -> None:
        self._stop_waiting()
        process, self._process, self._is_ready = self._process, None, False
        if process is not None:
            self._loop.on_readable(process.stdout.fileno(), None)
            process.stdin.close()
            process.stdout.close()
