"""Scrolling in a take-over does not hold up clicks and keys, and none of them is lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sandbox.local.provider import LocalSandboxProvider
from tests.integration.bots.web.takeover_stage import Helper, click_to_pixel_ms, helper, waiting
from tests.integration.sandbox.providers import local_jails
from tests.integration.simulator.page.browser import IN_SHARED_BROWSER
from tests.integration.simulator.page.browser import shared_browser as shared_browser

pytestmark = [*IN_SHARED_BROWSER]

KEYS = 600
PAGE = """<title>Begin</title><style>body { margin: 0; height: 200000px }
  textarea { position: fixed; top: 20px; left: 20px; width: 200px; height: 100px }</style>
<textarea oninput="document.title = value.length"></textarea><script>
  let pressed = 0;
  onmousedown = () => {
    pressed += 1;
    document.body.style.background = pressed % 2 ? 'rgb(255, 0, 0)' : 'rgb(0, 0, 255)';
  };
  onscrollend = () => { document.title = 'at ' + scrollY; };
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jails() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails() as provider:
        yield provider


async def test_a_click_while_somebody_scrolls_is_seen_soon(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene, helper(scene.link) as person:
        await person.begin()
        taken = await click_to_pixel_ms(person, clicks=12)
    assert len(taken) == 12  # no click was lost
    assert max(taken) < 5_000  # the figure for one click is in docs/developers/performance.md


async def test_no_key_is_lost_while_somebody_types_fast(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene, helper(scene.link) as person:
        await person.begin()
        await person.click(60, 60)
        await type_fast(person)
        await person.sees(str(KEYS))


async def type_fast(person: Helper) -> None:
    """Enters characters faster than the agent's browser takes them."""
    await person.page.evaluate(
        """(count) => { const field = document.getElementById('keys');
          field.focus();
          for (let n = 0; n < count; n += 1) field.dispatchEvent(
            new ClipboardEvent('paste', { clipboardData: (() => {
              const data = new DataTransfer();
              data.setData('text/plain', 'x');
              return data;
            })() })); }""",
        KEYS,
    )
