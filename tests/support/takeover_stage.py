"""A thread that waits for a person in its browser, the server behind the link, and the person's own browser."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import BrowserContext, Locator, Page, expect

from bots.web.links import SignedLinks
from core.domain.actions import AskAnswered, IncomingMessage
from core.domain.events import RunFinished
from core.domain.threads import Reply
from core.ports import Sandbox
from core.run.run_end import build_run_result
from core.stores import JournalEntry
from sandbox.local.provider import LocalSandboxProvider
from storage.sql.stores.run_journal import SqlRunJournal
from tests.requirements_of_the_machine import lacking
from tests.support.page_browser import ARTEFACTS, PATIENCE_MS, WIDE, browser
from tests.support.sandboxes import pieces
from tests.support.web_stage import Stage, staged

MINUTE = 60.0
ANYTHING = re.compile(".+")
LONG_PAGE = """<title>Begin</title><style>body { margin: 0; height: 200000px }
  textarea { position: fixed; top: 20px; left: 20px; width: 200px; height: 100px }</style>
<textarea oninput="document.title = value.length"></textarea><script>
  let pressed = 0;
  onmousedown = () => {
    pressed += 1;
    document.body.style.background = pressed % 2 ? 'rgb(255, 0, 0)' : 'rgb(0, 0, 255)';
  };
  onscrollend = () => { document.title = 'at ' + scrollY; };
</script>"""


@dataclass
class Scene:
    """`link` is what the agent has posted in the thread."""

    stage: Stage
    thread_id: str
    link: str
    sandbox: Sandbox

    async def agent_sees(self) -> str:
        """The title of the page in front, as the agent's next look finds it."""
        seen = await self.sandbox.browser.act("look", {}, timeout_seconds=MINUTE)
        return seen.state.title if seen.state else f"refused: {seen.error}"

    def answers(self) -> list[str]:
        """What has come into the thread after the question."""
        return [one.text for one in self.stage.received[1:] if isinstance(one, AskAnswered | IncomingMessage)]

    async def until_handed_back(self) -> str:
        for _ in range(300):
            if said := self.answers():
                return said[0]
            await asyncio.sleep(0.1)
        raise AssertionError("the browser was not handed back")


@asynccontextmanager
async def waiting(
    folder: Path, jails: LocalSandboxProvider, page: str, *, seconds: float = 1800
) -> AsyncGenerator[Scene, None]:
    """A thread whose agent has opened the page and asks for a person."""
    if jails.browser_unavailable_reason:
        lacking("chromium", jails.browser_unavailable_reason)
    async with staged(folder, sandboxes=jails) as stage:
        thread_id = await stage.thread()
        run_id = await stage.send(thread_id, "log in for me")
        lease = await stage.claimed(run_id)
        sandbox = await jails.open(thread_id, fence=lease.fence)
        await sandbox.files.write("page.html", pieces(b"<!doctype html>" + page.encode()))
        opened = await sandbox.browser.act("navigate_to", {"url": "/workspace/page.html"}, timeout_seconds=MINUTE)
        assert opened.error is None
        address = str(stage.http._base_url).rstrip("/")
        ends_at = time.time() + seconds
        link = str(SignedLinks(b"s" * 32, address).takeover_url(thread_id, expires_at=ends_at))
        text = f"Please log in.\nThen hand back.\n\n[Open the browser]({link})"
        ended = RunFinished(
            status="completed", finish_reason="agent_terminated", reply=Reply(kind="takeover", text=text)
        )
        journal = SqlRunJournal(stage.database)
        inputs = tuple(one.input_id for one in await journal.read_inputs(lease))
        assert await journal.finish(lease, JournalEntry(taken_input_ids=inputs), build_run_result(ended))
        yield Scene(stage, thread_id, link, sandbox)


@dataclass
class Helper:
    """The person at the take-over page, which shows the agent's page as large as it is."""

    page: Page
    context: BrowserContext

    @property
    def screen(self) -> Locator:
        return self.page.locator("#screen")

    async def begin(self) -> None:
        """Takes the browser over and waits for a picture as large as its place."""
        await self.page.get_by_role("button", name="Take over the browser").click()
        await expect(self.page.locator("#url")).to_have_value(ANYTHING)
        box = await self.screen.bounding_box()
        assert box is not None
        shown = f"{round(box['width'])} {round(box['height'])}"
        await expect(self.screen).to_have_attribute("data-size", shown)

    async def sees(self, title: str) -> None:
        """Waits until the tab in front has the title."""
        await expect(self.page.locator(".tab.current .title")).to_have_text(title)

    async def click(self, x: int, y: int) -> None:
        await self.screen.click(position={"x": x, "y": y})

    async def hand_back(self, note: str = "") -> None:
        if note:
            await self.page.get_by_label("Note to the agent").fill(note)
        await self.page.get_by_role("button", name="Hand back").click()
        await expect(self.page.get_by_role("heading", name="Thank you")).to_be_visible()

    async def keep_picture(self, name: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"takeover-{name}.png")


@asynccontextmanager
async def helper(link: str, size: tuple[int, int] = WIDE, *, is_phone: bool = False) -> AsyncGenerator[Helper, None]:
    """Somebody who opens the link in a browser of their own; its console must have been silent in the end."""
    complaints: list[str] = []
    async with (
        browser() as opened,
        await opened.new_context(
            viewport={"width": size[0], "height": size[1]},
            has_touch=is_phone,
            is_mobile=is_phone,
            permissions=["clipboard-read", "clipboard-write"],
        ) as context,
    ):
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "warning" else None)
        await page.goto(link)
        yield Helper(page, context)
        assert complaints == []


SCROLL = """() => {
  const canvas = document.getElementById('screen');
  window.scrolling = setInterval(() => canvas.dispatchEvent(new WheelEvent('wheel',
    { deltaY: 10, clientX: 600, clientY: 400, cancelable: true })), 1000 / 60);
  const probe = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const pixel = () => {
    probe.drawImage(canvas, canvas.width - 60, 200, 1, 1, 0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  window.taken = [];
  canvas.addEventListener('pointerdown', () => {
    const since = performance.now(), before = pixel();
    const look = () => {
      const now = pixel();
      if (now.some((value, n) => Math.abs(value - before[n]) > 60)) taken.push(performance.now() - since);
      else requestAnimationFrame(look);
    };
    look();
  });
}"""


async def click_to_pixel_ms(person: Helper, *, clicks: int) -> list[float]:
    """Clicks while the wheel turns 60 times a second. Returns how long each click took to show on the person's screen
    on a page that changes its colour at each press."""
    await person.page.evaluate(SCROLL)
    for number in range(clicks):
        await asyncio.sleep(0.3 + number % 7 / 50)  # this is what is measured: clicks amid scrolling
        await person.click(600, 400)
        async with asyncio.timeout(MINUTE):
            while await person.page.evaluate("taken.length") <= number:
                await asyncio.sleep(0.02)
    taken: list[float] = await person.page.evaluate("clearInterval(scrolling) || taken")
    return taken
