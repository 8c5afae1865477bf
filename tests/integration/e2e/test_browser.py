"""A whole run with the browser in a real jail: what the model sees of it, and a person who takes it over."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.e2e.http_talk import Talk, talk
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import local_jails, reachable_folder
from tests.support.takeover_stage import helper

SECONDS = 90
MARK = "the browser as it is now"
STORY = """
conversations:
  - name: browser
    when: {user: {contains: "sign in"}, tools: [browser_navigate_to, web_browser_takeover]}
    steps:
      - calls:
          - name: create_file
            arguments:
              file_path: page.html
              file_contents: |
                <!doctype html><title>Door</title>
                <button style="position: absolute; left: 20px; top: 20px; width: 200px; height: 40px"
                  onclick="document.title = document.title === 'Door' ? 'Ajar' : 'Open'">Knock</button>
      - calls: [{name: browser_navigate_to, arguments: {url: /workspace/page.html}}]
      - expect: {tool: browser_navigate_to, success: true}
        calls: [{name: browser_click_element, arguments: {index: 0}}]
      - expect: {tool: browser_click_element, success: true}
        calls: [{name: web_browser_takeover, arguments: {text: "Please knock once more."}}]
      - expect: {last: {contains: "it is open now"}}
        calls: [{name: browser_wait, arguments: {seconds: 0}}]
      - expect: {tool: browser_wait, success: true}
        text: "Thank you."
"""


@asynccontextmanager
async def browsing() -> AsyncIterator[Talk]:
    async with local_jails() as jails:
        if jails.browser_unavailable_reason:
            lacking("chromium", jails.browser_unavailable_reason)
    async with reachable_folder() as folder, talk(folder, STORY, sandbox="local") as made:
        await made.post(f"/api/thread/{made.thread_id}/messages", json={"text": "sign in for me"})
        yield made


async def until(told: Talk, state: str) -> Any:
    """The thread once it is in that state, and no run is under way."""
    async with asyncio.timeout(SECONDS):
        while True:
            thread = await told.thread()
            if thread["state"] == state and thread["active_run_id"] is None:
                return thread
            await asyncio.sleep(0.05)


async def shown(told: Talk) -> list[dict[str, Any]]:
    """The messages of the agent."""
    return [one for one in await told.messages() if one["type"] not in ("status", "user")]


@pytest.mark.timeout(240)
async def test_the_model_sees_the_newest_page_and_a_person_helps() -> None:
    async with browsing() as told:
        waiting = await until(told, "waiting")
        question = waiting["ask"]["text"]
        assert question.startswith("Please knock once more.\n\n[Open the browser](http://127.0.0.1:")
        await states_stand_before_their_results(told)
        await only_the_newest_state_is_sent(told)
        link = question[question.index("http") : question.index(")")]
        async with helper(link) as person:
            await person.begin()
            await person.sees("Ajar")
            await person.click(100, 40)
            await person.sees("Open")
            await person.hand_back("it is open now")
        await until(told, "idle")
        last = (await shown(told))[-1]
        assert "Thank you." in last["content"]
        assert "title: Open" in str(told.script.requests[-1])


async def states_stand_before_their_results(told: Talk) -> None:
    """A result's state is the message before it, the model's own history holds none."""
    messages = await shown(told)
    kinds = [one["type"] for one in messages]
    used = [n for n, kind in enumerate(kinds) if kind == "browser_state"]
    assert len(used) == 2
    for n in used:
        assert kinds[n + 1] == "tool"
        assert messages[n]["is_llm_message"] is False
    first, second = (json.loads(messages[n]["content"]) for n in used)
    assert (first["title"], second["title"]) == ("Door", "Ajar")
    assert first["elements"] == ['[0] <button> "Knock"']
    assert first["image_url"].endswith(f"/messages/{messages[used[0]]['message_id']}/image")


async def only_the_newest_state_is_sent(told: Talk) -> None:
    third, fourth = map(str, list(told.script.requests)[2:4])
    assert third.count(MARK) == fourth.count(MARK) == 1
    assert "title: Door" in third
    assert "title: Ajar" in fourth
    assert "title: Door" not in fourth
    assert "data:image/jpeg;base64," in fourth
