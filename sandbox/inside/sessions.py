"""The named shell sessions and their operations: run, check, type, interrupt, terminate."""

from __future__ import annotations

import os
import time

from sandbox.inside import processes
from sandbox.inside.event_loop import EventLoop, Timer
from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import Call, CallError
from sandbox.inside.shell import Shell
from sandbox.inside.terminal import OutputFiles

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SESSIONS_MAX = 64
COMMAND_BYTES_MAX = 1024 * 1024
INTERRUPT_STEP_SECONDS = 0.4


class ShellSessions:
    """`limit_seconds` is the maximum duration of a command."""

    def __init__(self, loop: EventLoop, root: str, state_folder: str, limit_seconds: float) -> None:
        self._loop = loop
        self._root = root
        self._files = OutputFiles(state_folder)
        self._limit_seconds = limit_seconds
        self._shells: dict[str, Shell] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self.fence = 0

    def execute(self, call: Call) -> None:
        request = call.request
        self.refuse_stale(call)
        name, command = str(request["session"]), str(request["command"])
        if len(command) > COMMAND_BYTES_MAX or "\0" in command:
            raise CallError("The command is too long or contains NUL; put it in a file first.")
        folder = self._folder(request.get("folder"))
        shell = self._shell(name, folder)
        shell.run(command, folder)
        limit = self._loop.call_later(self._limit_seconds, lambda: self._over_limit(shell, command))
        self._when_ended(name, limit.cancel)
        self._answer_when_ended(call, name, float(request["timeout_seconds"]))

    def check(self, call: Call) -> None:
        name = self._known(call.request)
        self._answer_when_ended(call, name, float(call.request.get("timeout_seconds", 0)))

    def keep_running(self, call: Call) -> None:
        """Marks the session's command as left in the background, so that a higher fence does not end it."""
        self.refuse_stale(call)
        shell = self._shells.get(str(call.request["session"]))
        if shell is not None:
            shell.is_kept = True
        call.answer({})

    def type_text(self, call: Call) -> None:
        self.refuse_stale(call)
        shell = self._shells[self._known(call.request)]
        if not shell.is_running:
            raise CallError("No command is running in this session that could read input.")
        text = str(call.request["text"]).encode("utf-8", "surrogateescape")

        def done(left: int) -> None:
            if left:
                taken = f"{len(text) - left} of {len(text)} bytes of the input"
                call.fail(CallError(f"The session took only {taken}; the rest was not typed."))
            call.answer({})

        shell.type_text(text, done)

    def terminate(self, call: Call) -> None:
        self.refuse_stale(call)
        shell = self._shells.pop(self._known(call.request))
        shell.kill()
        self._changed(shell)
        call.answer({})

    def list(self, call: Call) -> None:
        now = time.monotonic()
        call.answer(
            {
                "sessions": [
                    {
                        "name": shell.name,
                        "command": shell.command[:4000],
                        "is_running": shell.is_running,
                        "running_seconds": now - shell.started_at if shell.is_running else 0.0,
                    }
                    for shell in self._shells.values()
                ]
            }
        )

    def interrupt(self, call: Call) -> None:
        self.refuse_stale(call)
        self.interrupt_all(lambda: call.answer({}))

    def refuse_stale(self, call: Call) -> None:
        """Refuses a call of a run that has lost the sandbox to a newer one."""
        if int(call.request["fence"]) < self.fence:
            raise CallError("Another run uses this sandbox now.", "stale")

    def raise_fence(self, fence: int, done: Callable[[], None]) -> None:
        """Ends the commands that a run with a lower fence still waits for, and refuses its new ones.

        Commands that were left in the background run on.
        """
        if fence <= self.fence:
            done()
            return
        self.fence = fence
        self.interrupt_all(done, spares_kept=True)

    def interrupt_all(self, done: Callable[[], None], *, spares_kept: bool = False) -> None:
        """Sends Ctrl-C, then SIGKILL to the foreground group, then kills the session.

        Calls `done` when all have ended.
        """
        running = [shell for shell in self._shells.values() if shell.is_running and not (spares_kept and shell.is_kept)]
        if not running:
            done()
            return
        left = len(running)

        def ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for shell in running:
            self._when_ended(shell.name, ended)
            self._interrupt(shell)

    def close(self) -> None:
        for shell in self._shells.values():
            shell.kill()

    def _interrupt(self, shell: Shell) -> None:
        count = shell.count  # a later command in the same shell is not interrupted

        def step(action: Callable[[], object]) -> Callable[[], None]:
            def act() -> None:
                if shell.is_running and shell.count == count:
                    action()

            return act

        doomed: set[int] = set()
        interrupted: set[int] = set()

        def interrupt(*, is_first: bool = False) -> None:
            """Interrupts a group once: a second Ctrl-C would interrupt its clean-up after the first.

            The shell itself is not interrupted at first: it may be about to start a command.
            """
            group = shell.foreground
            if group not in interrupted and not (is_first and shell.is_shell_group(group)):
                interrupted.add(group)
                doomed.update(shell.command_processes())
                shell.signal_command(signal.SIGINT)

        self._when_ended(shell.name, lambda: kill_processes(doomed))  # including processes that left the group
        step(shell.cancel_pending)()
        step(lambda: interrupt(is_first=True))()
        for part in (0.1, 0.3, 0.6):
            self._loop.call_later(part * INTERRUPT_STEP_SECONDS, step(interrupt))
        self._loop.call_later(INTERRUPT_STEP_SECONDS, step(lambda: shell.signal_command(signal.SIGKILL)))
        self._loop.call_later(2 * INTERRUPT_STEP_SECONDS, step(shell.kill))

    def _over_limit(self, shell: Shell, command: str) -> None:
        if shell.is_running and shell.command == command:
            shell.output.add(b"\n[stopped: the command exceeded the time limit]\n")
            self._interrupt(shell)

    def _shell(self, name: str, folder: str | None) -> Shell:
        shell = self._shells.get(name)
        if shell is not None and shell.is_running:
            raise CallError(
                f"The session {name!r} is still running {shell.command[:200]!r}. Check its output, "
                "terminate it, or use another session."
            )
        if shell is not None and not shell.is_dead:
            return shell
        if shell is None and len(self._shells) >= SESSIONS_MAX:
            raise CallError(f"There are {SESSIONS_MAX} sessions; terminate some first.")
        mark = os.urandom(8).hex() if shell is None else shell.mark
        fresh = Shell(
            self._loop, self._files, name, folder or self._root, mark=mark, on_change=lambda: self._changed(fresh)
        )
        self._shells[name] = fresh
        return fresh

    def _folder(self, folder: Any) -> str | None:
        if folder is None:
            return None
        path = os.path.join(self._root, str(folder))
        if not os.path.isdir(path):
            raise CallError(f"There is no folder {folder}.")
        return path

    def _known(self, request: dict[str, Any]) -> str:
        name = str(request["session"])
        if name not in self._shells:
            known = ", ".join(sorted(self._shells)) or "none"
            raise CallError(f"There is no session {name!r}. Sessions: {known}.")
        return name

    def _changed(self, shell: Shell) -> None:
        for callback in self._waiting.pop(shell.name, []):
            callback()

    def _when_ended(self, name: str, callback: Callable[[], None]) -> None:
        self._waiting.setdefault(name, []).append(callback)

    def _answer_when_ended(self, call: Call, name: str, timeout_seconds: float) -> None:
        shell = self._shells[name]
        timer: Timer | None = None

        def answer() -> None:
            if timer is not None:
                timer.cancel()
            waiting = self._waiting.get(name, [])
            if answer in waiting:
                waiting.remove(answer)  # the timeout has passed, but the command still runs
            call.answer(_answer(shell, self._root))

        if not shell.is_running or timeout_seconds <= 0:
            answer()
            return
        timer = self._loop.call_later(timeout_seconds, answer)
        self._when_ended(name, answer)


def kill_processes(pids: set[int]) -> None:
    for pid in pids:
        processes.send_signal(pid, signal.SIGKILL)


def _answer(shell: Shell, root: str) -> dict[str, Any]:
    text, dropped, path = shell.output.read()
    folder = shell.folder
    if folder == root or folder.startswith(root + "/"):
        folder = "/workspace" + folder[len(root) :]
    return {
        "output": text,
        "exit_code": shell.exit_code,
        "folder": os.fsencode(folder).decode("utf-8", "replace"),
        "dropped_bytes": dropped,
        "output_path": path,
    }
