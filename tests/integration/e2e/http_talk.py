"""A thread over the HTTP API of the program, and the one scripted model behind it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bots.bootstrap.program import run_program
from bots.demo.scripted_model import serve_scenario
from bots.settings import load_settings
from simulator.model.scenario import load_scenario
from simulator.model.server import ScriptedServer


@dataclass
class Talk:
    http: aiohttp.ClientSession
    script: ScriptedServer
    folder: Path
    thread_id: str = ""
    chunks: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    """What was streamed in pieces, by turn."""

    async def post(self, path: str, **body: Any) -> Any:
        async with self.http.post(path, **body) as response:
            assert response.status in (201, 202), await response.text()
            return await response.json()

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def thread(self) -> Any:
        return await self.get(f"/api/thread/{self.thread_id}")

    async def messages(self) -> list[dict[str, Any]]:
        return (await self.get(f"/api/thread/{self.thread_id}/messages"))["messages"]


@asynccontextmanager
async def talk(tmp_path: Path, story: str, **settings: str) -> AsyncIterator[Talk]:
    async with AsyncExitStack() as stack:
        script = await stack.enter_async_context(serve_scenario(load_scenario(story)))
        named = {
            "model": "openai/scripted",
            "llm_base_url": script.base_url,
            "sandbox": "unsafe-process",
            "data_dir": str(tmp_path / "data"),
            "http_port": "0",
            **settings,
        }
        environ = {f"THREADHAND_{name.upper()}": value for name, value in named.items()}
        program = await stack.enter_async_context(run_program(load_settings(environ, None)))
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{program.http_port}"))
        made = Talk(http, script, tmp_path / "data")
        made.thread_id = (await made.post("/api/thread"))["thread_id"]
        yield made
