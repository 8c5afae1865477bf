"""Runs Chromium: starts it on first use, restarts it after a crash, and tracks its tabs, dialogs and downloads."""

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
    ProxySettings,
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


class Chromium:
    """`happened` collects sentences for the next result.

    `dialog_handler` shows dialogs to a person who has taken over."""

    def __init__(self, settings: BrowserSettings) -> None:
        self.settings = settings
        self.happened: list[str] = []
        self.accepts_dialogs: tuple[bool, str] | None = None
        self.dialog_handler: Any = None
        self._playwright: Playwright | None = None
        self._context: BrowserContext | None = None
        self._was_lost = False
        self._tab_facts: dict[Page, Tab] = {}
        self._current: Tab | None = None
        self._count = 0
        self._opening = 0
        self._cookies = ""
        self._downloads: set[asyncio.Task[None]] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()

    @property
    def tabs(self) -> list[Tab]:
        return [tab for tab in self._tab_facts.values() if tab.is_open]

    @property
    def current_tab(self) -> Tab | None:
        return self._current

    def consume_crash_flag(self) -> bool:
        """Returns whether the browser has crashed since the last call."""
        was_lost, self._was_lost = self._was_lost, False
        return was_lost

    async def tab(self) -> Tab:
        """Returns the current tab, and starts the browser if needed. Raises ActionRefused if it cannot be started."""
        async with self._starting:
            context = self._context
            if context is None:
                context = await self._start()
            if self._current is None or not self._current.is_open:
                left = self.tabs
                self._current = left[-1] if left else await self._open(context)
            return self._current

    def select_tab(self, tab: Tab) -> None:
        self._current = tab

    def tab_by_id(self, number: int) -> Tab:
        """Raises ActionRefused if there is no such tab."""
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
        """Opens a tab without announcing it."""
        self._opening += 1
        try:
            return self._track_page(await context.new_page())
        finally:
            self._opening -= 1

    async def save_cookies(self) -> None:
        """Saves the cookies, so that logins survive: Chromium writes them late, and session cookies never."""
        if self._context is None:
            return
        with contextlib.suppress(Error, OSError, TimeoutError):
            text = json.dumps(await asyncio.wait_for(self._context.cookies(), 2))
            if text != self._cookies:
                await asyncio.to_thread(_replace, f"{self.settings.profile}/cookies.json", text)
                self._cookies = text

    async def close(self) -> None:
        context, self._context = self._context, None
        with contextlib.suppress(Error):
            if context is not None:
                await context.close()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None

    async def wait_for_downloads(self) -> None:
        while self._downloads:
            await asyncio.wait(set(self._downloads))

    def _proxy(self) -> ProxySettings | None:
        settings = self.settings
        if not settings.proxy:
            return None
        proxy: ProxySettings = {"server": settings.proxy, "bypass": "127.0.0.1,localhost"}
        if settings.proxy_user:
            proxy |= {"username": settings.proxy_user, "password": settings.proxy_password}
        return proxy

    async def _start(self) -> BrowserContext:
        settings = self.settings
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        os.makedirs(settings.profile, mode=0o700, exist_ok=True)
        for name in LOCKS:
            with contextlib.suppress(OSError):
                os.unlink(f"{settings.profile}/{name}")
        try:
            context = await self._playwright.chromium.launch_persistent_context(
                settings.profile,
                executable_path=settings.chromium,
                headless=True,
                chromium_sandbox=False,  # the surrounding sandbox is stricter, and does not allow a nested one
                viewport={"width": WIDTH, "height": HEIGHT},
                accept_downloads=True,
                downloads_path=settings.scratch,
                args=[*FLAGS, f"--disk-cache-dir={settings.scratch}/cache"],
                proxy=self._proxy(),
                timeout=30_000,
            )
        except Error as error:
            reason = str(error).splitlines()[0][:300]
            raise ActionRefused(f"The browser does not start: {reason}") from error
        context.set_default_timeout(8000)
        with contextlib.suppress(OSError, ValueError, TypeError, Error):
            text = await asyncio.to_thread(_read, f"{self.settings.profile}/cookies.json")
            await context.add_cookies(json.loads(text))
        for page in context.pages:
            self._track_page(page)
        context.on("page", self._on_page)
        context.on("close", lambda closed: self._on_close(closed))
        self._context = context
        return context

    def _on_close(self, context: BrowserContext) -> None:
        if context == self._context:
            self._was_lost = True
            self._context = None
            self._tab_facts.clear()
            self._current = None

    def _track_page(self, page: Page) -> Tab:
        tab = self._tab_facts.get(page)
        if tab is None:
            tab = self._tab_facts[page] = Tab(page, self._count, self._answer_dialog)
            self._count += 1
            page.on("close", self._on_page_close)
            page.on("download", lambda download: self._spawn(self._save(download), self._downloads))
        return tab

    def _on_page_close(self, page: Page) -> None:
        self._tab_facts.pop(page, None)

    def _on_page(self, page: Page) -> None:
        if page in self._tab_facts:
            return
        if len(self.tabs) >= TABS_MAX:
            self.happened.append(f"A new tab was closed at once: there are {TABS_MAX} already.")
            self._spawn(page.close(), self._work)
            return
        tab = self._track_page(page)
        if self._opening:
            return
        self._current = tab
        self.happened.append(f"A new tab opened and is shown now (page_id {tab.number}).")

    def _answer_dialog(self, tab: Tab, dialog: Dialog) -> None:
        if self.dialog_handler is not None and self.dialog_handler(tab, dialog):
            return
        tab.dialogs += 1
        if tab.dialogs > DIALOGS_MAX:
            if tab.dialogs == DIALOGS_MAX + 1:
                self.happened.append("The page kept opening dialogs; its tab was closed.")
                self._spawn(tab.page.close(), self._work)
            return
        accepts, text = self.accepts_dialogs or (dialog.type in ("alert", "beforeunload"), "")
        told = "accepted" if accepts else "dismissed"
        shown = " ".join(dialog.message.split())[:300]
        self.happened.append(f"The page showed a dialog ({dialog.type}): {shown!r}. It was {told}.")
        self._spawn(dialog.accept(text) if accepts else dialog.dismiss(), self._work)

    async def _save(self, download: Download) -> None:
        failure = await download.failure()
        if failure:
            self.happened.append(f"A download failed: {failure[:200]}.")
            return
        path = await asyncio.to_thread(_download_path, self.settings.downloads, download.suggested_filename)
        await download.save_as(path)
        size = (await asyncio.to_thread(os.stat, path)).st_size
        self.happened.append(f"Downloaded downloads/{os.path.basename(path)} ({size} bytes).")

    def _spawn(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> None:
        task = asyncio.ensure_future(_ignore_errors(work))
        kept.add(task)
        task.add_done_callback(kept.discard)


async def _ignore_errors(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Error, OSError):  # the page was closed meanwhile
        await work


def _download_path(folder: str, wanted: str) -> str:
    os.makedirs(folder, exist_ok=True)
    return reserve_path(folder, wanted)


def reserve_path(folder: str, wanted: str) -> str:
    """Creates an empty file under an unused name, like the one that a page has chosen. Returns its path, which no
    other download gets."""
    kept = "".join(sign for sign in wanted if sign.isprintable() and sign not in '/\\:*?"<>|')
    name = kept.strip(" ._")[-120:] or "download"
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    for number in range(1, 1000):
        path = f"{folder}/{name}" if number == 1 else f"{folder}/{stem}-{number}{dot}{ending}"
        with contextlib.suppress(FileExistsError), open(path, "xb"):
            return path
    raise OSError("too many files of that name")


def _replace(path: str, text: str) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
