"""Words for a chat thread that come over HTTP: the real program on both platforms."""

import json
from typing import Any

import aiohttp
import pytest

from bots.demo.thread_reader import text_of
from core.domain.approval import APPROVE_ONCE
from tests.chaos.harness import PlatformName, Stage, staged

SCENARIO = """
conversations:
  - name: hello
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Hi alice."
  - name: wish
    when: {user: {contains: "Remind"}}
    steps:
      - calls:
          - {name: schedule_task, arguments: {task: "Say it.", when: "PT2H", time_zone: UTC}}
      - text: "Noted."
  - name: count
    when: {user: {contains: "Count"}}
    steps:
      - text: "One, two."
"""


async def send(stage: Stage, text: str) -> dict[str, Any]:
    """Writes into the test's thread, whose address is that of the newest listed thread."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.http_port}") as http:
        async with http.get("/api/threads", params={"platform": stage.name}) as answer:
            (thread,) = (await answer.json())["threads"]
        address = {name: thread[name] for name in ("platform", "workspace_id", "channel_id", "thread_key")}
        async with http.post("/api/thread", json={"address": address, "text": text}) as answer:
            assert answer.status == 202, await answer.text()
            sent = await answer.json()
    assert sent["thread_id"] == thread["thread_id"]
    return sent


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_words_over_http_are_shown_and_answered_in_the_chat_thread(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.start()
        await stage.connected()
        await stage.say("Hello.")
        await stage.settled(1)
        words = f"Count, *please*. <!channel> @everyone {'x' * 1300}"
        await send(stage, words)
        await stage.until(lambda: stage.shows("One, two."), "it answers in the thread")
        (shown,) = [text_of(one) for one in stage.ours() if "came over the HTTP API" in text_of(one)]
        assert "x" * 1300 in shown.replace("\n", "")
        asked = json.dumps(stage.last_request(), ensure_ascii=False)
        assert "An app wrote this, not a person" in asked
        assert "HTTP API" in asked

        await send(stage, "Remind us.")
        await stage.until(lambda: stage.button(APPROVE_ONCE), "it asks the people there")
        await send(stage, "yes")
        assert len([one for one in stage.ours() if "came over the HTTP API" in text_of(one)]) == 3
        assert stage.rows("SELECT schedule_id FROM schedule") == []
        assert stage.button(APPROVE_ONCE)
        await stage.press(APPROVE_ONCE)
        await stage.until(lambda: stage.shows("Noted."), "a click arms it")
        ((owner,),) = stage.rows("SELECT owner_name FROM schedule")
        assert str(owner).lower() == "alice"
