"""People in the agent's browser: real browsers on both sides, at a stage and on a phone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import expect

from sandbox.local.provider import LocalSandboxProvider
from tests.support.page_browser import IN_SHARED_BROWSER, PHONE
from tests.support.page_browser import shared_browser as shared_browser
from tests.support.sandboxes import local_jails
from tests.support.takeover_stage import Helper, helper, waiting

pytestmark = list(IN_SHARED_BROWSER)

PAGE = """<meta charset=utf-8><meta name=viewport content="width=device-width"><title>Begin</title>
<style>body { margin: 0; height: 3000px; font: 16px sans-serif }
  body > * { position: absolute; left: 20px; width: 200px; height: 30px; box-sizing: border-box }</style>
<button style="top: 20px" onclick="document.title = 'Pressed'">Press</button>
<input style="top: 60px" oninput="document.title = 'Typed ' + this.value" onkeydown="
  if (event.key === 'Enter') document.title = 'Sent ' + this.value">
<select style="top: 100px" onchange="document.title = 'Chose ' + this.value">
  <option>Norway<option>Sweden<option disabled>Atlantis</select>
<input style="top: 140px" type="date" onchange="document.title = 'Day ' + this.value">
<button style="top: 180px" onclick="document.title = 'Said ' + prompt('Your word?', 'none')">Prompt</button>
<a style="top: 220px" href="?second" target="_blank">New tab</a>
<div style="top: 260px; background: #ccc" id="slider">slide</div>
<p style="top: 700px" id="size"></p>
<p style="top: 300px" ondblclick="document.title = 'Marked ' + getSelection()">copyme</p>
<script>
  let from = null;
  slider.onpointerdown = (e) => { from = e.clientX; slider.setPointerCapture(e.pointerId); };
  slider.onpointerup = (e) => { document.title = 'Slid ' + Math.round((e.clientX - from) / 10); };
  addEventListener('scroll', () => { if (scrollY > 200) document.title = 'Scrolled'; });
  addEventListener('resize', () => { size.textContent = 'Size ' + innerWidth; });
  if (location.search) document.title = 'Second';
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jails() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails() as provider:
        yield provider


async def test_a_person_works_in_the_browser_and_hands_it_back(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene:
        async with helper(scene.link) as person:
            await expect(person.page.locator("#task")).to_have_text("Please log in.\nThen hand back.")
            await person.keep_picture("welcome")
            await person.begin()
            assert "A person has taken over the browser" in await scene.agent_sees()

            await person.click(100, 35)
            await person.sees("Pressed")
            await person.click(100, 75)
            await person.page.keyboard.type("ida 1")
            await person.sees("Typed ida 1")
            await person.page.keyboard.press("Backspace")
            await person.page.keyboard.insert_text("é漢")
            await person.sees("Typed ida é漢")
            await person.page.keyboard.press("Enter")
            await person.sees("Sent ida é漢")
            await person.keep_picture("at-work")
            await person.page.mouse.wheel(0, 900)
            await person.sees("Scrolled")

            await person.hand_back("Logged in; the code was 42.")

        said = await scene.until_handed_back()
        assert said.startswith("Logged in; the code was 42.")
        assert "it is yours again" in said
        assert await scene.agent_sees() == "Scrolled"
        read = await scene.sandbox.browser.act("read_page", {}, timeout_seconds=60)
        assert "Size 1280" in read.said  # as wide for the agent as ever
        thread = await scene.stage.json("GET", f"/api/thread/{scene.thread_id}")
        assert thread["active_run_id"] is not None
        assert thread["ask"] is None


async def test_what_no_picture_shows_is_shown_by_the_page(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene, helper(scene.link) as person:
        await person.begin()
        dialog = person.page.locator("#ask")

        await person.click(100, 115)
        await expect(dialog.get_by_role("option")).to_have_text(["Norway", "Sweden", "Atlantis"])
        await person.keep_picture("list")
        await dialog.get_by_role("listbox").select_option("Sweden")
        await dialog.get_by_role("button", name="Choose").click()
        await person.sees("Chose Sweden")

        await person.click(100, 155)
        await dialog.get_by_label("Value").fill("2026-02-03")
        await dialog.get_by_role("button", name="OK").click()
        await person.sees("Day 2026-02-03")

        await person.click(100, 195)
        await expect(dialog).to_contain_text("The page says: Your word?")
        await dialog.get_by_label("Answer").fill("swordfish")
        await dialog.get_by_role("button", name="OK").click()
        await person.sees("Said swordfish")
        await person.click(100, 195)
        await expect(dialog.get_by_label("Answer")).to_have_value("none")
        await person.page.keyboard.press("Escape")
        await person.sees("Said null")


async def test_a_phone(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene, helper(scene.link, PHONE, is_phone=True) as person:
        await person.keep_picture("phone-welcome")
        await person.begin()
        await person.keep_picture("phone")
        width = await person.page.evaluate("document.documentElement.scrollWidth")
        assert width == PHONE[0]  # nothing sticks out
        await person.screen.tap(position={"x": 100, "y": 35})
        await person.sees("Pressed")

        await person.screen.tap(position={"x": 100, "y": 75})
        await expect(person.page.locator("#keys")).to_be_focused()
        await person.page.keyboard.insert_text("abc")
        await person.sees("Typed abc")
        await person.page.keyboard.press("Backspace")
        await person.sees("Typed ab")

        await fingers(person, (100, 275), (160, 275), hold_seconds=0.8)
        await person.sees("Slid 6")
        await fingers(person, (100, 500), (100, 100))
        await person.sees("Scrolled")
        await person.hand_back()
        await person.keep_picture("phone-done")


async def fingers(person: Helper, start: tuple[int, int], end: tuple[int, int], *, hold_seconds: float = 0) -> None:
    """One finger from a point of the agent's page to another; held for a moment first, it drags."""
    box = await person.screen.bounding_box()
    assert box is not None
    session = await person.context.new_cdp_session(person.page)

    async def touch(kind: str, *points: tuple[float, float]) -> None:
        told = [{"x": x + box["x"], "y": y + box["y"]} for x, y in points]
        await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": told})

    await touch("touchStart", start)
    await asyncio.sleep(hold_seconds)  # this is what is tested: a finger that rests
    for step in range(1, 11):
        x = start[0] + (end[0] - start[0]) * step / 10
        y = start[1] + (end[1] - start[1]) * step / 10
        await touch("touchMove", (x, y))
    await touch("touchEnd")


async def test_a_reload_goes_on_and_nobody_else_may(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    async with waiting(tmp_path, jails, PAGE) as scene, helper(scene.link) as person:
        await person.begin()
        note = person.page.get_by_label("Note to the agent")
        await note.fill("The code is 42.")
        await person.page.reload()
        await person.begin()
        await expect(note).to_have_value("The code is 42.")
        await person.click(100, 35)
        await person.sees("Pressed")

        async with helper(scene.link) as stranger:
            await expect(stranger.page.locator("main")).to_contain_text("already used in another browser")
            await expect(stranger.page.get_by_role("button")).to_have_count(0)
        await person.hand_back()
        await person.page.reload()
        await expect(person.page.locator("main")).to_contain_text("was handed back already")


async def test_what_pages_call_themselves_is_text(jails: LocalSandboxProvider, tmp_path: Path) -> None:
    page = "<title>&lt;img src=x onerror=alert(1)&gt;</title><p>x"
    async with waiting(tmp_path, jails, page) as scene, helper(scene.link) as person:
        await person.begin()
        await person.sees("<img src=x onerror=alert(1)>")
