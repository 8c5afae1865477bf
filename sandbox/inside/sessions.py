"""The named shell sessions and their operations: run, check, type, interrupt, terminate.

A session is a folder and variables. Each of its commands has a name: the session's, or `session#2` and so on if other
commands of the session still run."""

from __future__ import annotations

import os
import time
from itertools import count

from sandbox.inside import processes
from sandbox.inside.captured_output import OutputFiles
from sandbox.inside.event_loop import EventLoop, Timer
from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import Call, CallError
from sandbox.inside.shell import Command, SessionState, Shell

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SESSIONS_MAX = 64
COMMAND_BYTES_MAX = 1024 * 1024
FOLDER_CHARACTERS_MAX = (
    1000  # of a folder that is shown; the host ends the connection if a path is longer than paths can be
)
INTERRUPT_SECONDS = 0.4
FORGET_SECONDS = 1.0
ENVIRONMENT = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}


class ShellSessions:
    """`limit_seconds` is the maximum duration of a command."""

    def __init__(self, loop: EventLoop, root: str, state_folder: str, limit_seconds: float) -> None:
        self._loop = loop
        self._root = root
        self._files = OutputFiles(state_folder)
        self._limit_seconds = limit_seconds
        self._states: dict[str, SessionState] = {}
        self._newest: dict[str, Command] = {}  # by name
        self._living: list[Command] = []  # whose processes may live
        self._spare: Shell | None = None
        self._forgetting: Timer | None = None
        self.fence = 0
        signal.signal(signal.SIGCHLD, lambda number, frame: loop.call_from_thread(self._end_exited))

    def execute(self, call: Call) -> None:
        request = call.request
        self.refuse_stale_fence(call)
        session, text = str(request["session"]).partition("#")[0], str(request["command"])
        if len(text) > COMMAND_BYTES_MAX or "\0" in text:
            raise CallError("The command is too long or contains NUL; put it in a file first.")
        state = self._state(session)
        folder = request.get("folder")
        if folder is not None:
            path = os.path.join(self._root, str(folder))
            if not os.path.isdir(path):
                raise CallError(f"There is no folder {folder}.")
            state.folder = path
        elif not (os.path.isdir(state.folder) and os.access(state.folder, os.X_OK)):
            gone, state.folder = self._shown_folder(state.folder), self._root
            raise CallError(
                f"The folder {gone} of this session is gone, so nothing was run. The next command starts in /workspace."
            )
        command = self._start(session, state, text)
        limit = self._loop.call_later(self._limit_seconds, lambda: self._over_limit(command))

        def ended() -> None:
            limit.cancel()
            self._loop.call_later(0, lambda: self._start_spare(state))

        command.on_end.append(ended)
        self._answer_when_ended(call, command, float(request["timeout_seconds"]))

    def check(self, call: Call) -> None:
        """Answers when the command has ended, when it has printed the text `until`, or after the timeout."""
        command = self._known(call.request)
        until = str(call.request.get("until") or "").encode("utf-8", "surrogateescape")
        self._answer_when_ended(call, command, float(call.request.get("timeout_seconds", 0)), until)

    def keep_running(self, call: Call) -> None:
        """Marks a command as left in the background, so that a higher fence does not end it."""
        self.refuse_stale_fence(call)
        command = self._newest.get(str(call.request["session"]))
        if command is not None:
            command.is_kept = True
        call.answer({})

    def type_text(self, call: Call) -> None:
        self.refuse_stale_fence(call)
        command = self._known(call.request)
        if not command.is_running:
            raise CallError("No command is running in this session that could read input.")
        text = str(call.request["text"]).encode("utf-8", "surrogateescape")

        def done(left: int) -> None:
            if left:
                taken = f"{len(text) - left} of {len(text)} bytes of the input"
                call.fail(CallError(f"The session took only {taken}; the rest was not typed."))
            call.answer({})

        command.output.bytes_before_input = command.output.total_bytes
        command.terminal.write(text, done)

    def terminate(self, call: Call) -> None:
        """Kills the command and everything that earlier commands of the same name have left running."""
        self.refuse_stale_fence(call)
        name = self._known(call.request).name
        self._kill([command for command in self._living if command.name == name])
        del self._newest[name]
        if not call.request.get("keeps_state"):
            self._states.pop(name, None)
        call.answer({})

    def list(self, call: Call) -> None:
        now = time.monotonic()
        call.answer(
            {
                "sessions": [
                    {
                        "name": command.name,
                        "command": command.text[:4000],
                        "is_running": command.is_running,
                        "running_seconds": now - command.started_at if command.is_running else 0.0,
                    }
                    for command in self._newest.values()
                ]
            }
        )

    def interrupt(self, call: Call) -> None:
        self.refuse_stale_fence(call)
        self.interrupt_all(lambda: call.answer({}))

    def refuse_stale_fence(self, call: Call) -> None:
        """Refuses a call of a run that has lost the sandbox to a newer one."""
        if int(call.request["fence"]) < self.fence:
            raise CallError("Another run uses this sandbox now.", "stale")

    def raise_fence(self, fence: int, done: Callable[[], None]) -> None:
        """Ends the commands that a run with a lower fence still waits for, and refuses its new ones.

        Commands that were left in the background run on."""
        if fence <= self.fence:
            done()
            return
        self.fence = fence
        self.interrupt_all(done, spares_kept=True)

    def interrupt_all(self, done: Callable[[], None], *, spares_kept: bool = False) -> None:
        """Sends Ctrl-C to the running commands, then kills what is left of them. Calls `done` when all have ended."""
        running = [command for command in self._living if command.is_running and not (spares_kept and command.is_kept)]
        left = len(running)

        def ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for command in running:
            command.on_end.append(ended)
            self._interrupt(command)
        if not running:
            done()

    def close(self) -> None:
        self._kill(self._living)
        if self._spare is not None:
            self._spare.discard()

    def _state(self, session: str) -> SessionState:
        """Returns the state of a session, which becomes the newest. Forgets the oldest of too many idle ones."""
        state = self._states.pop(session, None)
        if state is None:
            state = SessionState(self._root, {**os.environ, **ENVIRONMENT})  # noqa: TID251 - the sandbox's own
        self._states[session] = state
        if len(self._states) > SESSIONS_MAX:
            busy = {command.name.partition("#")[0] for command in self._living if command.is_running}
            del self._states[next(name for name in self._states if name not in busy)]
        return state

    def _start(self, session: str, state: SessionState, text: str) -> Command:
        names = (session if number == 1 else f"{session}#{number}" for number in count(1))
        name = next(one for one in names if one not in self._newest or not self._newest[one].is_running)
        if sum(command.terminal.is_open for command in self._living) >= SESSIONS_MAX:
            raise CallError(f"{SESSIONS_MAX} commands run already; terminate some first.")
        shell, self._spare = self._spare, None
        if shell is None or not shell.fits(state):
            if shell is not None:
                shell.discard()
            shell = Shell(self._files, state, self._root)
        command = Command(self._loop, self._files, shell, name=name, text=text)
        self._living.append(command)
        try:
            shell.begin(text)
        except CallError:
            self._kill([command])
            raise
        earlier = self._newest.pop(name, None)
        if earlier is not None:
            earlier.output.free_memory()
        self._newest[name] = command
        ended = [one for one, command in self._newest.items() if not command.is_running]
        for one in ended[: max(0, len(self._newest) - SESSIONS_MAX)]:
            del self._newest[one]
        return command

    def _interrupt(self, command: Command) -> None:
        def kill() -> None:
            self._kill([command])

        command.on_end.insert(0, self._loop.call_later(INTERRUPT_SECONDS, kill).cancel)
        command.on_end.insert(0, kill)  # including those that have left the group, before anybody is notified
        command.interrupt()

    def _over_limit(self, command: Command) -> None:
        command.output.add(b"\n[stopped: the command exceeded the time limit]\n")
        self._interrupt(command)

    def _kill(self, commands: list[Command]) -> None:
        """Kills commands with everything that they started."""
        processes.kill_processes_of({command.pid: command.mark for command in commands})
        self._living = [command for command in self._living if command not in commands]
        for command in commands:
            command.finish_killed()

    def _end_exited(self) -> None:
        for command in self._living:
            command.end_if_exited()
        if self._forgetting is None:
            self._forgetting = self._loop.call_later(FORGET_SECONDS, self._forget_ended)

    def _start_spare(self, state: SessionState) -> None:
        """Starts the shell of the session's next command ahead of time: that takes longer than most commands run."""
        if self._spare is not None:
            self._spare.discard()
            self._spare = None
        try:
            self._spare = Shell(self._files, state, self._root)
        except CallError:
            return  # the next command tries again, and reports the error

    def _forget_ended(self) -> None:
        """Forgets the commands that have left no process running, because their pids may be reused."""
        self._forgetting = None
        living = set(processes.processes_of({command.pid: command.mark for command in self._living}).values())
        self._living = [command for command in self._living if command.is_running or command.pid in living]

    def _known(self, request: dict[str, Any]) -> Command:
        name = str(request["session"])
        if name not in self._newest:
            known = ", ".join(sorted(self._newest)) or "none"
            raise CallError(f"There is no session {name!r}. Sessions: {known}.")
        return self._newest[name]

    def _answer_when_ended(self, call: Call, command: Command, timeout_seconds: float, until: bytes = b"") -> None:
        timer: Timer | None = None

        def answer(*, is_found: bool = False) -> None:
            if timer is not None:
                timer.cancel()
            if answer in command.on_end:
                command.on_end.remove(answer)  # the command still runs
            call.answer({**self._answer(command, call.request.get("end_bytes")), "is_found": is_found})

        is_found = bool(until) and command.output.call_when_printed(until, lambda: answer(is_found=True))
        if is_found or not command.is_running or timeout_seconds <= 0:
            answer(is_found=is_found)
            return
        timer = self._loop.call_later(timeout_seconds, answer)
        command.on_end.append(answer)

    def _answer(self, command: Command, end_bytes: int | None) -> dict[str, Any]:
        text, dropped, path = command.output.read(end_bytes)
        session = command.name.partition("#")[0]
        others = (other for other in self._newest.values() if other.name.partition("#")[0] == session)
        return {
            "session": command.name,
            "output": text,
            "exit_code": command.exit_code,
            "folder": self._shown_folder(command.folder),
            "dropped_bytes": dropped,
            "output_path": path,
            "has_jobs": command.has_jobs,
            "also_running": [other.name for other in others if other.is_running and other is not command],
        }

    def _shown_folder(self, folder: str) -> str:
        if folder == self._root or folder.startswith(self._root + "/"):
            folder = "/workspace" + folder[len(self._root) :]
        return os.fsencode(folder[:FOLDER_CHARACTERS_MAX]).decode("utf-8", "replace")
