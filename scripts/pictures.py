"""Makes the pictures of the documents from the demo: a thread from request to chart, animated, and an approval."""

import asyncio
import io
import shutil
import time
from asyncio import StreamReader
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from typing import cast

from PIL import Image
from playwright.async_api import Page, async_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 860, "height": 600}
PORT = "8747"
FRAME_SECONDS = 0.4
LAST_FRAME_MILLISECONDS = 4000
COLOURS = 96


async def main() -> None:
    demo = await asyncio.create_subprocess_exec(ROOT / ".venv/bin/threadhand", "demo", "--port", PORT, stdout=PIPE)
    await cast(StreamReader, demo.stdout).readline()  # it says its address when the page is there
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = await browser.new_page(viewport=SIZE)
            await page.goto(f"http://127.0.0.1:{PORT}/")
            save_animation(await frames_of_thread(page), IMAGES / "thread.gif")
            await page.get_by_role("button", name="Approve once").wait_for()
            await page.screenshot(path=IMAGES / "approval.png")
            await browser.close()
    finally:
        with suppress(ProcessLookupError):
            demo.terminate()
        await demo.wait()


async def frames_of_thread(page: Page) -> list[tuple[Image.Image, int]]:
    """Returns what the page shows until it turns to Discord, each picture once with its milliseconds."""
    frames: list[tuple[Image.Image, int]] = []
    newest, since = b"", time.monotonic()
    discord = page.get_by_role("button", name="Discord", pressed=True)
    while not await discord.count():
        shown = await page.screenshot()
        if shown != newest:
            now = time.monotonic()
            if newest:
                frames.append((Image.open(io.BytesIO(newest)), int((now - since) * 1000)))
            newest, since = shown, now
        await asyncio.sleep(FRAME_SECONDS)
    return [*frames, (Image.open(io.BytesIO(newest)), LAST_FRAME_MILLISECONDS)]


def save_animation(frames: list[tuple[Image.Image, int]], path: Path) -> None:
    images = [image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE) for image, _ in frames]
    durations = [duration for _, duration in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)


asyncio.run(main())
