"""Files to and from pages."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import unquote, urlsplit

from playwright.async_api import ElementHandle, Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser.chromium import Chromium, free_path
from sandbox.inside.browser.setting import Refused
from sandbox.inside.browser.tab import Tab

START_SECONDS = 15.0
TRANSFER_SECONDS = 600.0
CHOOSER_MS = 4000


async def upload(tab: Tab, element: ElementHandle, number: int, path: str) -> str:
    """Into a file field, or by the file dialog that a click on the element opens."""
    kind = await element.evaluate("e => e.tagName === 'INPUT' && e.type === 'file'")
    if kind:
        await element.set_input_files(path, timeout=CHOOSER_MS)
    else:
        try:
            async with tab.page.expect_file_chooser(timeout=CHOOSER_MS) as expected:
                await element.click(timeout=CHOOSER_MS)
            await (await expected.value).set_files(path)
        except PlaywrightTimeout:
            raise Refused(
                f"[{number}] neither takes a file nor asks for one when clicked."
            ) from None
    return f"Gave {os.path.basename(path)} to [{number}]."


async def download_by_click(chromium: Chromium, tab: Tab, element: ElementHandle) -> str:
    try:
        async with tab.page.expect_download(timeout=START_SECONDS * 1000):
            await element.click(timeout=CHOOSER_MS)
    except PlaywrightTimeout:
        raise Refused(
            "The click started no download. If it opened a page, give that page's address as url."
        ) from None
    await _finished(chromium)
    return "The click started a download."


async def download_address(chromium: Chromium, tab: Tab, url: str) -> str:
    """What the address answers, as a file; a page that would be shown is saved as it comes."""
    page = (await chromium.new_tab()).page
    chromium.show(tab)
    try:
        answer = await page.goto(url, wait_until="commit", timeout=START_SECONDS * 1000)
        if answer is None or answer.status >= 400:
            status = f" (HTTP {answer.status})" if answer else ""
            raise Refused(f"{url} has nothing to download{status}.")
        content = await asyncio.wait_for(answer.body(), TRANSFER_SECONDS)
        await asyncio.to_thread(_keep, chromium, url, content)
    except PlaywrightTimeout:
        raise Refused(f"{url} did not answer within {START_SECONDS:g} s.") from None
    except Error as error:
        if "Download is starting" not in error.message:
            raise Refused(
                f"{url} cannot be downloaded: {error.message.splitlines()[0][:200]}"
            ) from error
        await asyncio.sleep(0.05)  # the event of the download follows that of the refused page
        await _finished(chromium)
    finally:
        await page.close()
        chromium.show(tab)
    return "The download is done."


async def _finished(chromium: Chromium) -> None:
    try:
        await asyncio.wait_for(chromium.downloaded(), TRANSFER_SECONDS)
    except TimeoutError:
        raise Refused(f"The download did not end within {TRANSFER_SECONDS:g} s.") from None


def _keep(chromium: Chromium, url: str, content: bytes) -> None:
    folder = chromium.setting.downloads
    os.makedirs(folder, exist_ok=True)
    name = unquote(urlsplit(url).path).rpartition("/")[2] or "download.html"
    path = free_path(folder, name)
    with open(path, "wb") as file:
        file.write(content)
    chromium.happened.append(
        f"Downloaded downloads/{os.path.basename(path)} ({len(content)} bytes)."
    )
