"""Choosing agents, from the word to what the model is sent: the real program on each platform."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from bots.demo.thread_reader import text_of
from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.integration.e2e.staging import run_staged

SCENARIO = """
conversations:
  - name: talk
    when: {user: {contains: "Please"}}
    steps:
      - text: "That is said."
"""
CODING = "You write and repair programs."


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


def everything(stage: Stage) -> str:
    return "\n".join(text_of(one) for one in stage.messages())


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


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
