"""What the status message says of steps that fail, of commands that go on, and of limits, on both platforms."""

import re

from bots.demo.thread_reader import text_of
from simulator.view import SeenMessage
from tests.chaos.harness import PlatformName, Stage
from tests.integration.e2e.staging import run_staged
from tests.integration.e2e.test_approvals import MOSTLY_SLACK

SCENARIO = """
conversations:
  - name: server
    when: {user: {contains: "Start the server"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "sleep 60", session_name: server, timeout: 0}}]
      - calls: [{name: execute_command, arguments: {command: "echo oops; false"}}]
      - calls: [{name: terminate_command, arguments: {session_name: other}}]
      - text: "It is started."
  - name: ended
    when: {user: {contains: "Does it run"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "exit 3", session_name: short, timeout: 0}}]
      - calls: [{name: execute_command, arguments: {command: "sleep 0.5", session_name: long}}]
      - calls: [{name: execute_command, arguments: {command: "echo three", session_name: third}}]
      - text: "It has ended."
  - name: limit
    when: {user: {contains: "for ever"}}
    steps:
      - calls: [{name: list_files, arguments: {}}]
      - calls: [{name: list_files, arguments: {path: "."}}]
  - name: question
    when: {user: {contains: "Which one"}}
    steps:
      - calls: [{name: list_files, arguments: {}}]
      - calls: [{name: ask, arguments: {text: "Which year?", options: ["2025", "2026"]}}]
      - text: "Then that."
"""


def status(stage: Stage) -> str:
    """The newest status message."""
    words = ("Done ·", "Stopped at a limit", "A limit was reached")
    return next(
        text for one in reversed(stage.ours()) if any(word in (text := text_of(one).replace("*", "")) for word in words)
    )


async def asked(stage: Stage, text: str, runs: int) -> None:
    await stage.say(text)
    await stage.settled(runs)


@MOSTLY_SLACK
async def test_a_background_command_and_a_failed_step_show_no_tick(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO) as stage:
        await asked(stage, "Start the server", 1)
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


@MOSTLY_SLACK
async def test_the_end_of_a_background_command_is_shown_with_its_exit_code(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO) as stage:
        await asked(stage, "Does it run", 1)
        (line,) = [one for one in (await stage.details()).split("\n") if "exit 3" in one]
        assert "Ran `exit 3` · exit code 3" in line


@MOSTLY_SLACK
async def test_a_run_that_hits_a_limit_carries_a_warning_sign(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO, max_turns="2") as stage:
        await asked(stage, "for ever", 1)
        assert "2 turns" in status(stage)
        request = next(one for one in stage.messages() if "for ever" in text_of(one))
        assert [one.emoji for one in request.reactions] in (["warning"], ["⚠️"])


@MOSTLY_SLACK
async def test_the_status_of_an_answered_question_closes_and_typed_words_stand_once(platform: PlatformName) -> None:
    async with run_staged(platform, SCENARIO) as stage:
        await asked(stage, "Which one?", 1)
        assert any("Asked a question · 1 step" in plain(one) for one in stage.ours())
        await stage.say("2024")
        await stage.settled(2)
        await stage.until(
            lambda: any("Question answered · 1 step" in plain(one) for one in stage.ours()),
            "the status of the question closes",
        )
        (card,) = [one for one in stage.ours() if "Which year?" in plain(one)]
        assert "alice answered in this thread." in plain(card).casefold()
        assert "2024" not in plain(card)


def plain(message: SeenMessage) -> str:
    return text_of(message).replace("*", "")
