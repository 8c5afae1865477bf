"""Hooks over HTTP: what is taken, what is refused, and that nothing a stranger sends breaks the server."""

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp

from bots.inbound.hook_calls import new_hook_secret
from bots.web.app import serve_app, web_app
from bots.web.hooks import Hooks
from core.domain.schedules import DEFAULT_LIMITS, EVENTS_PER_HOUR_MAX, Trigger
from tests.integration.bots.web.test_schedules import ALICE, CHANNEL, in_chat, runner
from tests.support.web_stage import Stage

SECRET = new_hook_secret()


@asynccontextmanager
async def hooked(stage: Stage) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of a server with a hook in the API's own place."""
    schedules = runner(stage)
    await in_chat(stage, "incidents")
    found = await schedules.schedules.find("incidents")
    assert found is not None
    place = replace(CHANNEL, platform="api", workspace_id="api", channel_id="api")
    hook = replace(found, address=place, timing=Trigger(kind="hook", secret=SECRET))
    assert await schedules.schedules.save(hook, DEFAULT_LIMITS, by=ALICE, change="changed")
    app = web_app(stage.ports)
    app.add_routes(Hooks(runner=schedules).routes())
    async with (
        serve_app(app, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield http
    await schedules.close()


async def status(http: aiohttp.ClientSession, path: str, body: bytes = b"{}", **headers: str) -> int:
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(path, data=io.BytesIO(body), headers=named) as response:
        content = await response.json()
        assert ("status" in content) is (response.status < 300)
        return response.status


async def test_a_signed_call_is_taken_once_and_begins_a_run(stage: Stage) -> None:
    async with hooked(stage) as http:
        path = f"/hooks/incidents/{SECRET}"
        assert await status(http, path, b'{"title": "Disk full"}') == 202
        assert await status(http, path, b'{"title": "Disk full"}') == 200
        assert await status(http, "/hooks/incidents", b'{"title": "Other"}', Authorization=f"Bearer {SECRET}") == 202
        assert await status(http, path, x_github_event="ping") == 200
        refused = {
            "/hooks/incidents": b"{}",
            "/hooks/incidents/whsec_x": b"{}",
            f"/hooks/other/{SECRET}": b"{}",
            "/hooks/%00/%0a": b"{}",
        }
        assert {path: await status(http, path, body) for path, body in refused.items()} == dict.fromkeys(refused, 401)
        assert await status(http, path, b"no json") == 400
        assert await status(http, path, b"[" + b"1," * 600_000 + b"1]") == 413


async def test_a_paused_hook_and_one_that_is_called_too_often_say_so(stage: Stage) -> None:
    async with hooked(stage) as http:
        path = f"/hooks/incidents/{SECRET}"
        for number in range(EVENTS_PER_HOUR_MAX):
            assert await status(http, path, json.dumps({"title": number}).encode()) == 202
        assert await status(http, path, b'{"title": "one more"}') == 429
        assert await runner(stage).schedules.pause_schedule("incidents", by=ALICE)
        assert await status(http, path, b'{"title": "another"}') == 409


async def test_a_schedule_is_no_hook(stage: Stage) -> None:
    async with hooked(stage) as http:
        await in_chat(stage, "daily")
        assert await status(http, f"/hooks/daily/{SECRET}") == 401
