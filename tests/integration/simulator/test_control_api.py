"""The simulators over HTTP, used by a program that knows only their README, with injected faults."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.slack import SlackSettings, SlackSimulator
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


@dataclass(frozen=True)
class Caller:
    """Plain calls to one of the platforms. `pattern` names its call that posts, as a fault does."""

    platform: SlackSimulator | DiscordSimulator
    session: aiohttp.ClientSession
    pattern: str
    post_url: str
    read_url: str

    async def post(self, **more: object) -> int:
        place = {"channel": "#general", "text": "a", "content": "a"}
        async with self.session.post(self.post_url, json=place, **more) as response:
            return response.status

    async def read(self) -> int:
        async with self.session.get(self.read_url) as response:
            return response.status

    def posted(self) -> int:
        (channel,) = (one for one in self.platform.view().channels if one.name == "general")
        return len(channel.messages)


@pytest.fixture(params=["slack", "discord"])
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    is_slack = request.param == "slack"
    slack = SlackSimulator(settings=SlackSettings(rate_scale=0, channels=("general",)))
    discord = DiscordSimulator(token="t", channels=("general",), settings=DiscordSettings(rate_limit_scale=0))
    async with slack if is_slack else discord as platform:
        token = f"Bearer {slack.settings.bot_token}" if is_slack else "Bot t"
        api, messages = platform.api_url, "/channels/4001/messages"
        post, read = ("chat.postMessage", "auth.test") if is_slack else (messages, "/users/@me")
        pattern = post if is_slack else f"POST {messages}"
        async with aiohttp.ClientSession(headers={"Authorization": token}) as session:
            yield Caller(platform, session, pattern, api + post, api + read)


@pytest.mark.parametrize(("fault", "messages"), [("server_error", 0), ("error_after", 1)])
async def test_an_error_comes_before_or_after_the_work(caller: Caller, fault: str, messages: int) -> None:
    caller.platform.misbehave(fault, method=caller.pattern)
    assert await caller.read() == 200
    assert (await caller.post(), caller.posted()) == (500, messages)
    assert (await caller.post(), caller.posted()) == (200, messages + 1)


@pytest.mark.parametrize(("fault", "messages"), [("timeout", 0), ("timeout_after", 1)])
async def test_a_response_never_comes(caller: Caller, fault: str, messages: int) -> None:
    caller.platform.misbehave(fault, method=caller.pattern)
    with pytest.raises(TimeoutError):
        await caller.post(timeout=aiohttp.ClientTimeout(total=0.2))
    assert caller.posted() == messages
