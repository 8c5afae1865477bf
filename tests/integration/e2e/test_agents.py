"""Choosing agents, from the word to what the model is sent: the real program on each platform."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bots.demo.thread_reader import text_of
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.staging import run_staged

SCENARIO = """
conversations:
  - name: talk
    when: {user: {contains: "Please"}}
    steps:
      - text: "That is said."
  - name: work
    when: {user: {contains: "Work"}}
    steps:
      - calls:
          - name: execute_command
            arguments: {command: "touch begun; until [ -e go ]; do sleep 0.05; done", blocking: true, timeout: 60}
      - text: "The work is done."
"""
RESEARCH = "You find things out."
CODING = "You write and repair programs."
OWN = """
name: Own
description: Ours alone.
prompt: The {word} word.
tools: {{disabled: [delete_file]}}
"""
BOTH = pytest.mark.parametrize("platform", ["slack", "discord"])


@asynccontextmanager
async def talking(platform: PlatformName, **settings: str) -> AsyncGenerator[Stage, None]:
    """The stage after a first request to the usual agent."""
    async with run_staged(platform, SCENARIO, **settings) as stage:
        await ask(stage, "Please say one")
        yield stage


async def ask(stage: Stage, words: str) -> dict[str, Any]:
    """Says it and waits for the end of the run; what the model was sent."""
    before = len(stage.runs())
    await stage.say(words)
    await stage.settled(before + 1)
    assert set(stage.runs()) == {"completed"}, stage.report()
    return stage.script.requests[-1]


async def use(stage: Stage, name: str, answer: str) -> None:
    """As people of the platform do: a word after a mention, or a slash command."""
    if stage.name == "slack":
        await stage.say(f"@{stage.view().bot_name} use {name}")
    else:
        await stage.platform.command(PERSON, stage.channel_id, "agent use", {"name": name}, thread_id=stage.thread_id)
    await stage.until(lambda: answer in everything(stage), f"use {name}")


def everything(stage: Stage) -> str:
    return "\n".join(text_of(one) for one in stage.messages())


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


def tools(request: dict[str, Any]) -> set[str]:
    return {one["function"]["name"] for one in request["tools"]}


async def restart(stage: Stage) -> None:
    stage.program.kill()
    await stage.until(lambda: not stage.view().is_bot_connected, "it is gone")
    stage.program.start()
    await stage.connected()


def folder_with(stage: Stage, word: str) -> Path:
    folder = stage.program.folder / "agents"
    folder.mkdir(exist_ok=True)
    made = folder / ".own"
    made.write_text(OWN.format(word=word))
    made.rename(folder / "own.yaml")
    return folder


@BOTH
async def test_a_choice_changes_what_the_model_is_sent_and_survives_a_restart(platform: PlatformName) -> None:
    async with talking(platform) as stage:
        usual = stage.script.requests[-1]
        assert RESEARCH not in system(usual)
        assert {"execute_command", "delete_file", "read_file"} <= tools(usual)
        await use(stage, "research", "`research` works in this conversation")

        chosen = await ask(stage, "Please say two")
        assert RESEARCH in system(chosen)
        assert "# How to work" in system(chosen), "the base prompt stays"
        assert tools(usual) - tools(chosen) >= {"execute_command", "delete_file"}
        assert "read_file" in tools(chosen)

        await restart(stage)
        again = await ask(stage, "Please say three")
        assert (system(again), tools(again)) == (system(chosen), tools(chosen))

        await use(stage, "threadhand", "`threadhand` works in this conversation")
        back = await ask(stage, "Please say four")
        assert RESEARCH not in system(back)
        versions = stage.rows(
            "SELECT r.agent_id, v.number FROM run r JOIN agent_version v"
            " ON v.agent_version_id = r.agent_version_id ORDER BY r.run_id"
        )
        assert versions == [("threadhand", 1), ("research", 1), ("research", 1), ("threadhand", 1)]


@BOTH
async def test_a_message_names_its_own_agent_and_strangers_are_refused(platform: PlatformName) -> None:
    async with talking(platform) as stage:
        await use(stage, "research", "`research` works in this conversation")
        once = await ask(stage, "agent:Coding Please say two")
        assert CODING in system(once)
        assert RESEARCH not in system(once)
        assert "agent:" not in json.dumps(once["messages"])
        after = await ask(stage, "Please say three")
        assert RESEARCH in system(after)

        runs = stage.runs()
        await stage.say("agent:`stranger`<!channel> Please say four")
        refused = "There is no agent stranger"
        await stage.until(lambda: refused in everything(stage), "it refuses")
        assert "coding, data-analysis, planner, research, threadhand." in everything(stage)
        assert stage.runs() == runs


async def test_a_choice_may_be_the_first_word_of_a_conversation() -> None:
    async with run_staged("slack", SCENARIO) as stage:
        await stage.say("use research")
        await stage.until(lambda: stage.shows("`research` works in this conversation"), "it is chosen")
        assert RESEARCH in system(await ask(stage, "Please say one"))


async def test_a_word_with_a_strange_name_is_refused_in_slack() -> None:
    async with talking("slack") as stage:
        await use(stage, "nobody", "There is no agent nobody. There are: coding, ")
        await use(stage, "", "`threadhand` (works here): Does whatever is asked")
        assert "`research`: Finds things out" in everything(stage)
        assert RESEARCH not in system(await ask(stage, "Please say two"))


async def test_the_command_in_discord_lists_and_offers_the_agents() -> None:
    async with talking("discord") as stage:
        place = {"thread_id": stage.thread_id}
        await stage.platform.command(PERSON, stage.channel_id, "agent use", {}, **place)
        listed = "`threadhand` (works here)"
        await stage.until(lambda: listed in everything(stage), "it lists them")
        await stage.platform.command(
            PERSON, stage.channel_id, "agent run", {"prompt": "Please say two", "agent": "coding"}, **place
        )
        await stage.settled(2)
        assert CODING in system(stage.script.requests[-1])
        stranger = {"name": "stranger"}  # Discord suggests names, and accepts every other one
        await stage.platform.command(PERSON, stage.channel_id, "agent use", stranger, **place)
        await stage.until(lambda: "no agent stranger" in everything(stage), "it knows no such agent")
        assert "option `agent`" not in everything(stage)
        await stage.platform.command(PERSON, stage.channel_id, "agent use", {"name": "research"})
        await stage.until(lambda: stage.shows("no conversation with me here"), "it says so")


@BOTH
async def test_a_run_that_is_taken_over_goes_on_with_its_own_version(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.change(agents_dir=str(folder_with(stage, "first")))
        channels = f"{stage.channel_id}=own"
        stage.program.change(channel_agents=channels)
        stage.program.start()
        await stage.connected()
        await stage.say("Work, please.")
        begun = stage.program.folder / "data" / "sandboxes"
        await stage.until(lambda: list(begun.glob("**/begun")), "the command runs")
        assert "The first word." in system(stage.script.requests[-1])
        assert "delete_file" not in tools(stage.script.requests[-1])

        stage.program.kill()
        folder_with(stage, "second")
        stage.program.start()
        await stage.until(lambda: stage.shows("The work is done."), "it goes on")
        await stage.settled(1)
        assert "The first word." in system(stage.script.requests[-1])
        (run,) = stage.rows("SELECT agent_id, attempt > 1 FROM run")
        assert run == ("own", 1)

        new = await ask(stage, "Please say two")
        assert "The second word." in system(new)
        numbers = stage.rows("SELECT number FROM agent_version WHERE agent_id = 'own' ORDER BY number")
        assert numbers == [(1,), (2,)]


async def test_a_definition_that_changes_holds_from_the_next_run_on_and_a_broken_one_does_not() -> None:
    async with staged("slack", SCENARIO) as stage:
        folder = folder_with(stage, "first")
        stage.program.change(agents_dir=str(folder))
        stage.program.start()
        await stage.connected()
        assert "The first word." in system(await ask(stage, "agent:own Please say one"))
        folder_with(stage, "second")
        assert "The second word." in system(await ask(stage, "agent:own Please say two"))
        (folder / "own.yaml").write_text("name: Own\ntols: {}\n")
        assert "The second word." in system(await ask(stage, "agent:own Please say three"))
        log = stage.program.log()
        assert log.count("own.yaml: tols: there is no such key") == 1
        assert "What was good before stays." in log
        (folder / "own.yaml").unlink()
        await stage.say("agent:own Please say four")
        await stage.until(lambda: stage.shows("There is no agent own."), "it is gone")


@pytest.mark.parametrize("as_form", [False, True], ids=["json", "form"])
async def test_a_message_over_http_names_its_agent(as_form: bool) -> None:
    async with (
        run_staged("slack", SCENARIO) as stage,
        aiohttp.ClientSession(f"http://127.0.0.1:{stage.http_port}") as http,
    ):
        thread_id = (await call(http, "POST", "/api/thread"))["thread_id"]
        path = f"/api/thread/{thread_id}"

        async def post(**fields: str) -> dict[str, Any]:
            form = aiohttp.FormData(fields)
            form.add_field("file", b"x", filename="x.txt")
            body: dict[str, Any] = {"data": form} if as_form else {"json": fields}
            return await call(http, "POST", f"{path}/messages", **body)

        run_id = (await post(text="Please say one", agent_id="coding"))["agent_run_id"]
        await stage.settled(1)
        assert CODING in system(stage.script.requests[-1])
        run = await call(http, "GET", f"/api/agent-run/{run_id}")
        assert run["agent_id"] == "coding"
        told = (await call(http, "GET", f"{path}/messages"))["messages"]
        assert {(one["agent_id"], one["agent_version_id"]) for one in told} == {("coding", run["agent_version_id"])}
        refused = await post(text="Please say two", agent_id="stranger")
        assert refused["error"] == "not_taken"
        assert refused["message"].startswith("There is no agent stranger. There are: ")
        too_long = await post(text="Please say two", agent_id="x" * 101)
        assert too_long["error"] == "too_large"
        assert (await call(http, "GET", path))["agent_id"] is None
        assert stage.runs() == ["completed"]


async def call(http: aiohttp.ClientSession, method: str, path: str, **body: Any) -> dict[str, Any]:
    async with http.request(method, path, **body) as answer:
        return await answer.json()
