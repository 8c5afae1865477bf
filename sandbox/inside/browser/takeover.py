"""A person's control of the browser: sends pictures of the current tab, and receives the person's input."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import deque
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
WAITING_BYTES_MAX = 8 * 1024 * 1024
BEHIND_SECONDS = 1.0
CRASHED = "The browser crashed and was started again. Open the page again."
UNSENT_BYTES_MAX = 4 * 1024 * 1024
QUALITY = 70
SIDE_MIN, SIDE_MAX = 320, 1600


class WaitingInput:
    """The user's messages in order. Consecutive messages that only move the pointer or turn the wheel are joined to one
    of each kind. No other message is dropped."""

    def __init__(self) -> None:
        self._messages: deque[tuple[float, dict[str, Any]]] = deque()
        self._has_message = asyncio.Event()
        self._handled_since: float | None = None
        self._bytes = 0

    def put(self, message: dict[str, Any]) -> None:
        """Raises ProtocolError if more messages wait than a user can produce."""
        kind = message.get("t")
        if kind in ("move", "wheel"):
            for _, other in list(self._messages)[:-3:-1]:
                if other.get("t") == kind:
                    _join(other, message)
                    return
                if other.get("t") not in ("move", "wheel"):
                    break
        self._bytes += len(str(message))
        if self._bytes > WAITING_BYTES_MAX:
            raise protocol.ProtocolError("too much input")
        self._messages.append((time.monotonic(), message))
        self._has_message.set()

    async def take(self) -> dict[str, Any]:
        """Waits for the next message. The one taken before counts as handled."""
        self._handled_since = None
        while not self._messages:
            self._has_message.clear()
            self._bytes = 0
            await self._has_message.wait()
        self._handled_since, message = self._messages.popleft()
        self._bytes -= len(str(message))
        return message

    def behind_seconds(self) -> int:
        """Returns for how many seconds the oldest message has been waiting. Returns 0 if the wait is too short to
        mention."""
        if self._handled_since is None:
            return 0
        seconds = time.monotonic() - self._handled_since
        return int(seconds) if seconds >= BEHIND_SECONDS else 0


def _join(waiting: dict[str, Any], message: dict[str, Any]) -> None:
    """Adds a later movement of the same kind to a waiting one. Malformed messages are ignored."""
    names = ("x", "y", "dx", "dy") if message.get("t") == "wheel" else ("x", "y")
    if not all(_is_number(waiting.get(name)) and _is_number(message.get(name)) for name in names):
        return
    for name in names:  # only these fields, so that joined messages are not larger than a single one
        waiting[name] = message[name] + (waiting[name] if name in ("dx", "dy") else 0)


def _is_number(value: object) -> bool:
    # bounded, because the sum of a huge integer and a float raises OverflowError
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


class Takeover:
    """Lasts as long as its connection. During that time the server refuses the agent's actions. Once `is_ending` is
    set, actions wait until the browser has its usual window size again."""

    def __init__(self, chromium: Chromium, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._chromium = chromium
        self._reader = reader
        self._writer = writer
        self._person_input = PersonInput(chromium, self._send)
        self._waiting = WaitingInput()
        self._told_behind = 0
        self._session: CDPSession | None = None
        self._tab: Tab | None = None
        self._sent_state: dict[str, Any] = {}
        self._unacknowledged: list[int] = []
        self._dialog: Dialog | None = None
        self._size = (WIDTH, HEIGHT)
        self._shown_size: tuple[int, int] | None = None
        self._blank_since = 0.0
        self._blank_seconds_max = BLANK_SECONDS
        self.is_ending = False
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Returns when the person's side closes the connection, and raises any other error."""
        tasks = [asyncio.ensure_future(handle()) for handle in (self._listen, self._watch, self._work)]
        self._chromium.dialog_handler = self._show_dialog
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self.is_ending = True
            self._chromium.dialog_handler = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Error, TimeoutError):
                await asyncio.wait_for(self._restore(), 5)
            self._is_over.set()

    async def end(self) -> None:
        self._reader.feed_eof()
        self._writer.close()
        await self._is_over.wait()

    async def _listen(self) -> None:
        with contextlib.suppress(protocol.ProtocolError, OSError, asyncio.IncompleteReadError):
            while True:
                message = (await protocol.receive_message(self._reader))[0]
                # only messages that must not wait for an action on a page that a dialog blocks are handled here
                kind = message.get("t")
                if kind == "ack":
                    await self._acknowledge()
                elif kind == "dialog":
                    await self._answer_dialog(message)
                elif kind == "size":
                    self._size = (_side(message.get("w"), WIDTH), _side(message.get("h"), HEIGHT))
                    self._sent_state = {}
                    self._blank_since = time.monotonic()
                else:
                    self._waiting.put(message)

    async def _work(self) -> None:
        while True:
            message = await self._waiting.take()
            try:
                await self._person_input.handle(message)
            except (Error, TimeoutError) as error:
                if "Unknown key" not in str(error):
                    self._send({"t": "note", "text": "The page did not accept that."})
            except (KeyError, TypeError, ValueError):
                continue  # not a message from our page

    async def _watch(self) -> None:
        """Follows the current tab, and sends what has changed."""
        while True:
            if (behind := self._waiting.behind_seconds()) != self._told_behind:
                self._told_behind = behind
                self._send({"t": "behind", "seconds": behind})
            with contextlib.suppress(Error, TimeoutError):
                tab = await self._chromium.tab()
                if self._chromium.consume_crash_flag():
                    self._send({"t": "note", "text": CRASHED})
                if tab is not self._tab:
                    self._blank_seconds_max = BLANK_SECONDS
                    await self._start_screencast(tab)
                elif self._is_blank():
                    await self._start_screencast(tab)
                width, height = self._size
                size = tab.page.viewport_size
                if size is not None and (size["width"], size["height"]) != (width, height):
                    await asyncio.wait_for(tab.page.set_viewport_size({"width": width, "height": height}), 3)
                there = self._chromium.tabs  # tabs may open and close while titles are read
                titles = await asyncio.gather(*(each.title() for each in there))
                tabs = [
                    {
                        "id": each.number,
                        "title": single_line(title, 80) or single_line(each.page.url, 80),
                        "current": each is tab,
                    }
                    for each, title in zip(there, titles, strict=True)
                ]
                state: dict[str, Any] = {"t": "tabs", "tabs": tabs, "url": single_line(tab.page.url, 2000)}
                state["notes"] = [single_line(sentence, 300) for sentence in self._chromium.happened[-5:]]
                if tab.file_chooser is not None:
                    state["file"] = True
                if state != self._sent_state:
                    self._sent_state = state
                    self._send(state)
            await asyncio.sleep(LOOK_SECONDS)

    async def _start_screencast(self, tab: Tab) -> None:
        await self._stop_screencast()
        self._tab, self._sent_state = tab, {}
        self._shown_size, self._blank_since = None, time.monotonic()
        session = self._session = await tab.page.context.new_cdp_session(tab.page)
        cdp.listen_for_cdp_event(session, "Page.screencastFrame", partial(self._send_frame, tab))
        await asyncio.wait_for(tab.page.bring_to_front(), 3)
        wanted = {"format": "jpeg", "quality": QUALITY, "maxWidth": SIDE_MAX, "maxHeight": SIDE_MAX}
        await cdp.send_cdp_command(session, "Page.startScreencast", wanted)

    def _is_blank(self) -> bool:
        """Returns whether an image is overdue. Chromium sends images only when something changes. If one is lost, or
        the screencast fails to start, the user would see an empty screen."""
        if self._shown_size == self._size or self._dialog is not None:
            return False
        if time.monotonic() - self._blank_since < self._blank_seconds_max:
            return False
        self._blank_seconds_max = min(2 * self._blank_seconds_max, BLANK_SECONDS_MAX)
        return True

    async def _stop_screencast(self) -> None:
        session, self._session = self._session, None
        self._unacknowledged.clear()
        if session is not None:
            with contextlib.suppress(Error):
                await session.detach()

    def _send_frame(self, tab: Tab, frame: dict[str, Any]) -> None:
        if tab is not self._tab:
            return
        self._unacknowledged.append(int(frame["sessionId"]))
        # the size of the picture: the tab's may have changed
        about: dict[str, Any] = frame.get("metadata", {})
        width, height = about.get("deviceWidth", WIDTH), about.get("deviceHeight", HEIGHT)
        facts = {"t": "frame", "w": int(width), "h": int(height)}
        self._shown_size = (int(width), int(height))
        if self._shown_size == self._size:
            self._blank_seconds_max = BLANK_SECONDS
        self._send(facts, base64.b64decode(frame["data"]))

    async def _acknowledge(self) -> None:
        if self._session is None or not self._unacknowledged:
            return
        number = self._unacknowledged.pop(0)
        with contextlib.suppress(Error):
            await cdp.send_cdp_command(self._session, "Page.screencastFrameAck", {"sessionId": number})

    def _show_dialog(self, tab: Tab, dialog: Dialog) -> bool:
        """Shows the dialog. Returns whether the person will answer it."""
        if self._dialog is not None or tab is not self._tab:
            return False
        self._dialog = dialog
        about = {"kind": dialog.type, "message": dialog.message[:2000]}
        self._send({"t": "dialog", **about, "value": dialog.default_value[:2000]})
        return True

    async def _answer_dialog(self, message: dict[str, Any]) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is None:
            return
        with contextlib.suppress(Error):
            if message.get("accept") is True:
                await dialog.accept(str(message.get("text") or ""))
            else:
                await dialog.dismiss()

    async def _restore(self) -> None:
        await self._answer_dialog({})
        await self._stop_screencast()
        for tab in self._chromium.tabs:
            size = tab.page.viewport_size
            if size is not None and (size["width"], size["height"]) != (WIDTH, HEIGHT):
                await tab.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def _send(self, value: dict[str, Any], body: bytes = b"") -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._writer.close()  # a client that reads nothing has gone
            return
        with contextlib.suppress(protocol.ProtocolError):
            self._writer.write(protocol.encode_message(value, body))


def _side(value: object, otherwise: int) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return otherwise
    return max(SIDE_MIN, min(SIDE_MAX, int(value)))
