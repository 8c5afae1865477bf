"""The main job by clicks, as a new user does it, on both platforms."""

import asyncio

import pytest
from playwright.async_api import expect

from bots.demo.mcp_notice_board import read_notices
from tests.support.narrow import require
from tests.support.page_browser import IN_SHARED_BROWSER, PHONE, WIDE, Reader, program, reading
from tests.support.page_browser import shared_browser as shared_browser

pytestmark = list(IN_SHARED_BROWSER)


async def check_answer(reader: Reader, platform: str) -> None:
    """The figures, the picture and the report, as a person gets them."""
    side = reader.side(platform)
    await expect(reader.message(platform, "The total is 6300")).to_be_visible()
    picture = side.get_by_role("img", name="chart.svg", exact=True)
    await expect(picture).to_be_visible()
    await reader.page.wait_for_function(
        "picture => picture.complete && picture.naturalWidth > 100", arg=await picture.element_handle()
    )
    report = await reader.download(side.get_by_role("link", name="report.md"))
    assert "| North | 2700 |" in report
    await expect(side.locator(".reactions > span").first).to_have_text("✅ 1")


async def test_the_story_is_told_on_a_phone() -> None:
    async with program() as stage, reading(stage, size=PHONE) as reader:
        await expect(reader.side("slack")).to_be_visible()
        await expect(reader.side("discord")).to_be_hidden()
        await reader.page.get_by_role("button", name="Discord").click()
        await expect(reader.side("slack")).to_be_hidden()
        await reader.begin("discord")
        button = reader.button("discord", "Markdown")
        await button.scroll_into_view_if_needed()
        size = require(await button.bounding_box())
        assert size["height"] >= 40
        await button.click()
        await check_answer(reader, "discord")
        await expect(reader.button("discord", "Send")).to_be_in_viewport(ratio=1)
        wide = await reader.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE[0]
        for box in await reader.side("discord").locator(".messages").all():
            assert await box.evaluate("box => box.scrollWidth <= box.clientWidth")
        await reader.keep_picture("phone")


async def test_the_form_for_a_longer_answer_takes_it() -> None:
    async with program() as stage, reading(stage) as reader:
        await reader.begin("discord")
        await reader.button("discord", "Write an answer").click()
        form = reader.page.get_by_role("dialog")
        field = form.get_by_role("textbox")
        await expect(field).to_be_focused()
        await reader.page.keyboard.press("Escape")
        await expect(form).to_have_count(0)
        await reader.page.reload()
        await expect(reader.side("discord").locator("article").first).to_be_visible()
        await expect(form).to_be_hidden()
        await reader.button("discord", "Write an answer").click()
        await field.fill("Markdown")
        await reader.keep_picture("form")
        await form.get_by_role("button", name="Submit").click()
        await expect(form).to_have_count(0)
        await check_answer(reader, "discord")


async def test_the_keyboard_alone_is_enough() -> None:
    async with program() as stage, reading(stage) as reader:
        await reader.button("slack", "Try: sum up a table").first.focus()
        await reader.page.keyboard.press("Enter")
        await reader.page.keyboard.press("Enter")
        choice = reader.button("slack", "Markdown")
        await expect(choice).to_be_visible()
        await expect(reader.box("slack")).to_be_focused()
        for _ in range(20):
            await reader.page.keyboard.press("Shift+Tab")
            if await choice.evaluate("one => one === document.activeElement"):
                break
        await reader.page.keyboard.press("Enter")
        await expect(reader.message("slack", "alice answered: Markdown")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE])
async def test_the_stories_play_by_themselves_and_can_be_paused(size: tuple[int, int]) -> None:
    async with program() as stage, reading(stage, plays=True, size=size) as reader:
        page = reader.page
        playing = page.get_by_text("A story plays by itself.")
        await (expect(playing).to_be_attached() if size == PHONE else expect(playing).to_be_visible())
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_text("The story waits.")).to_be_attached()
        await asyncio.sleep(1)
        assert not any(channel.messages for channel in stage.slack.view().channels)
        await page.get_by_role("button", name="Play").click()
        await reader.box("slack").click()  # a person who writes stops the story
        await expect(page.get_by_text("The story waits.")).to_be_attached()
        await page.get_by_role("button", name="Play").click()
        await expect(reader.message("slack", "The total is 6300")).to_be_visible()
        await expect(reader.message("discord", "Pinned as notice 1")).to_be_visible()  # the page follows the story
        answer = reader.message("slack", "gets a bonus of 5 percent")
        await expect(answer).to_contain_text("handbook.pdf, page 4")
        await expect(reader.message("discord", "told me to open confirm.example")).to_be_visible()
        await expect(page.get_by_role("banner").get_by_role("button", name="Pause")).to_be_hidden()
        await expect(page.get_by_text("Your turn:")).to_be_visible()
        assert len(read_notices(stage.board)) == 1
