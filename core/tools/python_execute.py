"""The tool that runs Python code in the sandbox and returns what the code prints."""

import shlex
import time
from contextlib import suppress

from pydantic import BaseModel, Field

from core.domain.call_consent import STAYS
from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.tools.shell import execute_and_watch
from core.tools.tool import Tool, ToolContext, ToolOutput

SECONDS_MAX = 600
_GRACE_SECONDS = 15
_ERROR_BYTES = 6_000
_TIMED_OUT = (124, 137)
"""Exit codes of the GNU `timeout` command after it terminated (124) or killed (137) the program. Code that the kernel
kills because it uses too much memory has the second one as well, but earlier."""


class PythonParams(BaseModel):
    """Run Python code in the sandbox and get what it prints. Only printed output counts: print every result. Each call
    starts anew, in the workspace; nothing is left of the one before but the files. For longer programs put the code
    in a file and use execute_command."""

    code: str = Field(min_length=1, max_length=200_000, description="The code.")
    timeout: int = Field(default=5, ge=1, le=SECONDS_MAX, description="Seconds after which the code is ended.")


async def run_python(params: PythonParams, context: ToolContext) -> ToolOutput:
    shell = (await context.sandbox()).shell
    session, mark = f"python-{new_id()[-8:]}", f"END-{new_id()[-12:]}"
    started = time.monotonic()
    try:
        seconds = params.timeout + _GRACE_SECONDS
        shown = await execute_and_watch(shell, _script(params, mark), session, context, None, seconds)
    finally:
        with suppress(ToolError):
            await shell.terminate(session)
    printed, _, errors = shown.output.partition(f"{mark}\n")
    is_time_up = time.monotonic() - started >= params.timeout
    if shown.exit_code is None or (is_time_up and shown.exit_code in _TIMED_OUT):
        so_far = f" It had printed:\n{printed.rstrip()}" if printed.strip() else ""
        raise ToolError(
            f"The code did not end within {params.timeout} s and was ended. Give a longer timeout, or put it in a file"
            f" and run it with execute_command.{so_far}"
        )
    if shown.exit_code != 0:
        parts = (printed.rstrip(), errors.strip(), f"[exit code {shown.exit_code}]")
        return ToolOutput(output="\n".join(filter(None, parts)), is_success=False)
    left_out = f"\n[{shown.dropped_bytes} bytes are left out in the middle]" if shown.dropped_bytes else ""
    nothing = "[nothing was printed; print what you want to know]"
    return ToolOutput(output=printed.rstrip("\n") + left_out if printed.strip() else nothing)


def _script(params: PythonParams, mark: str) -> str:
    """Builds the shell script that runs the code from a file, so that tracebacks show its lines.

    If the code fails, the script prints the code's standard error after `mark`. The script also fails if the file
    cannot be written, for example because /tmp is full."""
    code = params.code if params.code.endswith("\n") else f"{params.code}\n"
    run = (
        f'PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}" PYTHONUNBUFFERED=1 timeout -k 2 {params.timeout}'
        ' python3 "$folder/code.py" 2>"$folder/errors" </dev/null'
    )
    failed = f'echo; echo {shlex.quote(mark)}; tail -c {_ERROR_BYTES} "$folder/errors" 2>/dev/null'
    return (
        f"folder=$(mktemp -d) && cat >\"$folder/code.py\" <<'{mark}' && {run}\n{code}{mark}\n"
        f'status=$?; if [ "$status" -ne 0 ]; then {failed}; fi; rm -rf "$folder"; (exit "$status")'
    )


def _title(params: PythonParams) -> str:
    lines = [line.strip() for line in params.code.splitlines() if line.strip()]
    return f"Running Python: {lines[0][:80] if lines else '…'}"


python_execute = Tool(
    name="python_execute",
    effect="acts",
    reach=STAYS,
    params=PythonParams,
    run=run_python,
    title=_title,
    example={"code": "print(sum(range(10)))"},
    content_parameter="code",
    requires=("sandbox",),
)
