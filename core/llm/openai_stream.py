"""A direct streaming client for OpenAI-compatible endpoints, over one shared session."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import cast

import aiohttp
import jiter

from core.errors import ModelError, ModelRejected, ModelUnavailable
from core.failpoints import Failpoint
from core.llm import errors
from core.llm.errors import error_of, retry_after
from core.llm.openai_chunks import AnswerReader, read_refusal, to_json
from core.messages import JsonObject
from core.ports import ModelDelta, ModelRequest

CONNECTIONS_MAX = 512
LINE_BYTES_MAX = 16 * 1024 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
REQUEST = Failpoint("llm.openai.request")
DRAIN_SECONDS = 0.1

_NETWORK: tuple[tuple[tuple[type[Exception], ...], type[ModelError], str], ...] = (
    ((aiohttp.InvalidURL,), ModelRejected, errors.UNREACHABLE),
    (
        (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError),
        ModelRejected,
        errors.UNREACHABLE,
    ),
    ((TimeoutError,), ModelUnavailable, errors.TIMED_OUT),
    ((aiohttp.ClientConnectorError,), ModelUnavailable, errors.UNREACHABLE),
)
"""First match counts; whatever else breaks on the network is an answer broken off."""


class OpenAIStream:
    """The LLM port for one endpoint. State: the session, made at the first call and shared by all.

    `base_url` ends before `/chat/completions`. `model_prefix` is taken off the names of models ("openai/" lets a name
    written for litellm be used here). A call may take `deadline_seconds` in all, and be silent for
    `silence_seconds`. Redirects are refused, since the key would go with them.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        model_prefix: str = "",
        connect_seconds: float = 10,
        silence_seconds: float = 180,
        deadline_seconds: float = 1800,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key = api_key.strip()
        self._model_prefix = model_prefix
        self._tokens_key = (
            "max_completion_tokens" if "//api.openai.com/" in self._url else "max_tokens"
        )
        self._timeout = aiohttp.ClientTimeout(
            total=deadline_seconds,
            connect=None,
            sock_connect=connect_seconds,
            sock_read=silence_seconds,
        )
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """As the port says."""
        reader = AnswerReader()
        try:
            async with aclosing(self._bodies(request)) as bodies:
                async for body in bodies:
                    if body.get("error"):
                        raise error_of(read_refusal(body))
                    for delta in reader.read(body):
                        yield delta
        except ModelError as error:
            error.detail = self._without_key(error.detail)
            raise
        except (OSError, aiohttp.ClientError) as error:
            raise self._translated(error) from error
        if reader.has_failed:
            raise ModelUnavailable(errors.BROKEN_OFF, detail="finish_reason error")
        yield reader.finished()

    def _translated(self, error: Exception) -> ModelError:
        facts = f"{type(error).__name__}: {error}"[: errors.DETAIL_CHARACTERS_MAX]
        for kinds, translation, sentence in _NETWORK:
            if isinstance(error, kinds):
                return translation(sentence, detail=self._without_key(facts))
        return ModelUnavailable(errors.BROKEN_OFF, detail=self._without_key(facts))

    async def _bodies(self, request: ModelRequest) -> AsyncGenerator[dict[str, object], None]:
        """The JSON objects of the answer: many of a stream, one of a whole answer."""
        with REQUEST:
            response = await self._open().post(
                self._url,
                data=to_json(self._payload(request)),
                headers=self._headers(request),
                allow_redirects=False,
            )
        try:
            if response.status != 200:
                raise error_of(await _refusal(response))
            if response.content_type == "application/json":
                yield _object(await _whole(response, BODY_BYTES_MAX))
                return
            async with aclosing(_events(response)) as events:
                async for body in events:
                    yield body
        finally:
            # a connection whose answer was not read to its end cannot be used again
            response.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if request.is_streamed else "application/json",
        }
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def _payload(self, request: ModelRequest) -> dict[str, object]:
        payload: dict[str, object] = {
            "model": request.model.removeprefix(self._model_prefix),
            "messages": [sendable(message) for message in request.messages],
            "stream": request.is_streamed,
        }
        if request.is_streamed:
            payload["stream_options"] = {"include_usage": True}
        if request.tools:
            payload["tools"] = request.tools
        if request.temperature is not None:
            payload["temperature"] = request.temperature
        if request.output_tokens_max is not None:
            payload[self._tokens_key] = request.output_tokens_max
        if request.stop_sequences:
            payload["stop"] = request.stop_sequences
        return payload

    def _without_key(self, detail: str) -> str:
        return detail.replace(self._api_key, "[key]") if self._api_key else detail


def sendable(message: JsonObject) -> JsonObject:
    """A stored message as providers accept it: none of them takes an empty `tool_calls`."""
    if "tool_calls" in message and not message["tool_calls"]:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return message


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, object], None]:
    """The data of server-sent events. Raises ModelUnavailable when the stream ends before the answer does."""
    is_finished = False
    async with aclosing(_lines(response)) as lines:
        async for line in lines:
            if not line.startswith(b"data:"):
                continue
            content = line[5:].strip()
            if content == b"[DONE]":
                await _drain(response)
                return
            if content:
                body = _object(content)
                is_finished = is_finished or _has_finish(body)
                yield body
    if not is_finished:
        raise ModelUnavailable(errors.BROKEN_OFF, detail="the stream ended without its end")


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Reads the end of the HTTP message, so that the connection can be used again."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.content.readany():
                pass


def _has_finish(body: dict[str, object]) -> bool:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        return False
    choice = cast(list[object], choices)[0]
    return isinstance(choice, dict) and bool(cast(dict[str, object], choice).get("finish_reason"))


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    pending: list[bytes] = []
    pending_bytes = 0
    async for piece in _pieces(response):
        *whole, rest = piece.split(b"\n")
        if whole:
            yield b"".join((*pending, whole[0]))
            for line in whole[1:]:
                yield line
            pending, pending_bytes = [], 0
        if rest:
            pending.append(rest)
            pending_bytes += len(rest)
            if pending_bytes > LINE_BYTES_MAX:
                raise ModelUnavailable(errors.UNREADABLE, detail="a line of the stream is too long")
    if pending:
        yield b"".join(pending)


def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    return response.content.iter_any()


def _object(content: bytes) -> dict[str, object]:
    try:
        body = cast(object, jiter.from_json(content, cache_mode="keys"))
    except ValueError as error:
        raise ModelUnavailable(errors.UNREADABLE, detail=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ModelUnavailable(errors.UNREADABLE, detail="not a JSON object")
    return cast(dict[str, object], body)


async def _whole(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in _pieces(response):
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise ModelUnavailable(errors.UNREADABLE, detail="the answer is too large")
    return b"".join(pieces)


async def _refusal(response: aiohttp.ClientResponse) -> errors.Refusal:
    text = (await response.content.read(ERROR_BYTES_MAX)).decode("utf-8", "replace")
    try:
        body = cast(object, jiter.from_json(text.encode()))
    except ValueError:
        body = text
    if isinstance(body, list):
        # Google's endpoint wraps its error in a list
        body = next(iter(cast(list[object], body)), None)
    return read_refusal(
        body, status=response.status, retry_after_seconds=retry_after(response.headers)
    )
