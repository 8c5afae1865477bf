"""The server in front of the browser: one packet in, one action, one packet with the state of the page out.

Started by the program inside with the setting as JSON on its first argument; ends, with Chromium, when its standard
input ends. Answers on a unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any, cast

from playwright.async_api import Error

from sandbox.inside.browser import protocol
from sandbox.inside.browser.actions import ACTIONS
from sandbox.inside.browser.arguments import ActionContext, is_outside_workspace
from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.page_state import read_page_state, single_line
from sandbox.inside.browser.protocol import ActionRefused, BrowserSettings
from sandbox.inside.browser.tab import Tab
from sandbox.inside.browser.takeover import Takeover

LOOK_SECONDS = 0.2
ACTION_SECONDS = 40.0
FOLLOWED_MAX = 3
SECONDS = {"wait": 70.0, "download": 650.0}
TAKEN = (
    "A person has taken over the browser. Do not use it until they hand it back; they say so in the thread. Ask them,"
    " or do something else meanwhile."
)
CRASHED = "The browser has crashed; a fresh one with the same profile is up. Open the page again."
TAB_CLOSED = "The page has closed its tab, or had it closed. Go on in the tab that is shown now."
PAGE_CRASHED = "The page has crashed and its tab is closed. Open the page again, or another one."


class Server:
    def __init__(self, setting: BrowserSettings) -> None:
        self._chromium = Chromium(setting)
        self._lock = asyncio.Lock()
        self._takeover: Takeover | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: any number of actions one after the other, or a take-over."""
        try:
            with contextlib.suppress(
                protocol.ProtocolError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError
            ):
                while True:
                    request, _ = await protocol.receive_message(reader)
                    if request.get("op") == "takeover":
                        await self._take_over(reader, writer)
                        break
                    working = asyncio.ensure_future(self._answer(request))
                    while not working.done():
                        await asyncio.wait({working}, timeout=LOOK_SECONDS)
                        if reader.at_eof():  # nobody waits for the answer any more
                            working.cancel()
                    answer, picture = await working
                    writer.write(protocol.encode_message(answer, picture))
                    await writer.drain()
        finally:
            writer.close()

    @property
    def _is_taken(self) -> bool:
        return self._takeover is not None and not self._takeover.is_ending

    async def close(self) -> None:
        await self._chromium.keep_cookies()
        await self._chromium.close()

    async def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if self._is_taken:
            return {"error": TAKEN}, b""
        if request.get("action") == "name":
            return self._name(request)
        async with self._lock:
            if self._is_taken:
                return {"error": TAKEN}, b""
            try:
                return await self._act(request)
            except ActionRefused as refused:  # without even a page to show
                return {"error": str(refused)}, b""
            except Error as error:
                return {"error": _first_line(error)}, b""
            except Exception as error:  # one broken action must not end the browser
                return {"error": f"The browser failed at this: {error!r}"[:300]}, b""

    def _name(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """What an element is called, at once and without a look at the page."""
        tab, number = self._chromium.front, request.get("arguments", {}).get("index")
        name = tab.register.name(number) if tab and isinstance(number, int) else ""
        return {"said": single_line(name, 100)}, b""

    async def _act(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        name, arguments = str(request.get("action")), request.get("arguments")
        action = ACTIONS.get(name)
        if action is None or not isinstance(arguments, dict):
            raise ActionRefused("This browser cannot do that.")
        told = cast("dict[str, Any]", arguments)
        chromium = self._chromium
        tab = await chromium.tab()
        chromium.happened.clear()
        tab.dialogs = 0
        if chromium.notice_loss() and name != "navigate_to":  # what was meant is not there any more
            return await self._with_state({"error": CRASHED})
        answer: dict[str, Any] = {}
        try:
            work = action(ActionContext(chromium, tab, told))
            answer["said"] = await asyncio.wait_for(work, SECONDS.get(name, ACTION_SECONDS))
        except ActionRefused as refused:
            answer["error"] = str(refused)
        except (Error, TimeoutError) as error:
            answer["error"] = _explained(error, tab)
        if name != "answer_dialog":
            chromium.accepts_dialogs = None
        return await self._with_state(answer)

    async def _with_state(self, answer: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        chromium = self._chromium
        tab = await self._settled()
        if chromium.notice_loss():
            answer = {"error": CRASHED}
        if is_outside_workspace(tab.page.url, chromium.setting.root):
            await tab.page.goto("about:blank")
            answer["error"] = "Of the machine's files only those under /workspace can be opened."
        state, picture = await read_page_state(chromium, tab)
        await chromium.keep_cookies()
        answer["happened"] = [sentence[:500] for sentence in chromium.happened[:30]]
        return {**answer, "state": state}, picture

    async def _settled(self) -> Tab:
        """The tab in front when all is quiet: one that opens meanwhile is waited for too."""
        tab = await self._chromium.tab()
        for _ in range(FOLLOWED_MAX):
            await tab.settle()
            before, tab = tab, await self._chromium.tab()
            if tab is before:
                break
        return tab

    async def _take_over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One person at a time: a second take-over (the same person's reloaded page) ends the first."""
        if self._takeover is not None:
            await self._takeover.end()
        taking = self._takeover = Takeover(self._chromium, reader, writer)
        try:
            async with self._lock:
                await taking.play()
        finally:
            if self._takeover is taking:
                self._takeover = None
            self._chromium.notice_loss()  # whoever had the browser has seen it
            await self._chromium.keep_cookies()


def _explained(error: Exception, tab: Tab) -> str:
    if tab.has_crashed:
        return PAGE_CRASHED
    if tab.page.is_closed():
        return TAB_CLOSED  # with the whole browser, perhaps: that is noticed right after
    if isinstance(error, TimeoutError):
        return "The page does not answer. Wait, open another address or close the tab."
    return _first_line(error)


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0][:300]
    if "has been closed" in text or "Target closed" in text or "Connection closed" in text:
        return CRASHED
    return f"The browser could not do this: {text}"


async def _run(setting: BrowserSettings) -> None:
    server = Server(setting)
    with contextlib.suppress(OSError):
        os.unlink(setting.socket)
    listening = await asyncio.start_unix_server(server.serve, setting.socket, limit=1 << 20)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: None if os.read(0, 1024) else ended.set())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        listening.close()
        await server.close()


def main() -> None:
    setting = BrowserSettings.of(json.loads(sys.argv[1]))
    os.umask(0o022)
    os.makedirs(setting.scratch, exist_ok=True)
    asyncio.run(_run(setting))


if __name__ == "__main__":
    main()
