"""Commands that attack the machine end in the jail, and the run ends clearly."""

from tests.integration.e2e.staging import run_staged
from tests.integration.sandbox.providers import local_jails
from tests.integration.sandbox.test_escape import host_processes

BOMB = """
conversations:
  - name: bomb
    when: {user: {contains: "Hello"}}
    steps:
      - calls:
          - name: execute_command
            arguments: {command: ":(){ :|:& };:", blocking: true, timeout: 2, session_name: bomb}
      - calls: [{name: terminate_command, arguments: {session_name: bomb}}]
      - calls:
          - name: execute_command
            arguments: {command: "echo still $((40 + 2))", blocking: true, session_name: other}
      - text: "That was it."
"""
PROCESSES_MAX = 1100


async def test_a_fork_bomb_harms_nobody_and_the_run_goes_on() -> None:
    async with local_jails():
        pass  # skipped where there can be none
    async with run_staged("slack", BOMB, sandbox="local") as stage:
        before = host_processes()
        await stage.say("Hello")
        most = 0

        def is_over() -> bool:
            nonlocal most
            most = max(most, host_processes() - before)
            return stage.shows("That was it.")

        await stage.until(is_over, "it goes on", seconds=60)
        await stage.settled(1)
        assert stage.runs() == ["completed"]
        assert "still 42" in str(stage.script.requests[-1])
        assert most < PROCESSES_MAX
        stage.program.terminate()
        assert await stage.program.ended() == 0
        await stage.until(lambda: host_processes() < before + 100, "nothing is left of it")
