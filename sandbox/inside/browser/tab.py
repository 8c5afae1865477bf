"""One tab: tracks what it loads and whether its page still works, and sends commands of the DevTools protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from playwright.async_api import CDPSession, Dialog, Error, FileChooser, Frame, Page, Request

from sandbox.inside.browser.elements import ElementIndex

Message = dict[str, Any]


async def send_cdp_command(session: CDPSession, method: str, message: Message) -> Message:
    return await cast(Any, session).send(method, message)


def listen_for_cdp_event(session: CDPSession, event: str, listener: Callable[[Message], None]) -> None:
    cast(Any, session).on(event, listener)


DIALOGS_MAX = 20
"""The tab is closed if a page opens more dialogs than this during one action."""
SETTLE_SECONDS = 0.08
NAVIGATION_SECONDS = 10.0
QUIET_SECONDS = 1.0
LOAD_MS = 1500
TITLE_SECONDS = 3.0
CLOSE_SECONDS = 5.0
AWAITED = ("xhr", "fetch")

OnDialog = Callable[["Tab", Dialog], None]


class Tab:
    """`number` is its page_id, which is never reused. `is_silent`: the page did not respond last time."""

    def __init__(self, page: Page, number: int, on_dialog: OnDialog) -> None:
        self.page = page
        self.number = number
        self.element_index = ElementIndex()
        self.has_crashed = False
        self.is_silent = False
        self.dialogs = 0
        self.file_chooser: FileChooser | None = None
        self._navigations: set[Request] = set()
        self._fetches: set[Request] = set()
        self._session: CDPSession | None = None
        self._changed = asyncio.Event()
        page.on("dialog", lambda dialog: on_dialog(self, dialog))
        page.on("crash", lambda _: self._on_crash())
        page.on("filechooser", self._on_file_chooser)
        page.on("close", lambda _: self._changed.set())
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_request_end)
        page.on("requestfailed", self._on_request_end)
        page.on("framenavigated", self._on_navigation)

    @property
    def is_open(self) -> bool:
        return not self.page.is_closed() and not self.has_crashed

    async def session(self) -> CDPSession:
        """Returns the tab's DevTools protocol session."""
        if self._session is None:
            self._session = await self.page.context.new_cdp_session(self.page)
        return self._session

    async def close(self) -> None:
        """Raises TimeoutError if the tab stays open: Chromium may forget to close a tab while its page is being
        replaced, and Playwright would wait forever."""
        await asyncio.wait_for(self.page.close(), CLOSE_SECONDS)

    async def settle(self) -> None:
        """Waits for the effects of an action: for a navigation to finish, and briefly for requests and frames."""
        await asyncio.sleep(SETTLE_SECONDS)
        await self._wait_until(lambda: not self._navigations, NAVIGATION_SECONDS)
        with suppress(Error):
            await self.page.wait_for_load_state("domcontentloaded", timeout=5000)
            await self.page.wait_for_load_state("load", timeout=LOAD_MS)
        await self._wait_until(lambda: not self._fetches, QUIET_SECONDS)

    async def title(self) -> str:
        """Returns the title, or an empty string if neither page nor browser responds."""
        with suppress(Error, TimeoutError):
            return await asyncio.wait_for(self.page.title(), TITLE_SECONDS)
        with suppress(Error, TimeoutError, KeyError):  # the browser knows the last title of a busy page
            session = await asyncio.wait_for(self.session(), TITLE_SECONDS)
            info = await asyncio.wait_for(send_cdp_command(session, "Target.getTargetInfo", {}), 1)
            return str(info["targetInfo"]["title"])
        return ""

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so() and self.is_open:
                    self._changed.clear()
                    await self._changed.wait()

    def _on_crash(self) -> None:
        self.has_crashed = True
        self._changed.set()

    def _on_file_chooser(self, file_chooser: FileChooser) -> None:
        self.file_chooser = file_chooser

    def _on_request(self, request: Request) -> None:
        # bounded, because a page may open requests endlessly
        if request.is_navigation_request() and _is_main(request):
            self._navigations.add(request)
        elif request.resource_type in AWAITED and len(self._fetches) < 200:
            self._fetches.add(request)

    def _on_request_end(self, request: Request) -> None:
        self._navigations.discard(request)
        self._fetches.discard(request)
        self._changed.set()

    def _on_navigation(self, frame: Frame) -> None:
        if frame != self.page.main_frame:
            return
        self._navigations.clear()
        self._fetches.clear()
        self._changed.set()


def _is_main(request: Request) -> bool:
    try:
        return request.frame.parent_frame is None
    except Error:  # a request of a page that is still opening has no frame
        return False
