"""The first process of a simulated container: starts commands, tells how they end, and ends them all with itself.

Runs alone, as the text of this file, with the descriptor of a SOCK_SEQPACKET socket. Standard library only.
"""

import json
import os
import selectors
import signal
import socket
import sys
from typing import Any

MESSAGE_BYTES_MAX = 1 << 20
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    adopt_orphans()
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    wake_out, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_in)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    selector.register(wake_out, selectors.EVENT_READ)
    running: dict[int, str] = {}
    is_open = True
    while is_open:
        for key, _ in selector.select():
            if key.fileobj is control:
                is_open = take(control, running)
            else:
                os.read(wake_out, 4096)
        reap(control, running)
    end_all()


def take(control: socket.socket, running: dict[int, str]) -> bool:
    """One message; False when there will be no more."""
    try:
        text, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 3)
    except OSError:
        return False
    if not text:
        return False
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # else whatever is started holds the streams open
    message = json.loads(text)
    name = message["id"]
    if "argv" in message:
        pid, problem = start(message, descriptors)
        if problem:
            tell(control, {"id": name, "problem": problem})
        else:
            running[pid] = name
            tell(control, {"id": name, "pid": pid})
    else:
        for pid in [pid for pid, its in running.items() if its == name]:
            kill_group(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def start(message: dict[str, Any], descriptors: list[int]) -> tuple[int, str]:
    """The pid, and why it could not be started."""
    failed_out, failed_in = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        become(message, descriptors, failed_in)
    os.close(failed_in)
    with os.fdopen(failed_out, "rb") as failed:
        problem = failed.read().decode()
    if problem:
        os.waitpid(pid, 0)
    return pid, problem


def become(message: dict[str, Any], descriptors: list[int], failed: int) -> None:
    """In the child: never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for caught in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
            signal.signal(caught, signal.SIG_DFL)
        os.setsid()
        os.chdir(message["cwd"])
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.execvpe(message["argv"][0], message["argv"], message["env"])  # noqa: S606 - what it is for
    except OSError as error:
        os.write(failed, f"{message['argv'][0]}: {error.strerror}".encode())
    finally:
        os._exit(127)


def reap(control: socket.socket, running: dict[int, str]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid in running:
            tell(control, {"id": running.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def tell(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        return  # the host is gone; the next read says so


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        return


def adopt_orphans() -> None:
    """Outside a namespace of its own too, what loses its parent becomes ours, so that we can end it."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Kills all descendants, until there are none."""
    for _ in range(100):
        children = sorted(descendants())  # parents first: none is to see its child stopped
        if not children:
            return
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in children:
                try:
                    os.kill(pid, how)
                except OSError:
                    continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


def descendants() -> set[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a short start matters here
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in b"ZX":
                parents[int(name)] = int(fields[1])
    found = {os.getpid()}
    grew = True
    while grew:
        grown = {pid for pid, parent in parents.items() if parent in found} - found
        found |= grown
        grew = bool(grown)
    return found - {os.getpid()}


if __name__ == "__main__":
    main()
