"""A strict model endpoint that plays the answers in tests/fixtures/providers.

The fixtures are written after the providers' documentation. The endpoint refuses requests with a wrong key, path or
shape, and later requests in which something is missing that the provider wants back.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.web_service import fake_web_service
from tests.paths import REPOSITORY

FOLDER = REPOSITORY / "tests" / "fixtures" / "providers"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
KEY = "sk-of-the-test"
PIECE_BYTES = 61
Json = dict[str, Any]


def load_fixture(name: str) -> Json:
    fixture: Json = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return fixture


@dataclass
class RecordedProvider:
    """Answers with the fixture's stream or whole answer, or with `error` if it is set.

    `requests` are the bodies that it accepted, `refusals` what it said to the others.
    """

    fixture: Json
    error: Json | None = None
    requests: list[Json] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if problem := self._problem(request, body):
            self.refusals.append(problem)
            return web.json_response({"error": {"message": problem}}, status=400)
        self.requests.append(body)
        is_streamed = bool(body.get("stream")) or "stream" in request.path
        if self.error and "body" in self.error:
            status, headers = self.error["status"], self.error.get("headers")
            return web.json_response(self.error["body"], status=status, headers=headers)
        if not is_streamed:
            return web.json_response(self.fixture["whole"])
        return await stream(request, self.error["events"] if self.error else self.fixture["stream"])

    def _problem(self, request: web.Request, body: Json) -> str:
        header = self.fixture.get("key_header", "authorization")
        key = request.headers.get(header, request.query.get("key", ""))
        if key.removeprefix("Bearer ") != KEY:
            return f"the key is missing in {header}"
        path = self.fixture["path"] if body.get("stream") else self.fixture.get("whole_path")
        if not request.path.endswith((self.fixture["path"], path or self.fixture["path"])):
            return f"there is nothing at {request.path}"
        messages = body.get("messages") or body.get("input") or body.get("contents")
        if not isinstance(messages, list) or not messages:
            return "there are no messages"
        for name in self.fixture.get("refuses", ()):
            if any(name in one for one in messages):
                return f"'messages.1' : property '{name}' is unsupported"
        wanted = self.fixture["returns"] if len(messages) > 1 else ()
        missing = [one for one in wanted if not holds(messages, one)]
        return f"missing: {json.dumps(missing)}" if missing else ""


def holds(value: object, wanted: Json) -> bool:
    """Returns whether an object inside the value has all these fields, unchanged."""
    if isinstance(value, list):
        return any(holds(one, wanted) for one in value)
    if not isinstance(value, dict):
        return False
    is_here = {key: value.get(key) for key in wanted} == wanted
    return is_here or any(holds(one, wanted) for one in value.values())


async def stream(request: web.Request, events: list[Json | str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    content = "".join(map(written, events)).encode()
    for start in range(0, len(content), PIECE_BYTES):
        await response.write(content[start : start + PIECE_BYTES])
    return response


def written(event: Json | str) -> str:
    if isinstance(event, str):
        return f"{event}\n\n" if event.startswith(":") else f"data: {event}\n\n"
    kind = f"event: {event['type']}\n" if "type" in event else ""
    return f"{kind}data: {json.dumps(event, ensure_ascii=False)}\n\n"


@asynccontextmanager
async def serve_provider(provider: RecordedProvider) -> AsyncIterator[str]:
    """Context manager: serves the endpoint inside the block and yields its base URL."""
    async with fake_web_service([web.post("/{path:.*}", provider.answer)]) as service:
        yield service.url + provider.fixture.get("base", "/v1")
