"""A jail with a browser, and the tools called in it as a run calls them."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from core.domain.errors import ToolError
from core.domain.events import ActivityChanged, AgentEvent
from core.domain.json import JsonObject
from core.domain.messages import Message, ToolCall
from core.knowledge.knowledge_base import RunKnowledge
from core.loop.calls import CallOutcome, execute_call, failed_outcome
from core.ports import Sandbox
from core.tools.catalogue import build_tool_set
from core.tools.tool import ToolContext, prepare_call
from sandbox.local.provider import LocalSandboxProvider
from tests.integration.core.tools.browser.site import PAGES, SERVER
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import content, pieces

SITE = "http://localhost:8000"


@dataclass
class BrowserStage:
    """A sandbox with a browser. `states` are the browser_state messages so far; `told` what people were shown."""

    jails: LocalSandboxProvider
    sandbox: Sandbox
    thread_id: str
    states: list[Message] = field(default_factory=list[Message])
    told: list[str] = field(default_factory=list[str])
    knowledge: RunKnowledge | None = None

    async def call(self, name: str, **arguments: JsonValue) -> CallOutcome:
        call = ToolCall(call_id="c1", name=name, arguments=arguments)
        try:
            prepared = prepare_call(name, arguments, build_tool_set([]))
        except ToolError as error:
            return failed_outcome(call, str(error))
        outcome = await execute_call(call, prepared, self.context())
        self.states += [one for one in outcome.messages if one.type == "browser_state"]
        return outcome

    def context(self) -> ToolContext:
        async def opened() -> Sandbox:
            self.sandbox = await self.jails.open(self.thread_id, fence=1)
            return self.sandbox

        def emit(event: AgentEvent) -> None:
            if isinstance(event, ActivityChanged):
                self.told.append(event.text)

        return ToolContext(thread_id=self.thread_id, run_id="run", sandbox=opened, emit=emit, knowledge=self.knowledge)

    async def do(self, name: str, **arguments: JsonValue) -> dict[str, Any]:
        """The output of a call that succeeds."""
        outcome = await self.call(name, **arguments)
        assert outcome.outcome == "completed", outcome.result
        output: Any = outcome.result["output"]
        return output

    async def error(self, name: str, **arguments: JsonValue) -> str:
        outcome = await self.call(name, **arguments)
        assert outcome.outcome == "failed", outcome.result
        return str(outcome.result["error"])

    async def open(self, page: str) -> dict[str, Any]:
        """A page of the site."""
        return await self.do("browser_navigate_to", url=f"{SITE}/{page}")

    @property
    def state(self) -> JsonObject:
        """The newest state, as it is stored."""
        return self.states[-1].content

    @property
    def title(self) -> str:
        return str(self.state["title"])

    @property
    def lines(self) -> list[str]:
        lines: Any = self.state["elements"]
        return lines

    def index(self, text: str) -> int:
        """The number of the one element of the newest state whose line holds the text."""
        (line,) = [line for line in self.lines if text in line]
        return int(line[1 : line.index("]")])

    async def click(self, text: str) -> dict[str, Any]:
        return await self.do("browser_click_element", index=self.index(text))

    async def until_title(self, title: str) -> list[dict[str, Any]]:
        """Looks again until the page has it: what a click sets off may take its time on a busy machine. Returns what
        was seen meanwhile."""
        seen: list[dict[str, Any]] = []
        for _ in range(100):
            if self.title == title:
                return seen
            await asyncio.sleep(0.1)
            seen.append(await self.do("browser_wait", seconds=0))
        raise AssertionError(f"the title is {self.title!r}, not {title!r}")

    async def put(self, path: str, whole: bytes) -> None:
        await self.sandbox.files.write(path, pieces(whole))

    async def get(self, path: str) -> bytes:
        return await content(self.sandbox, path)

    async def serve(self) -> None:
        """Starts the site's server in the sandbox."""
        for name, page in PAGES.items():
            await self.put(f"site/{name}", f"<!doctype html><meta charset=utf-8>{page}".encode())
        await self.put("server.py", SERVER.encode())
        started = await self.sandbox.shell.execute(
            "cd /workspace/site && python3 ../server.py", session="site", folder=None, timeout_seconds=0
        )
        while "up" not in started.output:
            assert started.exit_code is None, started.output
            started = await self.sandbox.shell.check("site", timeout_seconds=0.1)


async def new_desk(jails: LocalSandboxProvider, thread_id: str) -> BrowserStage:
    if jails.browser_unavailable_reason:
        lacking("chromium", jails.browser_unavailable_reason)
    stage = BrowserStage(jails, await jails.open(thread_id, fence=1), thread_id)
    await stage.serve()
    return stage
