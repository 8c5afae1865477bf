"""How long the browser takes: cold, for a later page, and for the state of a page of 3,000 controls."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from core.ports import Sandbox
from tests.bench.figure import Figure, Unmeasurable
from tests.bench.figures.jail import jails

COLD_STARTS = 5
PAGES = 20
SETTLING = 3
SECONDS = 60.0
PAGE = b"<!doctype html><title>Page</title><h1>Words</h1><a href='other.html'>Other</a><button>Press</button>"
LARGE = b"""<!doctype html><title>Large</title><script>
document.write(Array.from({ length: 1000 }, (_, n) => `<p><button>Press ${n}</button>
<input aria-label="Field ${n}"> <a href="#${n}">Link ${n}</a></p>`).join(''))</script>"""


@asynccontextmanager
async def sandbox_with_pages(thread_id: str) -> AsyncGenerator[Sandbox]:
    """A sandbox whose browser has not started yet. Raises Unmeasurable where there is none."""
    async with jails() as provider:
        if provider.browser_unavailable_reason:
            raise Unmeasurable(provider.browser_unavailable_reason)
        sandbox = await provider.open(thread_id, fence=1)
        for name, page in (("page", PAGE), ("other", PAGE), ("large", LARGE)):
            await sandbox.files.write(f"{name}.html", _pieces(page))
        yield sandbox


async def cold_s() -> float:
    """From the first call for a page to its state and picture: server, Chromium with a fresh profile, page."""
    walls: list[float] = []
    for number in range(COLD_STARTS):
        async with sandbox_with_pages(f"cold-{number}") as sandbox:
            walls.append(await _timed(sandbox, "navigate_to", "page"))
    return median(walls)


async def navigate_s() -> float:
    """A later page, from the call to its state and picture."""
    async with sandbox_with_pages("navigate") as sandbox:
        walls = [
            await _timed(sandbox, "navigate_to", ("page", "other")[number % 2]) for number in range(SETTLING + PAGES)
        ]
    return median(walls[SETTLING:])


async def state_s() -> float:
    """The state with its picture of a page of 3,000 controls that is there already."""
    async with sandbox_with_pages("state") as sandbox:
        await _timed(sandbox, "navigate_to", "large")
        walls = [await _timed(sandbox, "look") for _ in range(SETTLING + PAGES)]
    return median(walls[SETTLING:])


async def _timed(sandbox: Sandbox, action: str, page: str = "") -> float:
    url = f"/workspace/{page}.html"
    started = time.perf_counter()
    seen = await sandbox.browser.act(action, {"url": url} if page else {}, timeout_seconds=SECONDS)
    wall = time.perf_counter() - started
    assert seen.error is None
    assert seen.state is not None
    assert seen.state.picture
    return wall


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


BROWSER_COLD = Figure(name="browser_cold_s", unit="s", bound=3, measure=cold_s)
BROWSER_NAVIGATE = Figure(name="browser_navigate_s", unit="s", bound=0.5, measure=navigate_s)
PAGE_STATE = Figure(name="page_state_s", unit="s", bound=0.5, measure=state_s)
