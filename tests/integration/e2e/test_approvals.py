"""A tool that people must allow, from the question to the result: the real program, tool server and platforms."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.demo.thread_reader import buttons_of, text_of
from bots.inbound.actions import READING_SECONDS
from core.domain.approval import APPROVE_ONCE, CHOICES
from simulator.slack.server import SlackSimulator
from simulator.view import SeenMessage
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.fakes.preloaded import command_of
from tests.integration.e2e.staging import BOTH
from tests.paths import FAKES

SERVER = FAKES / "mcp_notebook.py"
SCENARIO = """
conversations:
  - name: once
    when: {user: {contains: "Write it"}}
    steps:
      - calls: [{name: mcp_notebook_write_down, arguments: {line: "milk"}}]
      - text: "I am through."
  - name: again
    when: {user: {contains: "And again"}}
    steps:
      - calls: [{name: mcp_notebook_write_down, arguments: {line: "bread"}}]
      - text: "Through again."
"""
ASKING = (["question"], ["❓"])
DONE = (["white_check_mark"], ["✅"])


def notebook(stage: Stage) -> list[str]:
    place = stage.program.folder / "notebook.txt"
    return place.read_text().splitlines() if place.exists() else []


@asynccontextmanager
async def asking(
    platform: PlatformName, *, is_alice_alone: bool = False, **settings: str
) -> AsyncGenerator[Stage, None]:
    """The stage once the people are asked."""
    async with staged(platform, SCENARIO, **settings) as stage:
        if is_alice_alone:
            stage.program.change(allowed_users=alice_of(stage))
        place = stage.program.folder / "mcp.json"
        command, *arguments = command_of(str(SERVER), str(stage.program.folder / "notebook.txt"))
        server = {"transport": "stdio", "command": command, "args": arguments, "needs_approval": "writes"}
        place.write_text(json.dumps({"servers": {"notebook": server}}))
        stage.program.change(mcp_config=str(place))
        await start(stage)
        await stage.say("Write it down, please.")
        await stage.until(lambda: stage.button(APPROVE_ONCE), "it asks")
        await read_card()
        yield stage


def alice_of(stage: Stage) -> str:
    """Her id on the platform."""
    platform = stage.platform
    if isinstance(platform, SlackSimulator):
        return platform.member(PERSON).user_id
    return platform.world.people[PERSON].user_id


async def start(stage: Stage) -> None:
    before = stage.program.log().count("the MCP server notebook is connected")
    stage.program.start()
    await stage.connected()
    await stage.until(
        lambda: stage.program.log().count("the MCP server notebook is connected") > before, "the tool server is ready"
    )


async def read_card() -> None:
    """Takes as long as people need at least before their words count as consent."""
    await asyncio.sleep(READING_SECONDS)


def question(stage: Stage) -> SeenMessage:
    return next(one for one in stage.ours() if "May I do this?" in text_of(one))


def status(stage: Stage) -> SeenMessage:
    return next(one for one in stage.ours() if "May I do this?" not in text_of(one))


def signs(stage: Stage) -> list[str]:
    return [one.emoji for one in stage.messages()[0].reactions]


async def answered(stage: Stage, answer: str = "I am through.", *, runs: int = 1) -> None:
    await stage.until(lambda: stage.shows(answer), "it answers")
    await stage.settled(runs)
    await stage.until(lambda: signs(stage) in DONE, "the tick")


def says_who_answered(stage: Stage, answer: str) -> bool:
    """In the place of the buttons."""
    said = " ".join(text_of(question(stage)).replace("*", "").replace("> ", "").split())
    said = said.replace("Alice", "alice")
    is_told = f"{PERSON} answered: {answer}" in said
    if answer not in CHOICES:
        is_told = is_told or f"{PERSON} answered in this thread." in said
    return is_told and not buttons_of(question(stage))


def told(stage: Stage) -> str:
    """What the model was told last. Discord shows names with a capital letter."""
    return str(stage.script.requests[-1]["messages"]).replace("Alice", "alice")


@BOTH
async def test_approve_once_goes_on_with_the_same_run_and_runs_the_tool_once(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        assert [one.label for one in buttons_of(question(stage))][:3] == list(CHOICES)
        assert "write_down" in text_of(question(stage))
        assert "milk" in text_of(question(stage))
        await stage.until(lambda: signs(stage) in ASKING, "the question mark")
        await stage.until(lambda: "Waiting for approval" in text_of(status(stage)), "it says so")
        assert "milk" in text_of(status(stage))
        assert (notebook(stage), stage.runs()) == ([], ["waiting"])
        await stage.press(APPROVE_ONCE)
        await answered(stage)
        assert (notebook(stage), stage.runs()) == (["milk"], ["completed"])
        assert "Written down: milk" in told(stage)
        assert says_who_answered(stage, APPROVE_ONCE)
        assert len(stage.ours()) == 3, stage.report()
        await stage.say("And again, please.")
        await stage.until(lambda: stage.runs() == ["completed", "waiting"], "it asks once more")


async def test_the_form_in_discord_denies_with_a_reason() -> None:
    async with asking("discord") as stage:
        await stage.press("Deny with a reason")
        await stage.until(lambda: stage.view().forms, "the form opens")
        (form,) = stage.view().forms
        await stage.platform.submit(PERSON, form.form_id, {form.fields[0].field_id: "Too dear"})
        await answered(stage)
        assert (notebook(stage), stage.runs()) == ([], ["completed"])
        assert "alice denied it, with the words: Too dear" in told(stage)
