"""Uploads, downloads and screenshots."""

from __future__ import annotations

import asyncio
import contextlib
import os
from urllib.parse import unquote, urlsplit

from playwright.async_api import ElementHandle, Error, FloatRect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser.chromium import Chromium, reserve_path
from sandbox.inside.browser.protocol import ActionRefused
from sandbox.inside.browser.tab import CLOSE_SECONDS, Tab

START_SECONDS = 15.0
TRANSFER_SECONDS = 600.0
CHOOSER_MS = 4000
PICTURE_MS = 20_000
PICTURE_PIXELS_MAX = 10_000
SIZE = """(most) => {
  const page = document.documentElement;
  const wide = Math.min(Math.max(page.scrollWidth, innerWidth), most);
  return [wide, Math.min(Math.max(page.scrollHeight, innerHeight), most), page.scrollHeight];
}"""


async def upload(tab: Tab, element: ElementHandle, number: int, path: str) -> str:
    """Gives a file to a file field, or to the file dialog that a click on the element opens."""
    kind = await element.evaluate("e => e.tagName === 'INPUT' && e.type === 'file'")
    if kind:
        await element.set_input_files(path, timeout=CHOOSER_MS)
    else:
        try:
            async with tab.page.expect_file_chooser(timeout=CHOOSER_MS) as expected:
                await element.click(timeout=CHOOSER_MS)
            await (await expected.value).set_files(path)
        except PlaywrightTimeout:
            raise ActionRefused(f"[{number}] neither accepts a file nor asks for one when clicked.") from None
    return f"Gave {os.path.basename(path)} to [{number}]."


async def screenshot(tab: Tab, path: str, display_path: str, *, is_whole: bool) -> str:
    """Saves a screenshot of the view, or of the page up to the maximum size, replacing a file of that name."""
    more = ""
    clip: FloatRect | None = None
    if is_whole:
        wide, high, all_of_it = await tab.page.evaluate(SIZE, PICTURE_PIXELS_MAX)
        clip = {"x": 0, "y": 0, "width": wide, "height": high}
        if all_of_it > high:
            more = f" The page is {all_of_it} pixels high; the picture ends before."
    content = await tab.page.screenshot(
        type="png" if path.lower().endswith(".png") else "jpeg", full_page=is_whole, clip=clip, timeout=PICTURE_MS
    )
    await asyncio.to_thread(_replace, path, content)
    return f"Saved a picture of the page as {display_path} ({len(content)} bytes).{more}"


async def download_by_click(chromium: Chromium, tab: Tab, element: ElementHandle) -> str:
    try:
        async with tab.page.expect_download(timeout=START_SECONDS * 1000):
            await element.click(timeout=CHOOSER_MS)
    except PlaywrightTimeout:
        raise ActionRefused(
            "The click started no download. If it opened a page, give that page's address as url."
        ) from None
    await _wait_for_downloads(chromium)
    return "The click started a download."


async def download_address(chromium: Chromium, tab: Tab, url: str) -> str:
    """Saves the response of the address as a file, even if it is a page."""
    aside = await chromium.new_tab()
    page = aside.page
    chromium.select_tab(tab)
    has_started = asyncio.Event()
    page.once("download", lambda _: has_started.set())
    try:
        answer = await page.goto(url, wait_until="commit", timeout=START_SECONDS * 1000)
        if answer is None or answer.status >= 400:
            status = f" (HTTP {answer.status})" if answer else ""
            raise ActionRefused(f"{url} has nothing to download{status}.")
        content = await asyncio.wait_for(answer.body(), TRANSFER_SECONDS)
        await asyncio.to_thread(_save_page, chromium, url, content)
    except PlaywrightTimeout:
        raise ActionRefused(f"{url} did not answer within {START_SECONDS:g} s.") from None
    except Error as error:
        if "Download is starting" not in error.message:
            raise ActionRefused(f"{url} cannot be downloaded: {error.message.splitlines()[0][:200]}") from error
        # the download event follows the navigation that became a download
        try:
            await asyncio.wait_for(has_started.wait(), START_SECONDS)
        except TimeoutError:
            raise ActionRefused(f"{url} did not answer within {START_SECONDS:g} s.") from None
        await _wait_for_downloads(chromium)
    finally:
        # an empty tab closes at once
        with contextlib.suppress(Error):
            await aside.page.goto("about:blank", timeout=CLOSE_SECONDS * 1000)
        with contextlib.suppress(Error, TimeoutError):
            await aside.close()
        chromium.select_tab(tab)
    return "The download is done."


async def _wait_for_downloads(chromium: Chromium) -> None:
    try:
        await asyncio.wait_for(chromium.wait_for_downloads(), TRANSFER_SECONDS)
    except TimeoutError:
        raise ActionRefused(f"The download did not end within {TRANSFER_SECONDS:g} s.") from None


def _replace(path: str, content: bytes) -> None:
    """Replaces the file. If the name is a link, replaces the link, not its target."""
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "xb") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def _save_page(chromium: Chromium, url: str, content: bytes) -> None:
    folder = chromium.settings.downloads
    os.makedirs(folder, exist_ok=True)
    name = unquote(urlsplit(url).path).rpartition("/")[2] or "download.html"
    path = reserve_path(folder, name)
    with open(path, "wb") as file:
        file.write(content)
    chromium.happened.append(f"Downloaded downloads/{os.path.basename(path)} ({len(content)} bytes).")
