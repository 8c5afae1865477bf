"""The requests of a thread as the default agent sends them, their tokens, and what a provider's cache saves of them.

`python -m tests.bench.prompt` writes the page docs/developers/request.md.
"""

import importlib.util
import json
import os
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bots.bootstrap.sandboxes import SandboxDeps, build_run_prompt
from core.agents.definition import DEFAULT_AGENT, ReferableNames
from core.agents.files import load_shipped_definitions
from core.context.untrusted_text import wrap_message
from core.context.window import ContextPolicy, ContextWindow
from core.dialects.native import NativeDialect
from core.domain.events import AgentEvent, MessageAdded
from core.domain.json import JsonObject
from core.domain.messages import Message, MessageType, ToolCall
from core.domain.threads import Address
from core.llm.openai_answer import to_json
from core.loop.loop import turn_notice
from core.ports import ModelRequest, ResponseText
from core.prompt.system_prompt import RunPrompt, base_prompt
from core.tools.catalogue import all_tools, build_tool_set, missing_services
from core.tools.tool import Requirement
from core.web_access.services import WebServices
from sandbox.installed import PACKAGES, PROGRAMS, describe_installed
from tests.support.conversations import words
from tests.support.narrow import require

SANDBOX = "Commands run in a jail of their own on a Linux machine, without rights; it can reach the internet."
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
INPUT_USD, CACHED_USD = 3.0e-6, 0.3e-6
"""Prices of a token that is read for the first time, and of one in the cache."""
_DIALECT = NativeDialect()


@cache
def _encoding() -> Any:
    """Returns cl100k_base from the copy in litellm's package, so that nothing is downloaded."""
    found = require(importlib.util.find_spec("litellm"))
    assert found.submodule_search_locations
    place = Path(next(iter(found.submodule_search_locations))) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(place)  # noqa: TID251 - tiktoken reads it only from the environment
    return __import__("tiktoken").get_encoding("cl100k_base")


def tokens(text: str) -> int:
    return len(_encoding().encode(text, disallowed_special=()))


def blank_request(*, has_browser: bool, has_services: bool = False) -> ModelRequest:
    """Returns the system prompt and the tools of the default agent."""
    agent = load_shipped_definitions(ReferableNames(tools=frozenset(all_tools())))[DEFAULT_AGENT]
    missing = set[Requirement]() if has_services else missing_services(_keyless_services())
    box = build_tool_set(missing if has_browser else {*missing, "browser"}).filter_names(agent.tools.has)
    prompt = RunPrompt(system=base_prompt(sandbox=SANDBOX)).for_tools(box.tools, all_tools())
    schemas, _ = _DIALECT.request_parts(tuple(box.specs.values()))
    return ModelRequest(model="m", messages=({"role": "system", "content": prompt.system},), tools=schemas)


def _keyless_services() -> WebServices:
    """Returns services as without any key: search and the page reader have keyless fallbacks."""
    there: Any = object()
    return replace(WebServices(), search=there, pages=there)


def encoded(request: ModelRequest) -> str:
    """Returns the request in the order in which providers cache it: tools, system prompt, conversation."""
    return to_json([*request.tools, *request.messages]).decode()


def prompt_tokens(*, has_browser: bool, has_services: bool = False) -> int:
    return tokens(encoded(blank_request(has_browser=has_browser, has_services=has_services)))


def _message(kind: MessageType, content: JsonObject, *, is_llm: bool = True) -> Message:
    return Message(type=kind, content=content, is_llm_message=is_llm, thread_id="t", run_id="r")


def _asked(text: str) -> Message:
    return _message("user", {"role": "user", "content": wrap_message(text, author="alice (U1)")})


def _turn(number: int) -> list[Message]:
    """A turn with one call: in turns of five, the browser, todo.md, and three shell commands."""
    name, arguments, output = ("execute_command", {"command": words(15, seed=number)}, words(300, seed=number))
    passing: list[Message] = []
    if number % 5 == 0:
        name, arguments, output = "browser_click_element", {"index": number}, "Clicked."
        elements = [f'[{at}] link "{words(3, seed=at)}"' for at in range(15)]
        state: JsonObject = {"url": f"https://example.org/{number}", "elements": list(elements)}
        passing.append(_message("browser_state", state, is_llm=False))
    elif number % 5 == 1:
        items = "".join(f"- [{'x' if at < number // 5 else ' '}] {words(5, seed=at)}\n" for at in range(10))
        name, output = "full_file_rewrite", "Written."
        arguments = {"file_path": "todo.md", "file_contents": items}
    call = ToolCall(name=name, arguments=dict(arguments), call_id=f"call_{number}")
    result = replace(
        _message("tool", _DIALECT.result_content(call, {"success": True, "output": output, "error": None})),
        metadata={"parsing_details": _DIALECT.parsing_details(call)},
    )
    said = _DIALECT.assistant_content("I look at the next part.", [call])
    return [_message("assistant", said), *passing, result]


def _window(emit: list[AgentEvent]) -> ContextWindow:
    async def complete(request: ModelRequest) -> ResponseText:
        raise AssertionError("these conversations fit")

    return ContextWindow(
        model="claude-sonnet",
        run_id="r",
        policy=ContextPolicy(),
        overhead_tokens=5_000,
        complete=complete,
        emit=emit.append,
    )


def _told_prompt() -> RunPrompt:
    """Returns the state of a run in a Slack thread."""
    address = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.2")
    sandboxes = SandboxDeps(name="local", provider=None, installed_text=describe_installed((*PROGRAMS, *PACKAGES)))
    limit = ContextPolicy().limit_of("claude-sonnet")
    return replace(build_run_prompt(sandboxes, address, limit.reserved), began_at=NOON)


async def thread_requests(turns: int) -> list[ModelRequest]:
    """Returns the requests of a thread with the browser, todo.md and knowledge, and a second run in its middle."""
    blank, history, made = blank_request(has_browser=True), list[Message](), list[ModelRequest]()
    emitted: list[AgentEvent] = []
    window, prompt = _window(emitted), RunPrompt(system="")
    for number in range(turns):
        if number in (0, turns // 2):
            history.append(_asked(words(40, seed=number)))
            window = _window(emitted)
            await window.load(history)
            prompt = _told_prompt().with_knowledge(words(60, seed=number))
        emitted.clear()
        state = {**prompt.state_in_time_zone(window.time_zone), "turns": turn_notice(number + 1, 100)}
        made.append(await window.request(blank, state=state))
        history += [one.message for one in emitted if isinstance(one, MessageAdded)]
        turn = _turn(number)
        history += turn
        window.add(turn)
    return made


def common_start(before: str, after: str) -> str:
    size = bisect_left(range(len(before)), True, key=lambda at: before[: at + 1] != after[: at + 1])
    return before[:size]


def prefix_share(requests: Sequence[ModelRequest]) -> float:
    """Returns the share of all later requests that was in the request before, by their bytes."""
    pairs = [(common_start(before, after), after) for before, after in pairwise(map(encoded, requests))]
    return sum(len(common.encode()) for common, _ in pairs) / sum(len(after.encode()) for _, after in pairs)


def bill_usd(requests: Sequence[ModelRequest]) -> float:
    """Returns what reading the requests costs if a provider caches the common start of each and the one before."""
    texts = ["", *map(encoded, requests)]
    sizes = [(tokens(common_start(before, after)), tokens(after)) for before, after in pairwise(texts)]
    return sum(cached * CACHED_USD + (whole - cached) * INPUT_USD for cached, whole in sizes)


async def request_page() -> str:
    """Returns the page that shows the first request of a fresh thread."""
    window = _window([])
    await window.load([_asked("How many rows has sales.csv?")])
    state = {**_told_prompt().state_in_time_zone(""), "turns": turn_notice(1, 100)}
    request = await window.request(blank_request(has_browser=False), state=state)
    parts = [
        "# What a model receives",
        "The first request of a fresh thread, from the default agent without a browser or external services. A test"
        " compares this page with the program; `.venv/bin/python -m tests.bench.prompt` writes it anew.",
    ]
    for message in request.messages:
        parts += [f"## {message['role']}", f"```text\n{message['content']}\n```"]
    tools = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in request.tools)
    parts += ["## Tools, one a line", f"```json\n{tools}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    import asyncio

    sys.stdout.write(asyncio.run(request_page()))
