"""Runs over HTTP: state, stop, and the live stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import time_machine

from bots.web.runs import OPEN_STREAMS
from core.domain.events import ResponseStarted, RunFinished, TextStreamed, TurnStarted
from core.domain.ids import new_id
from tests.support.waiting import until
from tests.support.web_stage import Stage, staged

DONE = RunFinished(status="completed", finish_reason="stop", message="Done.")


async def frames(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """(id, object) of each event; comments are left out."""
    identity = ""
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            identity = line[4:]
        elif line.startswith("data: "):
            yield identity, json.loads(line[6:])
            identity = ""


def gist(shape: dict[str, Any]) -> str:
    if "status" in shape:
        return f"run {shape['status']}"
    content = json.loads(shape["content"])
    return str(content.get("status_type") or content["content"])


async def replay(stage: Stage, run_id: str, **more: Any) -> list[tuple[str, str]]:
    async with stage.http.get(f"/api/agent-run/{run_id}/stream", **more) as response:
        assert response.status == 200
        return [(identity, gist(shape)) async for identity, shape in frames(response)]


async def reading(stage: Stage) -> None:
    """Until a stream is subscribed, so that what is published now reaches it."""
    await until(lambda: stage.bus._readers)


async def test_a_stop_is_asked_for_and_a_late_one_does_no_harm(stage: Stage) -> None:
    lease = await stage.begun()
    path = f"/api/agent-run/{lease.run_id}/stop"
    answer = await stage.json("POST", path)
    assert answer == {"agent_run_id": lease.run_id, "stop_requested": True}
    assert (await stage.json("GET", f"/api/agent-run/{lease.run_id}"))["stop_requested"]
    await stage.end(lease, DONE)
    assert (await stage.json("POST", path))["stop_requested"] is False


async def test_the_stream_is_live_and_ends_with_the_run(stage: Stage) -> None:
    lease = await stage.begun()
    async with stage.http.get(f"/api/agent-run/{lease.run_id}/stream") as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        await reading(stage)
        events = frames(response)
        await stage.happen(lease, TurnStarted(turn_id="t1", number=1), ResponseStarted())
        await stage.happen(lease, TextStreamed(text="Hi\nyou", sequence=0))
        first = [await anext(events) for _ in range(3)]
        assert [(identity, gist(shape)) for identity, shape in first] == [
            ("1-1", "thread_run_start"),
            ("1-2", "assistant_response_start"),
            ("1-3", "Hi\nyou"),
        ]
        assert (first[2][1]["sequence"], first[2][1]["message_id"]) == (0, None)
        await stage.end(lease, DONE)
        assert [(i, shape) async for i, shape in events] == [
            ("1-4", {"type": "status", "status": "completed", "message": "Done."})
        ]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_cursor_beyond_the_end_gets_the_end(stage: Stage, is_kept: bool) -> None:
    lease = await stage.begun()
    await stage.end(lease, DONE, keep=is_kept)
    assert await replay(stage, lease.run_id, params={"after": "9-999"}) == [("", "run completed")]


@pytest.mark.parametrize("cursor", ["x", "1", "1-2-3", "-1-2", "99999999999999999999-1", "١-١"])
async def test_a_cursor_that_is_none_is_refused(stage: Stage, cursor: str) -> None:
    lease = await stage.begun()
    path = f"/api/agent-run/{lease.run_id}/stream"
    answer = await stage.json("GET", path, params={"after": cursor}, status=400)
    assert answer["error"] == "bad_cursor"


async def test_a_stream_is_gone_after_a_day(stage: Stage) -> None:
    lease = await stage.begun()
    await stage.end(lease, DONE)
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=25), tick=True):
        path = f"/api/agent-run/{lease.run_id}/stream"
        assert (await stage.json("GET", path, status=410))["error"] == "stream_expired"


async def test_a_reader_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with staged(tmp_path, heartbeat_seconds=0.02) as stage:
        lease = await stage.begun()
        async with stage.http.get(f"/api/agent-run/{lease.run_id}/stream") as response:
            await reading(stage)
            response.close()
        async with asyncio.timeout(30):
            while stage.app[OPEN_STREAMS] or stage.bus._readers:
                await asyncio.sleep(0.005)


async def test_the_end_of_the_program_ends_the_streams(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        lease = await stage.begun()
        async with stage.http.get(f"/api/agent-run/{lease.run_id}/stream") as response:
            await reading(stage)
            async with asyncio.timeout(30):
                await stage.app.shutdown()
                assert await response.content.read() == b""


@pytest.mark.parametrize("tail", ["", "/stream"])
async def test_an_unknown_run_is_refused(stage: Stage, tail: str) -> None:
    answer = await stage.json("GET", f"/api/agent-run/{new_id()}{tail}", status=404)
    assert answer["error"] == "run_not_found"
    await stage.json("GET", f"/api/agent-run/x{tail}", status=400)
