"""The browser's server on a unix socket: receives an action, carries it out, and answers with the state of the page.

The program inside starts it with the settings as JSON in its first argument. It ends, with Chromium, when its standard
input ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from typing import Any, cast

from playwright.async_api import Error

from sandbox.inside.browser import protocol
from sandbox.inside.browser.action_arguments import ActionContext, is_outside_workspace
from sandbox.inside.browser.actions import ACTIONS, GIVES_TO_PAGE, origin_of
from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.page_state import read_page_state, single_line
from sandbox.inside.browser.protocol import ActionRefused, BrowserSettings
from sandbox.inside.browser.tab import Tab
from sandbox.inside.browser.takeover import Takeover

LOOK_SECONDS = 0.2
PEER = struct.Struct("3i")
"""The pid, user and group of the other end of a unix socket."""
ACTION_SECONDS = 40.0
FOLLOWED_MAX = 3
SECONDS = {"wait": 70.0, "download": 650.0}
TAKEN = (
    "A person has taken over the browser. Do not use it until they hand it back; they say so in the thread. Ask them,"
    " or do something else meanwhile."
)
CRASHED = "The browser has crashed; a fresh one with the same profile has started. Open the page again."
PAGE_REPLACED = "Not done: a page of another site has opened since you looked. Look at it, then decide anew."
TAB_CLOSED = "The tab was closed. Continue in the tab that is shown now."
PAGE_CRASHED = "The page has crashed and its tab is closed. Open the page again, or another one."


class Server:
    def __init__(self, settings: BrowserSettings) -> None:
        self._chromium = Chromium(settings)
        self._lock = asyncio.Lock()
        self._takeover: Takeover | None = None
        self._shown: tuple[Tab, str] | None = None
        """The tab and the origin of the page whose state was returned last."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection: any number of actions, one after the other, or a take-over.

        Only the program inside is served. Commands run as the same user, and pages reach hosts that they do not."""
        credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        if PEER.unpack(credentials)[0] != os.getppid():
            writer.close()
            return
        try:
            with contextlib.suppress(
                protocol.ProtocolError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError
            ):
                while True:
                    request, _ = await protocol.receive_message(reader)
                    if request.get("op") == "takeover":
                        # a second take-over, usually by the user's reloaded page, ends the first
                        if self._takeover is not None:
                            await self._takeover.end()
                        takeover = self._takeover = Takeover(self._chromium, reader, writer)
                        try:
                            async with self._lock:
                                await takeover.run()
                        finally:
                            if self._takeover is takeover:
                                self._takeover = None
                            self._chromium.consume_crash_flag()  # the person has seen the crash
                            await self._chromium.save_cookies()
                        break
                    working = asyncio.ensure_future(self._answer(request))
                    while not working.done():
                        await asyncio.wait({working}, timeout=LOOK_SECONDS)
                        if reader.at_eof():  # the client no longer waits for the answer
                            working.cancel()
                    answer, picture = await working
                    writer.write(protocol.encode_message(answer, picture))
                    await writer.drain()
        finally:
            writer.close()

    @property
    def _is_taken_over(self) -> bool:
        return self._takeover is not None and not self._takeover.is_ending

    async def close(self) -> None:
        await self._chromium.save_cookies()
        await self._chromium.close()

    async def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if self._is_taken_over:
            return {"error": TAKEN}, b""
        if request.get("action") == "name":
            # the name of an element does not wait for the page
            tab, number = self._chromium.current_tab, request.get("arguments", {}).get("index")
            name = tab.element_index.name(number) if tab and isinstance(number, int) else ""
            return {"said": single_line(name, 100)}, b""
        async with self._lock:
            if self._is_taken_over:
                return {"error": TAKEN}, b""
            try:
                return await self._act(request)
            except ActionRefused as refused:  # there is no page whose state could be returned
                return {"error": str(refused)}, b""
            except Error as error:
                return {"error": _first_line(error)}, b""
            except Exception as error:  # a failing action must not end the browser
                return {"error": f"The browser failed to do this: {error!r}"[:300]}, b""

    async def _act(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        name, arguments = str(request.get("action")), request.get("arguments")
        action = ACTIONS.get(name)
        if action is None or not isinstance(arguments, dict):
            raise ActionRefused("This browser cannot do that.")
        checked_arguments = cast("dict[str, Any]", arguments)
        chromium = self._chromium
        tab = await chromium.tab()
        chromium.happened.clear()
        tab.dialogs = 0
        if chromium.consume_crash_flag() and name != "navigate_to":  # the page of the action no longer exists
            return await self._with_state({"error": CRASHED})
        if name in GIVES_TO_PAGE and self._shown not in (None, (tab, origin_of(tab.page.url))):
            return await self._with_state({"error": PAGE_REPLACED})
        answer: dict[str, Any] = {}
        try:
            work = action(ActionContext(chromium, tab, checked_arguments))
            answer["said"] = await asyncio.wait_for(work, SECONDS.get(name, ACTION_SECONDS))
        except ActionRefused as refused:
            answer["error"] = str(refused)
        except (Error, TimeoutError) as error:
            answer["error"] = _describe_error(error, tab)
        if name != "answer_dialog":
            chromium.accepts_dialogs = None
        return await self._with_state(answer)

    async def _with_state(self, answer: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        chromium = self._chromium
        tab = await self._chromium.tab()
        for _ in range(FOLLOWED_MAX):
            await tab.settle()
            before, tab = tab, await self._chromium.tab()
            if tab is before:
                break
        if chromium.consume_crash_flag():
            answer = {"error": CRASHED}
        if is_outside_workspace(tab.page.url, chromium.settings.root):
            await tab.page.goto("about:blank")
            answer["error"] = "Only files under /workspace can be opened."
        self._shown = (tab, origin_of(tab.page.url))
        state, picture = await read_page_state(chromium, tab)
        await chromium.save_cookies()
        answer["happened"] = [sentence[:500] for sentence in chromium.happened[:30]]
        return {**answer, "state": state}, picture


def _describe_error(error: Exception, tab: Tab) -> str:
    if tab.has_crashed:
        return PAGE_CRASHED
    if tab.page.is_closed():
        return TAB_CLOSED  # the whole browser may have crashed, which is noticed right after
    if isinstance(error, TimeoutError):
        return "The page does not answer. Wait, open another address or close the tab."
    return _first_line(error)


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0][:300]
    if "has been closed" in text or "Target closed" in text or "Connection closed" in text:
        return CRASHED
    return f"The browser could not do this: {text}"


async def _run(settings: BrowserSettings) -> None:
    server = Server(settings)
    with contextlib.suppress(OSError):
        os.unlink(settings.socket)
    listening = await asyncio.start_unix_server(server.serve, settings.socket, limit=1 << 20)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: None if os.read(0, 1024) else ended.set())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        listening.close()
        await server.close()


def main() -> None:
    settings = BrowserSettings.of(json.loads(sys.stdin.readline()))
    os.umask(0o022)
    os.makedirs(settings.scratch, exist_ok=True)
    asyncio.run(_run(settings))


if __name__ == "__main__":
    main()
