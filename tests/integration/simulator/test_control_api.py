"""`python -m simulator` as a child process, driven over HTTP by a program that knows nothing but its README."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.paths import REPOSITORY
from tests.support.narrow import require_type

PATIENCE_SECONDS = 60.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}


@dataclass(slots=True)
class Simulator:
    """The child: the lines that it printed by service, and its control API."""

    process: Process
    session: aiohttp.ClientSession
    lines: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        return await self._answer("GET", path, params=query)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        return await self._answer("POST", path, json=body)

    async def _answer(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        url = f"{self.lines['control']['url']}/{path}".rstrip("/")
        async with self.session.request(method, url, **options) as response:
            body = require_type(await response.json(), dict)
            return {**body, "status": response.status}


@asynccontextmanager
async def simulator(*arguments: str) -> AsyncGenerator[Simulator, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator", *arguments, env=ENVIRONMENT, stdout=PIPE
    )
    assert process.stdout is not None
    async with aiohttp.ClientSession() as session:
        made = Simulator(process, session)
        last = "page" if "--page" in arguments else "control"
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while last not in made.lines:
                    line = await process.stdout.readline()
                    assert line, "the simulator ended without an address"
                    printed = json.loads(line)
                    made.lines[printed["service"]] = printed
                yield made
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_it_serves_all_services_and_ends_with_a_signal() -> None:
    async with simulator("--slack", "--discord", "--modal", "--page") as made:
        assert (await made.get(""))["services"] == ["slack", "discord", "modal"]
        assert all("http://127.0.0.1:" in str(line["url"]) for line in made.lines.values())
        assert made.lines["modal"]["environment"]["MODAL_SERVER_URL"] == made.lines["modal"]["url"]
        assert (await made.get("modal"))["sandboxes"] == []
        async with made.session.get(made.lines["page"]["url"]) as page:
            assert page.status == 200
        made.process.send_signal(signal.SIGTERM)
        assert await made.process.wait() == 0


async def ended(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator", *arguments, env=ENVIRONMENT, stdout=DEVNULL, stderr=PIPE
    )
    _, complaint = await process.communicate()
    return process.returncode, complaint.decode()


async def test_people_write_with_files_and_the_transcript_shows_edits_and_reactions() -> None:
    async with simulator("--slack") as made:
        sheet = {"name": "a.csv", "content_base64": b64encode(b"1,2").decode()}
        said = await made.post("slack/actions/say", person="alice", channel_id="general", text="hi", files=[sheet])
        form = aiohttp.FormData()
        action = {"person": "bob", "channel_id": "general", "text": "", "thread_id": said["id"]}
        form.add_field("action", json.dumps(action))
        form.add_field("upload", b"png", filename="b.png", content_type="image/png")
        url = f"{made.lines['control']['url']}/slack/actions/say"
        async with made.session.post(url, data=form) as response:
            assert response.status == 200
        place = {"person": "alice", "channel_id": "general", "message_id": said["id"]}
        await made.post("slack/actions/edit", **place, text="hello")
        await made.post("slack/actions/react", **place, emoji="eyes")
        thread = await made.get("slack/transcript", channel="general", thread_id=said["id"])
        first, second = thread["messages"]
        assert (first["text"], first["edits"]) == ("hello", 1)
        assert first["reactions"] == [{"emoji": "eyes", "people": ["alice"]}]
        assert [file["name"] for file in second["files"]] == ["b.png"]
        async with made.session.get(first["files"][0]["url"]) as file:
            assert await file.read() == b"1,2"
        whole = await made.get("slack/transcript", channel="general")
        assert [one["thread_id"] for one in whole["threads"]] == [said["id"]]
        changes = await made.get("slack/changes", after=str(whole["version"]), seconds="0.05")
        assert changes["version"] == whole["version"]
