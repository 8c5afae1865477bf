"""The core's client of a sandbox's browser. Every answer is validated as hostile input."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.failpoints import Failpoint
from core.ports import BrowserResult, PageState
from sandbox.client.call import CallStream, replace_surrogates
from sandbox.client.connection import Connection
from sandbox.inside.browser import protocol

ACT = Failpoint("sandbox.browse")

URL_CHARACTERS_MAX = 4000
TEXT_CHARACTERS_MAX = 200_000
TABS_MAX = 50
LINES_MAX = 500
SENTENCES_MAX = 30
JPEG_START = b"\xff\xd8\xff"
SILENT = (
    "The browser did not answer and was ended; the next call starts a fresh one with the same profile."
    " Open the page again."
)
GONE = "The browser ended during the call. The next call starts a fresh one with the same profile."


class BrowserClient:
    """Satisfies `core.ports.Browser`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def act(self, action: str, arguments: JsonObject, *, timeout_seconds: float) -> BrowserResult:
        request = protocol.encode_message({"op": "act", "action": action, "arguments": arguments})
        try:
            with ACT:
                async with asyncio.timeout(timeout_seconds):
                    answer, picture = await self._exchange(request)
            state, error = answer.get("state"), answer.get("error")
            return BrowserResult(
                said=_text(answer.get("said", ""), TEXT_CHARACTERS_MAX),
                error=None if error is None else _text(error, 2000),
                happened=_texts(answer.get("happened", []), SENTENCES_MAX),
                state=_state(cast(JsonObject, state), picture) if isinstance(state, dict) else None,
            )
        except TimeoutError:
            await self._restart()
            raise ToolError(SILENT) from None
        except (asyncio.IncompleteReadError, BrokenPipeError):
            raise ToolError(GONE) from None
        except (protocol.ProtocolError, ValueError):
            await self._restart()
            raise ToolError(GONE) from None

    @asynccontextmanager
    async def take_over(self) -> AsyncGenerator["BrowserTakeoverClient", None]:
        stream = self._connection.stream("browser")
        try:
            await stream.write(protocol.encode_message({"op": "takeover"}))
            yield BrowserTakeoverClient(stream)
        finally:
            stream.close()

    async def _exchange(self, request: bytes) -> tuple[JsonObject, bytes]:
        stream = self._connection.stream("browser")
        try:
            await stream.write(request)
            return await protocol.receive_message(stream)
        finally:
            stream.close()

    async def _restart(self) -> None:
        """Restarts the browser server by opening a stream with `restart`. The stream itself is not used."""
        self._connection.stream("browser", restart=True).close()


class BrowserTakeoverClient:
    """Satisfies `core.ports.TakeoverConnection`."""

    def __init__(self, stream: CallStream) -> None:
        self._stream = stream

    async def send(self, message: JsonObject) -> None:
        """Raises ToolError when the browser has ended."""
        try:
            await self._stream.write(protocol.encode_message(message))
        except BrokenPipeError:
            raise ToolError(GONE) from None

    async def receive(self) -> AsyncIterator[tuple[JsonObject, bytes]]:
        while True:
            try:
                message, picture = await protocol.receive_message(self._stream)
            except (asyncio.IncompleteReadError, protocol.ProtocolError):
                return
            if not picture or picture.startswith(JPEG_START):
                yield message, picture


def _state(state: JsonObject, picture: bytes) -> PageState:
    tabs = state.get("tabs")
    if not isinstance(tabs, list) or len(tabs) > TABS_MAX:
        raise ValueError("no fitting list of tabs")
    return PageState(
        url=_text(state.get("url"), URL_CHARACTERS_MAX),
        title=_text(state.get("title"), URL_CHARACTERS_MAX),
        tabs=tuple(_tab(tab) for tab in tabs),
        elements=_texts(state.get("elements"), LINES_MAX),
        element_count=_count(state, "element_count"),
        pixels_above=_count(state, "pixels_above"),
        pixels_below=_count(state, "pixels_below"),
        picture=picture if picture.startswith(JPEG_START) else b"",
    )


def _tab(tab: object) -> JsonObject:
    if not isinstance(tab, dict):
        raise ValueError("no tab")
    facts = cast(JsonObject, tab)
    page_tab: JsonObject = {
        "page_id": _count(facts, "page_id"),
        "title": _text(facts.get("title"), URL_CHARACTERS_MAX),
        "url": _text(facts.get("url"), URL_CHARACTERS_MAX),
    }
    return {**page_tab, "is_current": True} if facts.get("is_current") is True else page_tab


def _text(value: object, characters_max: int) -> str:
    if not isinstance(value, str) or len(value) > characters_max:
        raise ValueError("no fitting text")
    return replace_surrogates(value.replace("\0", ""))


def _texts(value: object, count_max: int) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("no list")
    texts = cast(list[object], value)
    if len(texts) > count_max:
        raise ValueError("no fitting list")
    return tuple(_text(one, URL_CHARACTERS_MAX) for one in texts)


def _count(facts: JsonObject, name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 53:
        raise ValueError(f"{name} is no number")
    return max(0, value)
