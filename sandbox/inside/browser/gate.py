"""Hands the internet connections of the browser over to the host, and refuses those of all other programs."""

from __future__ import annotations

import contextlib
import os
import socket

from sandbox.inside import processes
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.socket_relay import BACKLOG, BROWSER_PORT, EGRESS_PROXY_HOST

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

ANCESTORS_MAX = 10
"""How many ancestors of a process are searched for the browser's server. Chromium's network service is a child of
Chromium, which Playwright's driver starts for the server."""
ESTABLISHED = "01"


class BrowserGate:
    """Listens at BROWSER_PORT. Pages may reach hosts that commands may not, so a connecting process must be a
    descendant of the browser's server. `server_pid` returns the pid of the server, or 0 if there is none."""

    def __init__(self, loop: EventLoop, to_host: socket.socket, server_pid: Callable[[], int]) -> None:
        self._to_host = to_host
        self._server_pid = server_pid
        self._newest_pid = 0
        self._listening = socket.socket()
        self._listening.bind((EGRESS_PROXY_HOST, BROWSER_PORT))
        self._listening.listen(BACKLOG)
        self._listening.setblocking(False)
        loop.on_readable(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connected, (_, port) = self._listening.accept()
        except OSError:
            return
        with connected:
            if self._is_of_browser(port):
                try:
                    socket.send_fds(self._to_host, [b"browser"], [connected.fileno()])
                except OSError:
                    return  # the host no longer accepts connections

    def _is_of_browser(self, port: int) -> bool:
        name = f"socket:[{_inode_of(port)}]"
        server_pid = self._server_pid()
        if not server_pid:
            return False
        others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
        for pid in (self._newest_pid, *others):
            if _descends(pid, server_pid) and _has_open(pid, name):
                self._newest_pid = pid
                return True
        return False


def _inode_of(port: int) -> str:
    """Returns the inode of the socket that is connected to the gate from this port, or 0."""
    ends = (f"0100007F:{port:04X}", f"0100007F:{BROWSER_PORT:04X}")
    with open("/proc/net/tcp") as table:
        for line in table:
            fields = line.split()
            if (fields[1], fields[2]) == ends and fields[3] == ESTABLISHED:
                return fields[9]
    return "0"


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(ANCESTORS_MAX):
        if pid in (0, ancestor):
            break
        pid, _ = processes.parent_and_session(pid)
    return pid == ancestor


def _has_open(pid: int, name: str) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False  # the process has ended
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # the descriptor was closed meanwhile
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") == name:
                return True
    return False
