import json
from collections.abc import AsyncIterator

import pytest

from bots.demo.scripted_model import serve_scenario
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.llm.openai_client import OpenAIChatClient
from core.ports import ModelRequest
from simulator.model.scenario import load_scenario
from simulator.model.server import ScriptedServer
from tests.support.closing import close_after

STORY = load_scenario(r"""
conversations:
  - name: sums
    when: {user: {matches: "add up"}}
    capture: {file: 'uploads/(\S+\.csv)'}
    steps:
      - text: "I read {{file}}."
        calls: [{name: read_file, arguments: {file_path: "uploads/{{file}}", lines: [1, 2]}}]
      - expect: {tool: read_file, success: true, last: {contains: "42 \"rows\""}}
        text: "42."
  - name: thanks
    when: {user: {contains: thanks}}
    steps:
      - text: "You are welcome."
        fault: {kind: status, status: 503, times: 1}
      - {text: "never", optional: true}
""")
ASKED: JsonObject = {"role": "user", "content": "add up uploads/a.csv"}
SAID: JsonObject = {"role": "assistant", "content": "I read a.csv."}


def result(*, is_success: bool = True, role: str = "user") -> JsonObject:
    inner = {"success": is_success, "output": 'the "42 "rows"', "error": None}
    execution = {"tool_execution": {"function_name": "read_file", "result": inner}}
    return {"role": role, "content": json.dumps(execution)}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serve_scenario(STORY) as running:
        yield running


async def said(server: ScriptedServer, *messages: JsonObject, tools: tuple[JsonObject, ...] = ()):
    async with close_after(OpenAIChatClient(server.base_url)) as llm:
        request = ModelRequest(model="scripted", messages=messages, tools=tools)
        return [delta async for delta in llm.stream(request)]


async def test_steps_left_over_and_unexpected_requests_fail_the_check(server: ScriptedServer):
    assert server.unplayed_steps() == ("sums, step 1", "sums, step 2", "thanks, step 1")
    with pytest.raises(AssertionError, match="never played: sums, step 1"):
        server.check()
    with pytest.raises(ModelRejected, match="did not accept") as raised:
        await said(server, ASKED, SAID, result(is_success=False))
    assert "sums, step 2: the success of the last result is False" in raised.value.detail
    with pytest.raises(AssertionError, match="the success of the last result"):
        server.check()
