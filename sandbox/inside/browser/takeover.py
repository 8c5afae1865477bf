"""A person at the browser: pictures of the tab in front go out, what their hands do comes in."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from functools import partial
from typing import Any

from playwright.async_api import CDPSession, Dialog, Error

from sandbox.inside.browser import protocol
from sandbox.inside.browser import tab as cdp
from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.page_state import single_line
from sandbox.inside.browser.person_input import PersonInput
from sandbox.inside.browser.protocol import HEIGHT, WIDTH
from sandbox.inside.browser.tab import Tab

LOOK_SECONDS = 0.2
BLANK_SECONDS = 1.0
BLANK_SECONDS_MAX = 30.0
WAITING_MAX = 300
UNSENT_BYTES_MAX = 4 * 1024 * 1024
QUALITY = 70
SIDE_MIN, SIDE_MAX = 320, 1600


class Takeover:
    """Lasts as long as its connection. While it does the agent's actions are refused by the server; once it
    `is_ending`, they wait until the browser is as the agent knows it."""

    def __init__(
        self, chromium: Chromium, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._chromium = chromium
        self._reader = reader
        self._writer = writer
        self._hands = PersonInput(chromium, self._send)
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(WAITING_MAX)
        self._session: CDPSession | None = None
        self._tab: Tab | None = None
        self._told: dict[str, Any] = {}
        self._unacknowledged: list[int] = []
        self._dialog: Dialog | None = None
        self._size = (WIDTH, HEIGHT)
        self._seen: tuple[int, int] | None = None
        self._blank_since = 0.0
        self._patience_seconds = BLANK_SECONDS
        self.is_ending = False
        self._is_over = asyncio.Event()

    async def play(self) -> None:
        """Returns when the person's side has closed the connection; raises what broke it otherwise."""
        tasks = [asyncio.ensure_future(do()) for do in (self._listen, self._watch, self._work)]
        self._chromium.asks_person = self._ask
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self.is_ending = True
            self._chromium.asks_person = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Error, TimeoutError):
                await asyncio.wait_for(self._leave(), 5)
            self._is_over.set()

    async def end(self) -> None:
        self._reader.feed_eof()
        self._writer.close()
        await self._is_over.wait()

    async def _listen(self) -> None:
        with contextlib.suppress(protocol.ProtocolError, OSError, asyncio.IncompleteReadError):
            while True:
                await self._take((await protocol.receive_message(self._reader))[0])

    async def _take(self, message: dict[str, Any]) -> None:
        """What must not wait behind an action of a page that is stuck in a dialog is done at once."""
        kind = message.get("t")
        if kind == "ack":
            await self._acknowledge()
        elif kind == "dialog":
            await self._answer(message)
        elif kind == "size":
            self._size = (_side(message.get("w"), WIDTH), _side(message.get("h"), HEIGHT))
            self._told = {}
            self._blank_since = time.monotonic()
        elif kind == "move" and self._waiting.qsize() > 3:
            return  # the next one says where the pointer is
        else:
            with contextlib.suppress(asyncio.QueueFull):
                self._waiting.put_nowait(message)

    async def _work(self) -> None:
        while True:
            message = await self._waiting.get()
            try:
                await self._hands.do(message)
            except (Error, TimeoutError) as error:
                if "Unknown key" not in str(error):
                    self._send({"t": "note", "text": "The page did not take that."})
            except (KeyError, TypeError, ValueError):
                continue  # not a message of our page

    async def _watch(self) -> None:
        """Follows the tab in front, and tells what has changed around it."""
        while True:
            with contextlib.suppress(Error, TimeoutError):
                tab = await self._chromium.tab()
                if tab is not self._tab:
                    self._patience_seconds = BLANK_SECONDS
                    await self._film(tab)
                elif self._is_blank():
                    await self._film(tab)
                await self._resize(tab)
                await self._tell(tab)
            await asyncio.sleep(LOOK_SECONDS)

    async def _film(self, tab: Tab) -> None:
        await self._stop_filming()
        self._tab, self._told = tab, {}
        self._seen, self._blank_since = None, time.monotonic()
        session = self._session = await tab.page.context.new_cdp_session(tab.page)
        cdp.listen_for_cdp_event(session, "Page.screencastFrame", partial(self._show, tab))
        await asyncio.wait_for(tab.page.bring_to_front(), 3)
        wanted = {"format": "jpeg", "quality": QUALITY, "maxWidth": SIDE_MAX, "maxHeight": SIDE_MAX}
        await cdp.send_cdp_command(session, "Page.startScreencast", wanted)

    def _is_blank(self) -> bool:
        """Whether the person waits for a picture that should be there: Chromium sends one when something changes only,
        so one that was lost, or a start that failed, would leave them before an empty screen."""
        if self._seen == self._size or self._dialog is not None:
            return False
        if time.monotonic() - self._blank_since < self._patience_seconds:
            return False
        self._patience_seconds = min(2 * self._patience_seconds, BLANK_SECONDS_MAX)
        return True

    async def _stop_filming(self) -> None:
        session, self._session = self._session, None
        self._unacknowledged.clear()
        if session is not None:
            with contextlib.suppress(Error):
                await session.detach()

    async def _resize(self, tab: Tab) -> None:
        width, height = self._size
        size = tab.page.viewport_size
        if size is not None and (size["width"], size["height"]) != (width, height):
            await asyncio.wait_for(
                tab.page.set_viewport_size({"width": width, "height": height}), 3
            )

    async def _tell(self, tab: Tab) -> None:
        there = self._chromium.tabs  # others may come and go while these tell their titles
        titles = await asyncio.gather(*(each.title() for each in there))
        tabs = [
            {
                "id": each.number,
                "title": single_line(title, 80) or single_line(each.page.url, 80),
                "current": each is tab,
            }
            for each, title in zip(there, titles, strict=True)
        ]
        told: dict[str, Any] = {"t": "tabs", "tabs": tabs, "url": single_line(tab.page.url, 2000)}
        told["notes"] = [single_line(sentence, 300) for sentence in self._chromium.happened[-5:]]
        if tab.chooser is not None:
            told["file"] = True
        if told != self._told:
            self._told = told
            self._send(told)

    def _show(self, tab: Tab, frame: dict[str, Any]) -> None:
        if tab is not self._tab:
            return
        self._unacknowledged.append(int(frame["sessionId"]))
        # the picture's own size: that of the tab may be another by now
        about: dict[str, Any] = frame.get("metadata", {})
        width, height = about.get("deviceWidth", WIDTH), about.get("deviceHeight", HEIGHT)
        facts = {"t": "frame", "w": int(width), "h": int(height)}
        self._seen = (int(width), int(height))
        if self._seen == self._size:
            self._patience_seconds = BLANK_SECONDS
        self._send(facts, base64.b64decode(frame["data"]))

    async def _acknowledge(self) -> None:
        if self._session is None or not self._unacknowledged:
            return
        number = self._unacknowledged.pop(0)
        with contextlib.suppress(Error):
            await cdp.send_cdp_command(
                self._session, "Page.screencastFrameAck", {"sessionId": number}
            )

    def _ask(self, tab: Tab, dialog: Dialog) -> bool:
        """Whether the person will answer this dialog."""
        if self._dialog is not None or tab is not self._tab:
            return False
        self._dialog = dialog
        about = {"kind": dialog.type, "message": dialog.message[:2000]}
        self._send({"t": "dialog", **about, "value": dialog.default_value[:2000]})
        return True

    async def _answer(self, message: dict[str, Any]) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is None:
            return
        with contextlib.suppress(Error):
            if message.get("accept") is True:
                await dialog.accept(str(message.get("text") or ""))
            else:
                await dialog.dismiss()

    async def _leave(self) -> None:
        await self._answer({})
        await self._stop_filming()
        for tab in self._chromium.tabs:
            size = tab.page.viewport_size
            if size is not None and (size["width"], size["height"]) != (WIDTH, HEIGHT):
                await tab.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def _send(self, value: dict[str, Any], body: bytes = b"") -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._writer.close()  # who reads nothing has gone
            return
        with contextlib.suppress(protocol.ProtocolError):
            self._writer.write(protocol.encode_message(value, body))


def _side(value: object, otherwise: int) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return otherwise
    return max(SIDE_MIN, min(SIDE_MAX, int(value)))
