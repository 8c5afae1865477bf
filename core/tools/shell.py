"""Tools that run commands in the sandbox, in named sessions that keep their folder and variables."""

import re
import time
import unicodedata

from pydantic import BaseModel, Field, field_validator

from core.domain.call_consent import STAYS, Reach
from core.domain.call_targets import HOST, normalize_target
from core.domain.events import ToolProgressed
from core.domain.json import JsonObject
from core.ports import CommandOutput, Shell, ShellSession
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import validated_workspace_path

DEFAULT_SESSION = "default"
COMMAND_TITLE_CHARACTERS = 80
SHOWN_COMMAND_CHARACTERS = 4000  # how much of a session's newest command the program in the sandbox reports
WAIT_SECONDS = 10
BLOCKING_SECONDS = 60
BLOCKING_SECONDS_MAX = 600
INPUT_CHARACTERS_MAX = 4000
INPUT_LINE_BYTES_MAX = 4095
"""A terminal silently drops the rest of a longer line."""
LOOK_SECONDS = 5.0
"""How often the end of a command's output is read while a call waits for the command."""
HEAR_SECONDS = 1.0
"""How often a call that waits for a command checks whether users have written."""
OUTPUT_END_BYTES = 4_000
HOSTS_MAX = 20
INPUT_SECONDS = 1.0
"""How long to wait for a program's output after text was typed into it."""


class ExecuteParams(BaseModel):
    """Run a shell command in the sandbox. Sessions keep folder, variables and functions, but no options such as
    set -e. After the timeout a command goes on in the background, and you are told when it ends."""

    command: str = Field(min_length=1)
    folder: str | None = Field(default=None, description="Folder to run in, below /workspace.")
    session_name: str | None = Field(default=None, max_length=64, description="The session, made on first use.")
    blocking: bool = Field(default=False, description="Wait 60 seconds.")
    timeout: int | None = Field(
        default=None, ge=0, le=BLOCKING_SECONDS_MAX, description="Seconds to wait, 10 if not given. 0 for servers."
    )
    hosts: tuple[str, ...] = Field(default=(), description="Refused hosts it needs.")

    @property
    def wait_seconds(self) -> int:
        if self.timeout is not None:
            return self.timeout
        return BLOCKING_SECONDS if self.blocking else WAIT_SECONDS

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > HOSTS_MAX:
            raise ValueError(f"a command can have at most {HOSTS_MAX} hosts")
        if strange := next((host for host in value if not normalize_target(host).startswith(HOST)), None):
            raise ValueError(f"{strange[:100]!r} is not a host such as example.net")
        return value

    @field_validator("folder")
    @classmethod
    def _relative(cls, value: str | None) -> str | None:
        return validated_workspace_path(value) if value and value.strip() else None


async def run_execute(params: ExecuteParams, context: ToolContext) -> ToolOutput:
    shell = (await context.sandbox()).shell
    session = params.session_name or DEFAULT_SESSION
    shown = await execute_and_watch(shell, params.command, session, context, params.folder, params.wait_seconds)
    if shown.exit_code is None:
        await shell.keep_running(shown.session)
        hint = (
            f"still running after {params.wait_seconds} s and going on in the background; "
            f"check_command_output(session_name={shown.session!r}, wait_seconds=...) waits for it."
        )
        return ToolOutput(output=_report(shown, hint))
    return ToolOutput(output=_report(shown, ""), is_success=shown.exit_code == 0)


async def execute_and_watch(
    shell: Shell, command: str, session: str, context: ToolContext, folder: str | None, wait_seconds: float
) -> CommandOutput:
    """Runs a command and waits at most `wait_seconds` for it. Meanwhile reports the last line of its output."""
    end = time.monotonic() + wait_seconds
    first_seconds = min(wait_seconds, LOOK_SECONDS)
    shown = await shell.execute(command, session=session, folder=folder, timeout_seconds=first_seconds)
    if shown.exit_code is None and wait_seconds > first_seconds:
        shown = await _watch_command(shell, shown.session, context, end)
    return shown


async def _watch_command(
    shell: Shell, session: str, context: ToolContext, end: float, *, until: str = "", hears_people: bool = False
) -> CommandOutput:
    """Waits for a command until the monotonic time `end`, or until it has printed the text `until`, or with
    `hears_people` until users have written. Meanwhile reports the last line of the output."""
    look_seconds = HEAR_SECONDS if hears_people else LOOK_SECONDS
    while (left := end - time.monotonic()) > 0:
        glance = await shell.check(
            session, timeout_seconds=min(left, look_seconds), until=until, end_bytes=OUTPUT_END_BYTES
        )
        # colours may have hidden the text from the sandbox
        if glance.exit_code is not None or glance.is_found or (until and until in glance.output):
            break
        context.emit(ToolProgressed(line=glance.output.rstrip().rpartition("\n")[2]))
        if hears_people and await context.has_unread():
            break
    return await shell.check(session)


async def session_of_call(shell: Shell, params: ExecuteParams) -> str:
    """Returns the name under which a call's command runs, or an empty string if it does not run any more."""
    shown = params.command[:SHOWN_COMMAND_CHARACTERS]
    session = params.session_name or DEFAULT_SESSION
    same = [
        one
        for one in await shell.sessions()
        if one.is_running and one.command == shown and one.name.partition("#")[0] == session.partition("#")[0]
    ]
    found = min(same, key=lambda one: one.running_seconds, default=None)
    return found.name if found else ""


class CheckParams(BaseModel):
    """See the output so far of a session's newest command, and its exit code if it has ended. Use wait_seconds instead
    of polling."""

    session_name: str = Field(description="The session.")
    wait_seconds: int = Field(
        default=0, ge=0, le=BLOCKING_SECONDS_MAX, description="Wait for its end, for `until`, or for people to write."
    )
    until: str = Field(default="", max_length=1000, description="A text to wait for.")
    input: str | None = Field(
        default=None,
        max_length=INPUT_CHARACTERS_MAX,
        description="What to type first for the running program. Enter is pressed after it, unless it ends in a control"
        " character such as \\u0004 (Ctrl-D).",
    )
    kill_session: bool = Field(default=False, description="Kill it afterwards.")

    @field_validator("input")
    @classmethod
    def _check_lines(cls, value: str | None) -> str | None:
        if any(len(line.encode()) > INPUT_LINE_BYTES_MAX for line in (value or "").splitlines()):
            raise ValueError(f"a line may have at most {INPUT_LINE_BYTES_MAX} bytes; put the text into a file")
        return value


async def run_check(params: CheckParams, context: ToolContext) -> ToolOutput:
    shell = (await context.sandbox()).shell
    if params.input is not None:
        # presses Enter, unless the text ends in a control character
        is_control = params.input != "" and unicodedata.category(params.input[-1]) == "Cc"
        await shell.type_text(params.session_name, params.input if is_control else f"{params.input}\n")
    seconds = params.wait_seconds or (0 if params.input is None else INPUT_SECONDS)
    end = time.monotonic() + seconds
    shown = await _watch_command(shell, params.session_name, context, end, until=params.until, hears_people=True)
    hint = "still running" if shown.exit_code is None else ""
    if params.kill_session:
        await shell.terminate(params.session_name, keeps_state=True)
        hint = "the session was killed"
    return ToolOutput(output=_report(shown, hint))


class TerminateParams(BaseModel):
    """Kill a session's command and all it started."""

    session_name: str = Field(description="The session.")


async def run_terminate(params: TerminateParams, context: ToolContext) -> str:
    sandbox = await context.sandbox()
    await sandbox.shell.terminate(params.session_name, keeps_state=True)
    return f"The command of the session {params.session_name} and all that it started were killed."


class ListCommandsParams(BaseModel):
    """List the shell sessions with their newest commands."""


async def run_list_commands(params: ListCommandsParams, context: ToolContext) -> ToolOutput:
    del params
    sandbox = await context.sandbox()
    return ToolOutput(
        output=[
            {
                "session_name": session.name,
                "command": session.command,
                "is_running": session.is_running,
                "running_seconds": round(session.running_seconds, 1),
            }
            for session in await sandbox.shell.sessions()
        ]
    )


def _report(shown: CommandOutput, hint: str) -> str:
    """Formats a command's output as plain text, which models read better than JSON with escaped line breaks.

    The exit code, the session and the folder are in the last line.
    """
    lines = [shown.output] if shown.output else []
    if shown.dropped_bytes:
        where = (
            f"; all of it is in {shown.output_path}, for commands such as grep and tail" if shown.output_path else ""
        )
        lines.append(f"[{shown.dropped_bytes} bytes are left out in the middle{where}]")
    elif shown.is_redrawn and shown.output_path:
        lines.append(f"[lines that were overwritten are in {shown.output_path}]")
    if shown.has_jobs and shown.output_path:
        lines.append(f"[what the command has left running prints to {shown.output_path}]")
    elif shown.has_jobs:
        lines.append("[the command has left something running]")
    if shown.also_running:
        others = ", ".join(shown.also_running)
        lines.append(f"[of the same session these still run, each with a name for check_command_output: {others}]")
    ended = f"exit code {shown.exit_code}" if shown.exit_code is not None else ""
    state = "; ".join(part for part in (ended, hint) if part)
    lines.append(f"[session {shown.session}, in {shown.folder}: {state}]")
    return "\n".join(line.removesuffix("\n") for line in lines)


RESULT_END_CHARACTERS = 100
READS_SESSION = frozenset({"execute_command", "check_command_output", "terminate_command"})
_SESSION_LINE = "[session "
_EXIT_CODE = re.compile(r"exit code (-?[0-9]{1,10})(?:; the session was killed)?\]\Z")


def exit_code_of(name: str, result: JsonObject) -> int | None:
    """Returns the exit code in the last line of a result, or None if the tool runs no commands or the result has
    none."""
    if name not in READS_SESSION and name != "python_execute":
        return None
    found = _EXIT_CODE.search(str(result.get("output") or "")[-RESULT_END_CHARACTERS:])
    return int(found[1]) if found else None


def session_left_by_call(name: str, arguments: JsonObject, result: JsonObject) -> ShellSession | None:
    """Returns the session that a call of a shell tool left behind, or None if the result does not name it.

    The command of the session is empty if the call did not start it."""
    command, session = str(arguments.get("command") or ""), str(arguments.get("session_name") or "")
    if name == "terminate_command" and result.get("success"):
        return ShellSession(name=session, command="", is_running=False, running_seconds=0)
    last = str(result.get("output") or "").rpartition("\n")[2]
    if name not in READS_SESSION or not last.startswith(_SESSION_LINE):
        return None
    found, _, rest = last.removeprefix(_SESSION_LINE).partition(", in ")
    is_running = ": still running" in rest
    return ShellSession(name=found, command=command, is_running=is_running, running_seconds=0)


def _subject(session: str) -> str:
    """Returns the subject of a call on a session. A call on `main` may use `main#2`, which runs what was sent to
    `main`."""
    return f"shell/{session.replace('#', '/')}"


def _command_title(params: ExecuteParams) -> str:
    lines = params.command.strip().splitlines() or ["a command"]
    cut = lines[0][:COMMAND_TITLE_CHARACTERS].replace("`", "'")
    return f"Running `{cut}{'…' if len(lines) > 1 or len(lines[0]) > len(cut) else ''}`"


execute_command = Tool(
    name="execute_command",
    effect="acts",
    reach=lambda params: Reach("connects", params.hosts) if params.hosts else STAYS,
    params=ExecuteParams,
    run=run_execute,
    subject=lambda params: _subject(params.session_name or DEFAULT_SESSION),
    title=_command_title,
    example={"command": "python3 analyse.py", "session_name": "main", "timeout": 60},
    content_parameter="command",
    requires=("sandbox",),
)
check_command_output = Tool(
    name="check_command_output",
    effect="acts",
    reach=STAYS,
    params=CheckParams,
    run=run_check,
    subject=lambda params: _subject(params.session_name),
    title=lambda params: f"{'Looking at' if params.input is None else 'Answering'} {params.session_name}",
    example={"session_name": "main"},
    requires=("sandbox",),
)
terminate_command = Tool(
    name="terminate_command",
    effect="acts",
    reach=STAYS,
    params=TerminateParams,
    run=run_terminate,
    subject=lambda params: _subject(params.session_name),
    title=lambda params: f"Stopping {params.session_name}",
    example={"session_name": "main"},
    requires=("sandbox",),
)
list_commands = Tool(
    name="list_commands",
    effect="reads",
    reach=STAYS,
    params=ListCommandsParams,
    run=run_list_commands,
    subject="shell",
    title=lambda params: "Listing the running commands",
    example={},
    is_idempotent=True,
    requires=("sandbox",),
)
