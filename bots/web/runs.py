"""HTTP routes that show a run, stream its events and stop it, and the one that shows usage."""

import asyncio
import logging
import re
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from aiohttp import web

from bots.web import request_parsing
from bots.web.deps import DEPS, WebDeps
from bots.web.errors import ApiError
from bots.web.threads import require_thread
from core.domain.events import Cursor, is_terminal
from core.domain.json import JsonObject
from core.domain.threads import Run
from core.domain.wire_format import compact_json, suna_objects
from core.run.event_replay import follow_events
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

_CURSOR = re.compile(r"[0-9]{1,9}-[0-9]{1,9}")
STREAM_RETENTION = timedelta(hours=24)
OPEN_STREAMS: web.AppKey[set[asyncio.Task[None]]] = web.AppKey("streams", set)


async def show_run(request: web.Request) -> web.Response:
    """`GET /api/agent-run/{run_id}`: returns the state and usage of a run."""
    run = await _require_run(request)
    usage = await request.app[DEPS].conversations.usage(run_id=run.run_id)
    return web.json_response({**_run_object(run), "usage": request_parsing.usage_object(usage)})


async def list_runs(request: web.Request) -> web.Response:
    """`GET /api/thread/{thread_id}/runs?cursor=&limit=`: returns the runs of a thread, newest first."""
    thread_id, conversations = (await require_thread(request)).thread.thread_id, request.app[DEPS].conversations
    size, before = request_parsing.parse_page_size(request), request_parsing.parse_cursor(request)
    found = await conversations.newest_runs(thread_id, before=before, limit=size + 1)
    return web.json_response(request_parsing.page_object("runs", found, size, _run_object, lambda run: run.run_id))


async def stop_run(request: web.Request) -> web.Response:
    """`POST /api/agent-run/{run_id}/stop`: requests that a run stop. Has no effect on a run that has ended."""
    run = await _require_run(request)
    was_active = await request.app[DEPS].stop(run.run_id)
    answer: JsonObject = {"agent_run_id": run.run_id, "stop_requested": was_active}
    return web.json_response(answer)


async def stream_run(request: web.Request) -> web.StreamResponse:
    """`GET /api/agent-run/{run_id}/stream`: streams the events of a run as server-sent events.

    The header `Last-Event-ID` or the parameter `after` holds the ID of the last event that the client has received."""
    run = await _require_run(request)
    if run.finished_at is not None and datetime.now(UTC) - run.finished_at > STREAM_RETENTION:
        raise ApiError(410, "stream_expired", "A stream is kept for 24 hours; read the thread's messages.")
    text = request.headers.get("Last-Event-ID") or request.query.get("after")
    if text and not _CURSOR.fullmatch(text):
        raise ApiError(400, "bad_cursor", "The cursor is not one of this stream.")
    after = Cursor.parse(text) if text else None
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
        }
    )
    await response.prepare(request)
    stream = _Stream(response, request.app[DEPS])
    pump = spawn(stream.write_events(run.run_id, after), name=f"stream {run.run_id}")
    heartbeats = spawn(stream.write_heartbeats(), name=f"heartbeat {run.run_id}")
    streams = request.app[OPEN_STREAMS]
    streams.add(pump)
    try:
        await asyncio.wait({pump, heartbeats}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        streams.discard(pump)
        await cancel(heartbeats, pump)
    return response


async def close_streams(app: web.Application) -> None:
    """Ends all open streams at shutdown. Clients can reconnect with the last event ID that they received."""
    await cancel(*app[OPEN_STREAMS])


class _Stream:
    """Writes the event stream of a run to a client."""

    def __init__(self, response: web.StreamResponse, deps: WebDeps) -> None:
        self._response = response
        self._ports = deps
        self._written_at = time.monotonic()

    async def write_events(self, run_id: str, after: Cursor | None) -> None:
        """Writes events until the run's terminal event is written or the client disconnects.

        If the run has ended and the client cannot have received that event, writes a final status instead."""
        events = follow_events(run_id, after, conversations=self._ports.conversations, bus=self._ports.bus)
        try:
            async with aclosing(events):
                async for group in events:
                    lines = [(event.cursor, compact_json(shape)) for event in group for shape in suna_objects(event)]
                    text = "".join(f"id: {cursor}\ndata: {line}\n\n" for cursor, line in lines)
                    await self._write(text.encode())
                    if is_terminal(group[-1].event):
                        return
            run = await self._ports.conversations.run(run_id)
            if run is None or run.status not in ("completed", "failed", "stopped"):
                return
            stored = await self._ports.conversations.events(run_id)
            if not any(is_terminal(event.event) and event.cursor == after for event in stored):
                end: JsonObject = {"type": "status", "status": run.status, "message": run.error or ""}
                await self._write(f"data: {compact_json(end)}\n\n".encode())
        except ConnectionError:
            log.debug("the client of %s has disconnected", run_id)

    async def write_heartbeats(self) -> None:
        """Writes a comment whenever the stream is idle, so that proxies keep it open and disconnects are detected."""
        interval = self._ports.heartbeat_seconds
        try:
            while True:
                await asyncio.sleep(interval)
                if time.monotonic() - self._written_at >= interval / 2:
                    await self._write(b": still here\n\n")
        except ConnectionError:
            return

    async def _write(self, content: bytes) -> None:
        self._written_at = time.monotonic()
        await self._response.write(content)


async def show_usage(request: web.Request) -> web.Response:
    """`GET /api/usage?thread_id=`: returns tokens and cost of a thread, or of everything."""
    thread_id = request.query.get("thread_id")
    conversations = request.app[DEPS].conversations
    if thread_id is not None and await conversations.snapshot(thread_id) is None:
        raise ApiError(404, "thread_not_found", "There is no such thread.")
    usage = await conversations.usage(thread_id=thread_id)
    return web.json_response(request_parsing.usage_object(usage))


async def _require_run(request: web.Request) -> Run:
    run = await request.app[DEPS].conversations.run(request_parsing.parse_path_id(request, "run_id"))
    if run is None:
        raise ApiError(404, "run_not_found", "There is no such run.")
    return run


def _run_object(run: Run) -> JsonObject:
    return {
        "agent_run_id": run.run_id,
        "thread_id": run.thread_id,
        "status": run.status,
        "attempt": run.attempt,
        "model": run.model,
        "agent_id": run.agent_id,
        "agent_version_id": run.agent_version_id,
        "stop_requested": run.stop_requested,
        "finish_reason": run.finish_reason,
        "error": run.error,
        "created_at": run.created_at.isoformat(),
        "started_at": _isoformat(run.started_at),
        "finished_at": _isoformat(run.finished_at),
    }


def _isoformat(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
