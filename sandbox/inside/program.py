"""The program that runs in every sandbox: reads the host's calls from one byte stream and carries them out.

Started as `agent.py READ_FD WRITE_FD SETTINGS`. SETTINGS is JSON: `root` (the workspace folder), `limits` (names of
RLIMIT_* and numbers), `command_seconds_max`, and optionally `browser` (see `BrowserLauncher`) and `egress` (a file
descriptor, see `send_egress_listener`). The program and everything it started end when the stream ends."""

from __future__ import annotations

import os
import resource
import sys

from sandbox.inside import protocol
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.fast_stdlib import loads, signal
from sandbox.inside.files import FileOperations, describe_os_error
from sandbox.inside.host_connection import Call, CallError, HostConnection
from sandbox.inside.sessions import ShellSessions

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.inside.browser.launcher import BrowserLauncher

    Operation = Callable[[Call], None]


class Program:
    def __init__(self, loop: EventLoop, host: HostConnection, settings: dict[str, Any], state_folder: str) -> None:
        root = str(settings["root"])
        self._loop = loop
        self._host = host
        self._sessions = ShellSessions(loop, root, state_folder, float(settings["command_seconds_max"]))
        self._files = FileOperations(loop, root, self._sessions.refuse_stale_fence)
        self._browser_parts = (loop, root, state_folder)
        self.find_browser: Callable[[], dict[str, str] | None] = lambda: settings.get("browser")
        self._browser_proxy: dict[str, str] = {}
        self._browsers: BrowserLauncher | None = None
        self._operations: dict[str, Operation] = {
            "ping": lambda call: call.answer({}),
            "fence": self._raise_fence,
            "quota": self._set_quota,
            "execute": self._sessions.execute,
            "check": self._sessions.check,
            "keep_running": self._sessions.keep_running,
            "input": self._sessions.type_text,
            "terminate": self._sessions.terminate,
            "sessions": self._sessions.list,
            "interrupt": self._sessions.interrupt,
            "read": self._files.read,
            "write": self._files.write,
            "list": self._files.list,
            "delete": self._files.delete,
            "browser": self._browse,
            "browser_proxy": self._set_browser_proxy,
            "connect": self._connect,
        }
        host.on_hello = self._next_on_hello
        host.on_call = self._call

    def find_browser_pid(self) -> int:
        """Returns the pid of the browser's server, or 0 if there is none."""
        return self._browsers.server_pid if self._browsers is not None else 0

    def close(self) -> None:
        self._host.stop_sending()
        if self._browsers is not None:
            self._browsers.close()
        self._sessions.close()

    def _next_on_hello(self, hello: dict[str, Any]) -> None:
        self._sessions.raise_fence(int(hello.get("fence", 0)), lambda: None)

    def _call(self, call: Call) -> None:
        try:
            operation = self._operations.get(str(call.request.get("op")))
            if operation is None:
                raise CallError("This sandbox cannot do that yet.", "unknown")
            operation(call)
        except CallError as error:
            call.fail(error)
        except OSError as error:
            call.fail(describe_os_error(error))
        except (KeyError, TypeError, ValueError) as error:
            call.fail(CallError(f"The call is malformed: {error!r}.", "malformed"))
        except Exception as error:  # a failing call must not end the sandbox
            call.fail(CallError(f"The sandbox failed to do this: {error!r}.", "broken"))

    def _raise_fence(self, call: Call) -> None:
        self._sessions.raise_fence(int(call.request["fence"]), lambda: call.answer({}))

    def _browse(self, call: Call) -> None:
        from sandbox.inside.browser.launcher import (
            BrowserLauncher,  # imported late, because importing socket takes a tenth of the start
        )

        if self._browsers is None:
            browser = self.find_browser()
            self._browsers = BrowserLauncher(*self._browser_parts, browser and {**browser, **self._browser_proxy})
        self._browsers.open(call)

    def _set_browser_proxy(self, call: Call) -> None:
        """Sets the proxy for browsers that are started from now on."""
        self._browser_proxy = {name: str(call.request[name]) for name in ("proxy", "proxy_user", "proxy_password")}
        call.answer({})

    def _connect(self, call: Call) -> None:
        from sandbox.inside.socket_relay import PortConnector  # imported late, for the same reason

        PortConnector(self._loop).connect(call)

    def _set_quota(self, call: Call) -> None:
        self._files.full_message = str(call.request["full_message"])
        call.answer({})


def main() -> None:
    settings = loads(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_rlimits(settings.get("limits", {}))
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(read_fd, False)
    os.set_inheritable(write_fd, False)
    state_folder = f"/tmp/threadhand-{os.urandom(6).hex()}"
    os.umask(0o022)
    loop = EventLoop()
    host = HostConnection(loop, read_fd, write_fd)
    program = Program(loop, host, settings, state_folder)
    if settings.get("egress") is not None:
        # imported late, for the same reason
        from sandbox.inside import socket_relay
        from sandbox.inside.browser.gate import BrowserGate

        to_host = socket_relay.send_egress_listener(int(settings["egress"]))
        BrowserGate(loop, to_host, program.find_browser_pid)
    host.send_hello({"protocol": protocol.PROTOCOL_VERSION, "pid": os.getpid()})
    try:
        loop.run()
    finally:
        program.close()
        remove_folder(state_folder)


def set_rlimits(limits: dict[str, int]) -> None:
    """Sets hard limits for this program and everything it starts. A lower limit already in force stays."""
    for name, amount in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(number, (value, value))


def remove_folder(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
    except OSError:
        return  # in a jail /tmp is removed anyway


if __name__ == "__main__":
    main()
