"""Follows the commands that the model has left in the background, and notifies the model once when one of them has
ended."""

import asyncio
from collections.abc import Sequence

from core.context.message_text import stored_call
from core.context.untrusted_text import clean_line, wrap_untrusted
from core.domain.errors import RunError, ToolError
from core.domain.events import CommandEnded
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.loop.calls import CallOutcome
from core.tools.shell import session_left_by_call
from core.tools.tool import ToolContext, ToolSet

CHECK_SECONDS = 5.0
OUTPUT_CHARACTERS_MAX = 1_000
OUTPUT_BYTES = 8_000
COMMAND_CHARACTERS_MAX = 100
FOLLOWED_MAX = 20
EARLIER = (
    "Commands were left in the background earlier in this conversation: {commands}. They may have been stopped since;"
    " check_command_output shows what became of them."
)
GONE = (
    "The command {command} in the background of the session {session} no longer runs: its session is gone, because the"
    " sandbox or the session was stopped. Start it again if it is still needed."
)
ENDED = "The command {command} in the background of the session {session} has ended with exit code {code}."


class BackgroundCommands:
    """The commands of one thread that may still run, by session. Checks the sandbox only after the run has used it, so
    that it never starts a sandbox."""

    def __init__(self, history: Sequence[Message], context: ToolContext, toolbox: ToolSet) -> None:
        self._context = context
        self._toolbox = toolbox
        self._commands: dict[str, str] = {}
        self._has_sandbox = False
        for message in history:
            if (call := stored_call(message)) is not None:
                self._follow(*call)
        self._is_earlier_told = not self._commands

    def record_turn(self, outcomes: Sequence[CallOutcome]) -> None:
        """Records which commands the calls of a turn have left running, and which have ended."""
        for one in outcomes:
            tool = self._toolbox.tools.get(one.call.name)
            has_run = one.outcome in ("completed", "failed")
            if has_run and tool is not None and "sandbox" in tool.requires:
                self._has_sandbox = True
            self._follow(one.call.name, one.call.arguments, one.result)

    async def take_notes(self) -> tuple[str, ...]:
        """Returns notes for the model's next turn: which commands have ended, or were left running by an earlier
        run."""
        lines: list[str] = []
        if self._has_sandbox:
            for session, command in [*self._commands.items()][:FOLLOWED_MAX]:
                if line := await self._sentence_if_ended(session, command):
                    del self._commands[session]
                    lines.append(line)
        elif not self._is_earlier_told:
            shown = [f"{_shown(one)} ({clean_line(name, 64)})" for name, one in self._commands.items()]
            lines.append(EARLIER.format(commands=", ".join(shown[-FOLLOWED_MAX:])))
        self._is_earlier_told = True
        text = "\n".join(lines)
        return (f"[Note from the system, not from a person] {text}",) if lines else ()

    async def _sentence_if_ended(self, session: str, command: str) -> str:
        """Returns a sentence about a command that has ended, or an empty text while it runs."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                shown = await (await self._context.sandbox()).shell.check(session, end_bytes=OUTPUT_BYTES)
        except (RunError, ToolError):
            self._tell_people(session, None)
            return GONE.format(command=_shown(command), session=clean_line(session, 64))
        except TimeoutError:
            return ""
        if shown.exit_code is None:
            return ""
        self._tell_people(session, shown.exit_code)
        line = ENDED.format(command=_shown(command), session=clean_line(session, 64), code=shown.exit_code)
        output = shown.output[-OUTPUT_CHARACTERS_MAX:].strip()
        if not output:
            return f"{line} It printed nothing."
        return f"{line} The end of its output:\n{wrap_untrusted(output, source='the command')}"

    def _tell_people(self, session: str, exit_code: int | None) -> None:
        self._context.emit(CommandEnded(session=session, exit_code=exit_code))

    def _follow(self, name: str, arguments: JsonObject, result: JsonObject) -> None:
        session = session_left_by_call(name, arguments, result)
        if session is None:
            return
        known = self._commands.pop(session.name, "")
        if session.is_running:
            self._commands[session.name] = session.command or known


def _shown(command: str) -> str:
    return f"`{clean_line(command, COMMAND_CHARACTERS_MAX).replace('`', chr(39))}`"
