"""An OpenAI-compatible HTTP server on this machine that answers with the steps of a scenario."""

import asyncio
import json
import logging
import zlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast, overload

from aiohttp import web

from simulator.model.playback import (
    ChatRequest,
    MatchedStep,
    Messages,
    UnexpectedRequest,
    answer_deltas,
    delta_length,
    finish_reason,
    json_fields,
    match_step,
    usage,
    whole_message,
)
from simulator.model.scenario import Fault, JsonObject, Scenario
from simulator.serving import HOST, start_listening, stop_server

log = logging.getLogger(__name__)

MODEL_NAME = "scripted"
REQUEST_BYTES_MAX = 64 * 1024 * 1024
CREATED = 1_700_000_000
DIMENSIONS = 64


ReadMessages = Callable[[Messages], tuple[Messages, str]]


def read_plain(messages: Messages) -> tuple[Messages, str]:
    """Returns the messages as they are, and no state of the work."""
    return messages, ""


class ScriptedServer:
    """Plays one scenario for any number of clients, and records played steps, requests and unexpected requests.

    `read` returns what scenarios match in the messages of a request: the messages, and the state of the work."""

    def __init__(self, scenario: Scenario, read: ReadMessages) -> None:
        self._scenario = scenario
        self._read = read
        self._plays: Counter[tuple[str, int]] = Counter()
        self.base_url = ""
        self.problems: list[str] = []
        """The reason for each request that had no matching step, in order."""
        self.requests = RequestLog()

    def unplayed_steps(self) -> tuple[str, ...]:
        """Returns the required steps that no request has reached, formatted as "conversation, step 2"."""
        return tuple(
            f"{conversation.name}, step {number + 1}"
            for conversation in self._scenario.conversations
            for number, step in enumerate(conversation.steps)
            if not step.optional and not self._plays[conversation.name, number]
        )

    def check(self) -> None:
        """Raises AssertionError if a request was unexpected or a required step was never played."""
        if self.problems:
            raise AssertionError("unexpected: " + "; ".join(self.problems))
        if left := self.unplayed_steps():
            raise AssertionError("never played: " + "; ".join(left))

    async def models(self, _request: web.Request) -> web.Response:
        """Handles `GET /v1/models`."""
        return web.json_response({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

    async def embed(self, request: web.Request) -> web.Response:
        """Handles `POST /v1/embeddings`. Texts that share words get similar vectors."""
        body = cast(object, await request.json())
        asked = cast(JsonObject, body) if isinstance(body, dict) else {}
        texts = asked.get("input")
        if not isinstance(texts, list) or not texts:
            return _error(400, "input must be a list of texts")
        vectors = [
            {"object": "embedding", "index": index, "embedding": word_vector(str(text))}
            for index, text in enumerate(texts)
        ]
        counted = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        model = str(asked.get("model") or MODEL_NAME)
        return web.json_response({"object": "list", "model": model, "data": vectors, "usage": counted})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Handles `POST /v1/chat/completions`."""
        try:
            text = await request.text()
            body = cast(object, json.loads(text))
            sent = self._sent(body)
            body = cast(JsonObject, body)
            self.requests.add(text)
            play = match_step(self._scenario, sent)
            pieces = list(answer_deltas(play, is_native=bool(sent.tools)))
        except (UnexpectedRequest, ValueError) as error:
            self.problems.append(str(error))
            log.warning("the scenario has no answer: %s", error)
            return _error(400, f"The scenario has no answer: {error}", code="scenario")
        played = self._plays[play.conversation.name, play.number]
        self._plays[play.conversation.name, play.number] += 1
        fault = play.step.fault if play.step.fault and played < play.step.fault.times else None
        await asyncio.sleep(play.step.delay_seconds)
        if fault is not None and fault.kind == "status":
            return _error(fault.status, fault.message, code=fault.code, retry_after=fault.retry_after_seconds)
        answer = _Answer(play, pieces, fault, is_native=bool(sent.tools), body=body)
        if body.get("stream"):
            return await answer.stream(request)
        return await answer.whole(request)

    def _sent(self, body: object) -> ChatRequest:
        """Parses the request body. Raises UnexpectedRequest if a real endpoint would reject the body."""
        if not isinstance(body, dict):
            raise UnexpectedRequest("the body is not a JSON object")
        request = cast(dict[str, object], body)
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages:
            raise UnexpectedRequest("there are no messages")
        checked, state = self._read(tuple(map(_checked, cast(list[object], messages))))
        tools = cast(list[object], request.get("tools") or [])
        return ChatRequest(messages=checked, tools=frozenset(map(_tool_name, tools)), state=state)


class _Answer:
    """Sends one response, either streamed or as a whole."""

    def __init__(
        self, play: MatchedStep, pieces: Sequence[JsonObject], fault: Fault | None, *, is_native: bool, body: JsonObject
    ) -> None:
        self._play = play
        self._pieces = pieces
        self._fault = fault
        self._reason = finish_reason(play, is_native=is_native)
        self._model = str(body.get("model") or MODEL_NAME)
        options = body.get("stream_options")
        self._tells_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._usage = usage(
            play,
            input_characters=len(json.dumps(body.get("messages"))),
            output_characters=sum(map(delta_length, pieces)),
        )

    async def whole(self, request: web.Request) -> web.StreamResponse:
        """Sends the response as one JSON object. A fault breaks the connection."""
        if self._fault is not None:
            await self._break(request)
        choice = {"index": 0, "message": whole_message(list(self._pieces)), "finish_reason": self._reason}
        return web.json_response({**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Sends server-sent events: one per delta, then the finish reason, the usage and [DONE]."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        written = 0
        await self._send_delta(response, {"role": "assistant", "content": ""})
        for piece in self._pieces:
            if self._fault is not None and written >= self._fault.after_characters:
                break
            written += delta_length(piece)
            await self._send_delta(response, piece)
            if self._play.step.chunk_delay_seconds:
                await asyncio.sleep(self._play.step.chunk_delay_seconds)
        if self._fault is not None:
            return await self._fail(request, response, self._fault)
        await self._send_delta(response, {}, self._reason)
        if self._tells_usage:
            told = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage}
            await _send(response, json.dumps(told))
        await _send(response, "[DONE]")
        await response.write_eof()
        return response

    async def _fail(self, request: web.Request, response: web.StreamResponse, fault: Fault) -> web.StreamResponse:
        if fault.kind == "garbage":
            await _send(response, '{"choices": [{"delta": {"content": "hal')
        elif fault.kind == "error":
            error = {"message": fault.message, "code": fault.code}
            await _send(response, json.dumps({"error": error}))
        elif fault.kind != "end":
            await self._break(request)
        await response.write_eof()
        return response

    async def _break(self, request: web.Request) -> None:
        if self._fault is not None and self._fault.kind == "hang":
            await asyncio.sleep(self._fault.hang_seconds)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError

    async def _send_delta(self, response: web.StreamResponse, delta: JsonObject, reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        told = {**self._envelope("chat.completion.chunk"), "choices": [choice]}
        await _send(response, json.dumps(told, ensure_ascii=False))

    def _envelope(self, kind: str) -> JsonObject:
        return {"id": "chatcmpl-scripted", "object": kind, "created": CREATED, "model": self._model}


@asynccontextmanager
async def serve(scenario: Scenario, *, read: ReadMessages = read_plain) -> AsyncGenerator[ScriptedServer]:
    """Context manager: serves the scenario over HTTP inside the block and yields the server.

    Clients connect to the server's `base_url`."""
    server = ScriptedServer(scenario, read)
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_post("/v1/embeddings", server.embed)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    server.base_url = f"http://{HOST}:{await start_listening(runner, 0)}/v1"
    try:
        yield server
    finally:
        await stop_server(runner)


def word_vector(text: str) -> list[float]:
    """Returns a vector that counts the text's words. Each word's hash determines its position in the vector."""
    vector = [0.01] * DIMENSIONS
    for word in text.lower().split():
        vector[zlib.crc32(word.strip(".,:;?!").encode()) % DIMENSIONS] += 1
    return vector


async def _send(response: web.StreamResponse, content: str) -> None:
    await response.write(f"data: {content}\n\n".encode("utf-8", "replace"))


def _error(
    status: int, message: str, *, code: str | int | None = None, retry_after: float | None = None
) -> web.Response:
    headers = {"Retry-After": f"{retry_after:g}"} if retry_after is not None else None
    error = {"error": {"message": message, "code": code, "type": None}}
    return web.json_response(error, status=status, headers=headers)


def _checked(message: object) -> dict[str, object]:
    found = json_fields(message)
    if found.get("role") not in ("system", "user", "assistant", "tool", "developer"):
        raise UnexpectedRequest(f"a message has the role {found.get('role')!r}")
    if found["role"] == "tool" and not isinstance(found.get("tool_call_id"), str):
        raise UnexpectedRequest("a tool message has no tool_call_id")
    if "tool_calls" in found and not found["tool_calls"]:
        raise UnexpectedRequest("a message has empty tool_calls")
    return found


def _tool_name(tool: object) -> str:
    name = json_fields(json_fields(tool).get("function")).get("name")
    if not isinstance(name, str):
        raise UnexpectedRequest("a tool has no name")
    return name


KEPT_MAX = 1000


class RequestLog(Sequence[JsonObject]):
    """The newest request bodies, oldest first, up to `KEPT_MAX`.

    Stored as text, because scanning a thousand parsed bodies in each garbage collection took a quarter of this server's
    time."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=KEPT_MAX)

    def add(self, text: str) -> None:
        """Adds a request body. `text` must be valid JSON."""
        self._texts.append(text)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> JsonObject: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JsonObject]: ...
    def __getitem__(self, index: int | slice) -> JsonObject | Sequence[JsonObject]:
        if isinstance(index, slice):
            return [_read(text) for text in list(self._texts)[index]]
        return _read(self._texts[index])

    def __repr__(self) -> str:
        return repr(list(self))


def _read(text: str) -> JsonObject:
    return cast(JsonObject, json.loads(text))
