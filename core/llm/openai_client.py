"""Clients for the chat and embedding APIs of OpenAI-compatible endpoints."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import cast

import aiohttp
import jiter

from core.domain.errors import ModelError, ModelRejected, ModelUnavailable
from core.failpoints import Failpoint
from core.llm import error_mapping
from core.llm.error_mapping import BAD_REQUEST, parse_retry_after, to_model_error
from core.llm.openai_answer import (
    AnswerReader,
    BodyReader,
    ServerSentEventReader,
    join_deltas,
    json_object,
    parse_error_body,
    to_json,
)
from core.llm.openai_request import RequestEncoder
from core.llm.reasoning import ReasoningOrigin, provider_of
from core.llm.responses_api import ResponsesEncoder, ResponsesReader
from core.llm.thinking import ThinkingHabit
from core.ports import ModelDelta, ModelRequest

log = logging.getLogger(__name__)

CONNECT_SECONDS, DEADLINE_SECONDS = 10.0, 1800.0
CONNECTIONS_MAX = 512
BODY_BYTES_MAX = 16 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
REQUEST = Failpoint("llm.openai.request")
DRAIN_SECONDS = 0.1
DRAIN_BYTES_MAX = 64 * 1024
_ABOUT_OPTIONS = frozenset({400, 422})


class _Endpoint:
    """One URL of a service, called with a key. All calls share one HTTP session, which opens at the first call.

    Redirects are refused, because they would send the API key to another server."""

    def __init__(self, url: str, api_key: str, timeout: aiohttp.ClientTimeout) -> None:
        self._url = url
        self._api_key = api_key.strip()
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, content: bytes, *, accept: str) -> aiohttp.ClientResponse:
        headers = {"Content-Type": "application/json", "Accept": accept}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return await self._session.post(self._url, data=content, headers=headers, allow_redirects=False)

    @contextmanager
    def translating(self) -> Generator[None]:
        """Context manager: inside the block, network errors become ModelErrors, whose details never hold the key."""
        try:
            yield
        except ModelError as error:
            error.detail = self._without_key(error.detail)
            raise
        except (OSError, aiohttp.ClientError) as error:
            facts = f"{type(error).__name__}: {error}" if str(error) else "no answer in time"
            detail = self._without_key(facts[: error_mapping.DETAIL_CHARACTERS_MAX])
            if isinstance(error, TimeoutError):
                raise ModelUnavailable(error_mapping.TIMED_OUT, detail=detail, is_late=True) from error
            if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientSSLError):
                raise ModelRejected(error_mapping.UNREACHABLE, detail=detail) from error
            is_connected = not isinstance(error, aiohttp.ClientConnectorError)
            sentence = error_mapping.ANSWER_BROKE_OFF if is_connected else error_mapping.UNREACHABLE
            raise ModelUnavailable(sentence, detail=detail) from error

    def _without_key(self, detail: str) -> str:
        return detail.replace(self._api_key, "[key]") if self._api_key else detail


class OpenAIChatClient:
    """Implements the LLM port for one endpoint, with the chat or the Responses API.

    `base_url` is the part of the URL before `/chat/completions` or `/responses`. `model_prefix` is removed from model
    names, for example "openai/" for names in litellm's format. A call fails if no data arrives for `silence_seconds`,
    or after DEADLINE_SECONDS in total."""

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        model_prefix: str = "",
        uses_responses_api: bool = False,
        silence_seconds: float = 180,
    ) -> None:
        path = "responses" if uses_responses_api else "chat/completions"
        timeout = aiohttp.ClientTimeout(
            total=DEADLINE_SECONDS, connect=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds
        )
        self._endpoint = _Endpoint(f"{base_url.rstrip('/')}/{path}", api_key, timeout)
        self._provider = provider_of(base_url)
        self._new_reader: Callable[[ReasoningOrigin], BodyReader] = (
            ResponsesReader if uses_responses_api else partial(AnswerReader, habits=dict[str, ThinkingHabit]())
        )
        writer = ResponsesEncoder if uses_responses_api else RequestEncoder
        limit = "max_completion_tokens" if "//api.openai.com/" in base_url else "max_tokens"
        self._writer = writer(
            provider=self._provider,
            model_prefix=model_prefix,
            tokens_key="max_output_tokens" if uses_responses_api else limit,
        )

    async def close(self) -> None:
        """Closes the connections. A later call opens new connections."""
        await self._endpoint.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Implements `LLM.stream`."""
        reader = self._new_reader(ReasoningOrigin(self._provider, request.model))
        with self._endpoint.translating():
            async with self._answer(request) as response:
                start = await _start(response, request.on_received)
                if start.startswith(b"{"):
                    whole = json_object(start + await _whole(response, BODY_BYTES_MAX))
                    deltas = reader.read(whole)
                    if not deltas and not reader.is_finished:
                        raise to_model_error(parse_error_body(whole))
                    for delta in (*deltas, *reader.flush()):
                        yield delta
                else:
                    # this loop is inline because every extra generator would slow down each piece of the answer
                    events, piece = ServerSentEventReader(reader), start
                    while piece and not events.is_over:
                        for delta in join_deltas(events.feed(piece)):
                            yield delta
                        if not events.is_over:
                            piece = await response.content.readany()
                            request.on_received()
                    if events.is_over:
                        # reads the rest of the HTTP response, so that the connection can be reused
                        with suppress(TimeoutError, aiohttp.ClientError):
                            async with asyncio.timeout(DRAIN_SECONDS):
                                size = 0
                                while size < DRAIN_BYTES_MAX and (piece := await response.content.readany()):
                                    size += len(piece)
                    for delta in events.close():
                        yield delta
        yield reader.build_last_delta()

    @asynccontextmanager
    async def _answer(self, request: ModelRequest) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Context manager: sends the request and yields the response, whose status is 200.

        If the service rejects an option or misses the model's reasoning, the request is changed and repeated."""
        response = await self._post(request)
        try:
            while response.status != 200:
                refusal = await _refusal(response)
                error = to_model_error(refusal)
                is_vague = refusal.status in _ABOUT_OPTIONS and str(error) == BAD_REQUEST
                if not (is_vague and self._writer.adapt_to_refusal(request, refusal.message)):
                    raise error
                log.info("the request is changed and sent again: %s", refusal.message[:200])
                response.close()
                response = await self._post(request)
            yield response
        finally:
            # a connection cannot be reused unless its response was read to the end
            response.close()

    async def _post(self, request: ModelRequest) -> aiohttp.ClientResponse:
        accept = "text/event-stream" if request.is_streamed else "application/json"
        with REQUEST:
            return await self._endpoint.post(self._writer.body(request), accept=accept)


async def _start(response: aiohttp.ClientResponse, on_received: Callable[[], None]) -> bytes:
    """Returns the first piece of the response that is not only white space, without leading white space.

    Its first character distinguishes a JSON object from a stream, because servers send wrong content types."""
    async for piece in response.content.iter_any():
        on_received()
        if start := piece.removeprefix(b"\xef\xbb\xbf").lstrip():
            return start
    return b""


async def _whole(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise ModelRejected(error_mapping.TOO_LARGE, detail=f"more than {bytes_max} bytes")
    return b"".join(pieces)


async def _refusal(response: aiohttp.ClientResponse) -> error_mapping.ErrorResponse:
    text = (await response.content.read(ERROR_BYTES_MAX)).decode("utf-8", "replace")
    try:
        body = cast(object, jiter.from_json(text.encode()))
    except ValueError:
        body = text
    if isinstance(body, list):
        # Google's endpoint wraps the error object in a list
        body = next(iter(cast(list[object], body)), None)
    return parse_error_body(body, status=response.status, retry_after_seconds=parse_retry_after(response.headers))


EMBEDDINGS_BYTES_MAX = 64 * 1024 * 1024
EMBED = Failpoint("llm.openai.embed")


class OpenAIEmbeddingClient:
    """Implements `core.llm.embeddings.EmbeddingClient` for one endpoint.

    `base_url` is the part of the URL before `/embeddings`. `model_prefix` is removed from model names."""

    def __init__(
        self, base_url: str, api_key: str = "", *, model_prefix: str = "", deadline_seconds: float = 120
    ) -> None:
        timeout = aiohttp.ClientTimeout(total=deadline_seconds, sock_connect=CONNECT_SECONDS)
        self._endpoint = _Endpoint(f"{base_url.rstrip('/')}/embeddings", api_key, timeout)
        self._model_prefix = model_prefix

    async def close(self) -> None:
        """Closes the connections. A later call opens new connections."""
        await self._endpoint.close()

    async def embed(self, model: str, texts: Sequence[str]) -> dict[str, object]:
        """Returns the provider's response. Raises ModelError."""
        name = model.removeprefix(self._model_prefix)
        content = to_json({"model": name, "input": list(texts), "encoding_format": "float"})
        with self._endpoint.translating(), EMBED:
            async with await self._endpoint.post(content, accept="application/json") as response:
                if response.status != 200:
                    raise to_model_error(await _refusal(response))
                return json_object(await _whole(response, EMBEDDINGS_BYTES_MAX))
