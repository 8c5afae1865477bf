"""One tab: what it loads, the dialogs that it opens, and whether its page still lives."""

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


def listen_for_cdp_event(
    session: CDPSession, event: str, listener: Callable[[Message], None]
) -> None:
    cast(Any, session).on(event, listener)


DIALOGS_MAX = 20
"""A page that opens more than these during one action would never end."""
SETTLE_SECONDS = 0.08
NAVIGATION_SECONDS = 10.0
QUIET_SECONDS = 1.0
LOAD_MS = 1500
TITLE_SECONDS = 3.0
CLOSE_SECONDS = 5.0
AWAITED = ("xhr", "fetch")

OnDialog = Callable[["Tab", Dialog], None]


class Tab:
    """`number` is its page_id, never given twice. `is_silent`: its page did not answer at the last look."""

    def __init__(self, page: Page, number: int, on_dialog: OnDialog) -> None:
        self.page = page
        self.number = number
        self.register = ElementIndex()
        self.has_crashed = False
        self.is_silent = False
        self.dialogs = 0
        self.chooser: FileChooser | None = None
        self._navigations: set[Request] = set()
        self._fetches: set[Request] = set()
        self._session: CDPSession | None = None
        self._changed = asyncio.Event()
        page.on("dialog", lambda dialog: on_dialog(self, dialog))
        page.on("crash", lambda _: self._crash())
        page.on("filechooser", self._choose)
        page.on("close", lambda _: self._changed.set())
        page.on("request", self._requested)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)
        page.on("framenavigated", self._navigated)

    @property
    def is_open(self) -> bool:
        return not self.page.is_closed() and not self.has_crashed

    async def session(self) -> CDPSession:
        """The tab's line to the browser's own protocol."""
        if self._session is None:
            self._session = await self.page.context.new_cdp_session(self.page)
        return self._session

    async def close(self) -> None:
        """Raises TimeoutError where it stays: Chromium forgets to close a tab that is just taking up its page, and
        Playwright would wait without an end."""
        await asyncio.wait_for(self.page.close(), CLOSE_SECONDS)

    async def settle(self) -> None:
        """Waits until what an action set off has come: a navigation in any case, requests and frames for a moment."""
        await asyncio.sleep(SETTLE_SECONDS)
        await self._until(lambda: not self._navigations, NAVIGATION_SECONDS)
        with suppress(Error):
            await self.page.wait_for_load_state("domcontentloaded", timeout=5000)
            await self.page.wait_for_load_state("load", timeout=LOAD_MS)
        await self._until(lambda: not self._fetches, QUIET_SECONDS)

    async def title(self) -> str:
        """Empty where neither the page nor the browser says."""
        with suppress(Error, TimeoutError):
            return await asyncio.wait_for(self.page.title(), TITLE_SECONDS)
        with suppress(
            Error, TimeoutError, KeyError
        ):  # the browser knows what a busy page last said
            session = await asyncio.wait_for(self.session(), TITLE_SECONDS)
            told = await asyncio.wait_for(send_cdp_command(session, "Target.getTargetInfo", {}), 1)
            return str(told["targetInfo"]["title"])
        return ""

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so() and self.is_open:
                    self._changed.clear()
                    await self._changed.wait()

    def _crash(self) -> None:
        self.has_crashed = True
        self._changed.set()

    def _choose(self, chooser: FileChooser) -> None:
        self.chooser = chooser

    def _requested(self, request: Request) -> None:
        # one request of a page that opens endlessly many is as good as all of them
        if request.is_navigation_request() and _is_main(request):
            self._navigations.add(request)
        elif request.resource_type in AWAITED and len(self._fetches) < 200:
            self._fetches.add(request)

    def _ended(self, request: Request) -> None:
        self._navigations.discard(request)
        self._fetches.discard(request)
        self._changed.set()

    def _navigated(self, frame: Frame) -> None:
        if frame != self.page.main_frame:
            return
        self._navigations.clear()
        self._fetches.clear()
        self._changed.set()


def _is_main(request: Request) -> bool:
    try:
        return request.frame.parent_frame is None
    except Error:  # a request of a page that is not there yet has no frame
        return False
