"""Chromium as it runs: started at the first need, started again after a crash, its tabs, dialogs and downloads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Coroutine
from typing import Any

from playwright.async_api import (
    BrowserContext,
    Dialog,
    Download,
    Error,
    Page,
    Playwright,
    async_playwright,
)

from sandbox.inside.browser.protocol import HEIGHT, WIDTH, ActionRefused, BrowserSettings
from sandbox.inside.browser.tab import DIALOGS_MAX, Tab

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--use-mock-keychain",
)
LOCKS = ("SingletonLock", "SingletonCookie", "SingletonSocket")
TABS_MAX = 20
DOWNLOAD_BYTES_MAX = 512 * 1024 * 1024
LIVES_OUT = "The browser has crashed and starts anew with the same profile. Open the page again."


class Chromium:
    """`happened` collects sentences for the next result. `person` is whoever has taken over, or None."""

    def __init__(self, setting: BrowserSettings) -> None:
        self.setting = setting
        self.happened: list[str] = []
        self.accepts_dialogs: tuple[bool, str] | None = None
        self.asks_person: Any = None
        self._playwright: Playwright | None = None
        self._context: BrowserContext | None = None
        self._was_lost = False
        self._tabs: dict[Page, Tab] = {}
        self._current: Tab | None = None
        self._count = 0
        self._opening = 0
        self._cookies = ""
        self._saving: set[asyncio.Task[None]] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()

    @property
    def tabs(self) -> list[Tab]:
        return [tab for tab in self._tabs.values() if tab.is_open]

    @property
    def front(self) -> Tab | None:
        """The tab in front, if there is one already."""
        return self._current

    def notice_loss(self) -> bool:
        """Whether the browser has crashed since this was last asked."""
        was_lost, self._was_lost = self._was_lost, False
        return was_lost

    async def tab(self) -> Tab:
        """The tab in front, of a browser that runs. Raises Refused when it cannot be started."""
        async with self._starting:
            context = self._context
            if context is None:
                context = await self._start()
            if self._current is None or not self._current.is_open:
                left = self.tabs
                self._current = left[-1] if left else await self._open(context)
            return self._current

    def show(self, tab: Tab) -> None:
        self._current = tab

    def numbered(self, number: int) -> Tab:
        """Raises Refused where there is no such tab."""
        for tab in self.tabs:
            if tab.number == number:
                return tab
        known = ", ".join(str(tab.number) for tab in self.tabs)
        raise ActionRefused(f"There is no tab with page_id {number}. There are: {known}.")

    async def new_tab(self) -> Tab:
        await self.tab()
        if self._context is None or len(self.tabs) >= TABS_MAX:
            raise ActionRefused(f"There are {TABS_MAX} tabs already; close one first.")
        self._current = await self._open(self._context)
        return self._current

    async def _open(self, context: BrowserContext) -> Tab:
        """A tab of ours, of which nobody is told."""
        self._opening += 1
        try:
            return self._known(await context.new_page())
        finally:
            self._opening -= 1

    async def keep_cookies(self) -> None:
        """Chromium itself writes them late, and those of a session never: who was logged in shall stay so."""
        if self._context is None:
            return
        with contextlib.suppress(Error, OSError, TimeoutError):
            text = json.dumps(await asyncio.wait_for(self._context.cookies(), 2))
            if text != self._cookies:
                path = f"{self.setting.profile}/cookies.json"
                await asyncio.to_thread(_replace, path, text)
                self._cookies = text

    async def close(self) -> None:
        context, self._context = self._context, None
        with contextlib.suppress(Error):
            if context is not None:
                await context.close()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None

    async def downloaded(self) -> None:
        """Waits for the downloads that are under way, and for nothing else: a dialog's answer may never end."""
        while self._saving:
            await asyncio.wait(set(self._saving))

    async def _start(self) -> BrowserContext:
        setting = self.setting
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        os.makedirs(setting.profile, mode=0o700, exist_ok=True)
        for name in LOCKS:
            with contextlib.suppress(OSError):
                os.unlink(f"{setting.profile}/{name}")
        try:
            context = await self._playwright.chromium.launch_persistent_context(
                setting.profile,
                executable_path=setting.chromium,
                headless=True,
                chromium_sandbox=False,  # the sandbox around it is the stricter one, and forbids one within
                viewport={"width": WIDTH, "height": HEIGHT},
                accept_downloads=True,
                downloads_path=setting.scratch,
                args=[*FLAGS, f"--disk-cache-dir={setting.scratch}/cache"],
                proxy={"server": setting.proxy, "bypass": "127.0.0.1,localhost"}
                if setting.proxy
                else None,
                timeout=30_000,
            )
        except Error as error:
            reason = str(error).splitlines()[0][:300]
            raise ActionRefused(f"The browser does not start: {reason}") from error
        context.set_default_timeout(8000)
        await self._recall(context)
        for page in context.pages:
            self._known(page)
        context.on("page", self._opened)
        context.on("close", lambda closed: self._lost(closed))
        self._context = context
        return context

    async def _recall(self, context: BrowserContext) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, Error):
            text = await asyncio.to_thread(_read, f"{self.setting.profile}/cookies.json")
            await context.add_cookies(json.loads(text))

    def _lost(self, context: BrowserContext) -> None:
        if context == self._context:
            self._was_lost = True
            self._context = None
            self._tabs.clear()
            self._current = None

    def _known(self, page: Page) -> Tab:
        tab = self._tabs.get(page)
        if tab is None:
            tab = self._tabs[page] = Tab(page, self._count, self._answer)
            self._count += 1
            page.on("close", self._closed)
            page.on("download", lambda download: self._do(self._save(download), self._saving))
        return tab

    def _closed(self, page: Page) -> None:
        self._tabs.pop(page, None)

    def _opened(self, page: Page) -> None:
        if page in self._tabs:
            return
        if len(self.tabs) >= TABS_MAX:
            self.happened.append(f"A new tab was closed at once: there are {TABS_MAX} already.")
            self._do(page.close(), self._work)
            return
        tab = self._known(page)
        if self._opening:
            return
        self._current = tab
        self.happened.append(f"A new tab opened and is shown now (page_id {tab.number}).")

    def _answer(self, tab: Tab, dialog: Dialog) -> None:
        if self.asks_person is not None and self.asks_person(tab, dialog):
            return
        tab.dialogs += 1
        if tab.dialogs > DIALOGS_MAX:
            if tab.dialogs == DIALOGS_MAX + 1:
                self.happened.append("The page opened dialogs without end; its tab was closed.")
                self._do(tab.page.close(), self._work)
            return
        accepts, text = self.accepts_dialogs or (dialog.type in ("alert", "beforeunload"), "")
        told = "accepted" if accepts else "dismissed"
        shown = " ".join(dialog.message.split())[:300]
        self.happened.append(f"The page showed a dialog ({dialog.type}): {shown!r}. It was {told}.")
        self._do(dialog.accept(text) if accepts else dialog.dismiss(), self._work)

    async def _save(self, download: Download) -> None:
        folder = self.setting.downloads
        path = await asyncio.to_thread(_place, folder, download.suggested_filename)
        failure = await download.failure()
        if failure:
            self.happened.append(f"A download failed: {failure[:200]}.")
            return
        await download.save_as(path)
        size = (await asyncio.to_thread(os.stat, path)).st_size
        self.happened.append(f"Downloaded downloads/{os.path.basename(path)} ({size} bytes).")

    def _do(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> None:
        task = asyncio.ensure_future(_quietly(work))
        kept.add(task)
        task.add_done_callback(kept.discard)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Error, OSError):  # the page went away meanwhile
        await work


def _place(folder: str, wanted: str) -> str:
    os.makedirs(folder, exist_ok=True)
    return free_path(folder, wanted)


def free_path(folder: str, wanted: str) -> str:
    """A path in the folder that no file has yet, for a name that a page chose."""
    kept = "".join(sign for sign in wanted if sign.isprintable() and sign not in '/\\:*?"<>|')
    name = kept.strip(" ._")[-120:] or "download"
    stem, dot, ending = name.rpartition(".")
    for number in range(1, 1000):
        numbered = (
            name
            if number == 1
            else f"{stem or ending}-{number}{dot if stem else ''}{ending if stem else ''}"
        )
        if not os.path.lexists(f"{folder}/{numbered}"):
            return f"{folder}/{numbered}"
    raise OSError("too many files of that name")


def _replace(path: str, text: str) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
