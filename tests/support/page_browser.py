"""A person at a browser: the page in a real headless Chromium, and the whole program behind it."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Download, Locator, Page, async_playwright, expect

from bots.demo.environment import DemoEnvironment, start_demo
from bots.demo.runner import build_page_samples
from bots.settings import load_settings
from simulator.model.scenario import load_scenario
from simulator.page.server import served_page
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking

WIDE = (1280, 800)
PHONE = (390, 844)
ARTEFACTS = REPOSITORY / "test-artefacts"
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


@dataclass(kw_only=True)
class Reader:
    """One browser window. `errors` is what its console complained of."""

    page: Page
    errors: list[str] = field(default_factory=list[str])

    def side(self, platform: str) -> Locator:
        return self.page.locator(f"#{platform}")

    def box(self, platform: str) -> Locator:
        return self.side(platform).get_by_label("What you write")

    def message(self, platform: str, text: str) -> Locator:
        """The newest message with this text."""
        return self.side(platform).locator("article").filter(has_text=text).last

    def button(self, platform: str, label: str) -> Locator:
        return self.side(platform).get_by_role("button", name=label, exact=True)

    async def begin(self, platform: str, sample: str = "Try: sum up a table") -> None:
        """A sample, in two clicks."""
        await self.button(platform, sample).first.click()
        await self.side(platform).locator(".send [type=submit]").click()

    async def says(self, platform: str, text: str) -> None:
        await self.box(platform).fill(text)
        await self.box(platform).press("Enter")

    async def download(self, link: Locator) -> str:
        """The text of the file behind a link that opens a tab. The browser reports the download on this page, or on
        the tab if that was opened sooner."""
        arriving: asyncio.Queue[Download] = asyncio.Queue()
        self.page.on("download", arriving.put_nowait)
        self.page.context.on("page", lambda tab: tab.on("download", arriving.put_nowait))
        await link.click()
        async with asyncio.timeout(PATIENCE_MS / 1000):
            download = await arriving.get()
        return (await download.path()).read_text()

    async def keep_picture(self, name: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"page-{name}.png")


def chromium() -> str:
    """The browser's program; skips the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return found or lacking("chromium", "no chromium, chromium-browser or google-chrome on PATH")


@asynccontextmanager
async def program(
    scenario: str | None = None, *, sandbox: str = "unsafe-process"
) -> AsyncGenerator[DemoEnvironment, None]:
    """The whole program with both platforms; the story, or another scenario in YAML."""
    settings = load_settings({"THREADHAND_SANDBOX": sandbox}, None)
    chosen = load_scenario(scenario) if scenario else None
    async with start_demo(settings, scenario=chosen) as stage:
        yield stage


@asynccontextmanager
async def reading(
    stage: DemoEnvironment, *, size: tuple[int, int] = WIDE, plays: bool = False
) -> AsyncGenerator[Reader, None]:
    """Someone who looks at the page. In the end, its console must have been silent, and axe must find no barrier.

    `plays`: the stories play by themselves, as in the demo.
    """
    platforms = {"slack": stage.slack, "discord": stage.discord}
    samples = build_page_samples(stage, play_themselves=plays)
    async with served_page(platforms, port=None, samples=samples) as address, window(address, size=size) as reader:
        await expect(reader.side("slack").locator(".link.is-on")).to_be_attached()
        await expect(reader.side("discord").locator(".link.is-on")).to_be_attached()
        await expect(reader.page.locator("#discord.is-ready")).to_be_attached()
        yield reader
        assert reader.errors == []
        found = await Axe().run(reader.page)
        barriers = [(one["id"], node["html"]) for one in found.response["violations"] for node in one["nodes"]]
        assert not barriers, barriers


@asynccontextmanager
async def window(address: str, *, size: tuple[int, int] = WIDE) -> AsyncGenerator[Reader, None]:
    async with browser() as opened, await opened.new_context(viewport={"width": size[0], "height": size[1]}) as context:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        reader = Reader(page=page)
        page.on("pageerror", lambda error: reader.errors.append(str(error)))
        page.on("console", lambda said: reader.errors.append(said.text) if said.type in ("error", "warning") else None)
        await page.goto(address)
        yield reader


IN_SHARED_BROWSER = (pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("shared_browser"))
_shared: dict[asyncio.AbstractEventLoop, Browser] = {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_browser() -> AsyncIterator[None]:
    """One browser for all tests of a module, which saves a second of the processor for each. They have a loop in
    common, and each a context of its own, with its own cookies."""
    async with browser() as opened:
        _shared[asyncio.get_running_loop()] = opened
        try:
            yield
        finally:
            del _shared[asyncio.get_running_loop()]


@asynccontextmanager
async def browser() -> AsyncGenerator[Browser, None]:
    """The browser of the module, or a new one."""
    if shared := _shared.get(asyncio.get_running_loop()):
        yield shared
        return
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(
            executable_path=chromium(), args=list(FLAGS), chromium_sandbox=False
        ) as opened,
    ):
        yield opened
