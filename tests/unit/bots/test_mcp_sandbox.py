"""A session of `threadhand mcp` holds its sandbox only while a call lasts."""

import pytest
from pydantic import BaseModel

from bots.mcp.server import release_sandbox_after
from core.domain.errors import ToolError
from core.tools.tool import Tool, ToolContext
from tests.fakes.sandbox_memory import MemorySandboxes


class RecordingSandboxes(MemorySandboxes):
    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()

    def release(self, thread_id: str) -> None:
        self.held.discard(thread_id)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_sandbox_is_released_after_each_call(*, fails: bool) -> None:
    sandboxes = RecordingSandboxes()

    async def run(_params: BaseModel, context: ToolContext) -> str:
        assert context.thread_id == "session"
        sandboxes.held.add(context.thread_id)
        if fails:
            raise ToolError("It failed.")
        return "done"

    async def no_sandbox() -> None:
        raise AssertionError

    tool = Tool(name="t", effect="reads", params=BaseModel, run=run, title=lambda _params: "t")
    context = ToolContext(thread_id="session", run_id="session", sandbox=no_sandbox)
    wrapped = release_sandbox_after(tool, sandboxes)
    if fails:
        with pytest.raises(ToolError):
            await wrapped.run(BaseModel(), context)
    else:
        assert await wrapped.run(BaseModel(), context) == "done"
    assert sandboxes.held == set()
