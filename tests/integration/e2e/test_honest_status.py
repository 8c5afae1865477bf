"""What the status message says of steps that fail and of commands that go on, on both platforms."""

import re

from bots.demo.thread_reader import text_of
from tests.chaos.harness import PlatformName, Stage
from tests.integration.e2e.staging import BOTH, run_staged

SCENARIO = """
conversations:
  - name: server
    when: {user: {contains: "Start the server"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "sleep 60", session_name: server, timeout: 0}}]
      - calls: [{name: execute_command, arguments: {command: "echo oops; false"}}]
      - calls: [{name: terminate_command, arguments: {session_name: other}}]
      - text: "It is started."
"""


def status(stage: Stage) -> str:
    """The newest status message."""
    return next(text for one in reversed(stage.ours()) if "Done ·" in (text := text_of(one).replace("*", "")))


@BOTH
async def test_a_background_command_and_a_failed_step_show_no_tick(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO) as stage:
        await stage.say("Start the server")
        await stage.settled(1)
        assert re.search(
            r"✅ Done · 3 steps, \d failed · 1 command still running( · \d+(\.\d)? s)?\n\[ Details \]", status(stage)
        )
        lines = (await stage.details()).split("\n")
        (server,) = [line for line in lines if "sleep 60" in line]
        assert "Started `sleep 60` · still ran at the end" in server
        (failed,) = [line for line in lines if "echo oops" in line]
        assert "Ran `echo oops; false`" in failed
        assert "exit code 1" in failed
        assert not any(sign in server + failed for sign in ("☑", "✓", "complete"))
