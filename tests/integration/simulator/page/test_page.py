"""What a person does and meets on the page beside the story."""

import pytest
from playwright.async_api import expect

from simulator.page.server import served_page
from simulator.view import SimulatedPlatform
from tests.support.page_browser import IN_SHARED_BROWSER, PHONE, program, reading, window
from tests.support.page_browser import shared_browser as shared_browser

pytestmark = [*IN_SHARED_BROWSER]
HELLO = """
conversations:
  - name: hello
    steps: [{text: "Good day.", optional: true}]
"""
HOSTILE = [
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'><b>bold</b>",
    "[click](javascript:window.broken=1) <javascript:window.broken=1|here> https://example.org/a_b",
    "x" * 3000,
    "```\nnever closed <i>\n" + "y" * 500,
    "| a | b |\n|---|---|\n| <u>1</u> | " + "z" * 400 + " |",
    "مرحبا بالعالم، هذا نص من اليمين إلى اليسار",
    "a\u200bb\u2060c\u200d\u202e reversed?",
    "*_~" * 300 + "`" * 99 + "&lt;b&gt;",
    "🦄" * 200,
]


def public_channel(platform: SimulatedPlatform) -> str:
    return next(one.channel_id for one in platform.view().channels if not one.is_direct)


async def test_commands_and_names_are_completed() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        discord, box = reader.side("discord"), reader.box("discord")
        await reader.says("discord", "/agent run hello")
        await expect(reader.message("discord", "Good day.")).to_be_visible()
        await box.press_sequentially("/stat")
        await expect(discord.get_by_role("option", name="/status")).to_be_visible()
        await box.press("Enter")
        await expect(box).to_have_value("/status ")
        await box.press("Enter")
        await expect(discord.get_by_text("Only alice can see this")).to_be_visible()
        slack = reader.side("slack")
        await reader.box("slack").press_sequentially("/thr")
        await slack.get_by_role("option", name="/threadhand").click()
        await expect(reader.box("slack")).to_have_value("/threadhand ")
        await reader.says("slack", "/threadhand help")
        await expect(slack.get_by_text("Only alice can see this")).to_be_visible()
        await box.press_sequentially("hello @b")
        await expect(discord.get_by_role("option", name="@bob")).to_be_visible()
        await box.press("Escape")
        await expect(discord.locator(".completion").get_by_role("option")).to_have_count(0)
        await box.press_sequentially("o")
        await discord.get_by_role("option", name="@bob").click()
        await expect(box).to_have_value("hello @bob ")
        await expect(box).to_be_focused()
        await box.fill("")
        await box.press_sequentially("/agent use rese")
        await discord.get_by_role("option", name="/agent use research").click()
        await expect(box).to_have_value("/agent use research ")


async def test_room_is_left_for_the_messages() -> None:
    """Windows of 1440 x 900 and 1280 x 800 have half as many CSS pixels at a zoom of 200 %."""
    async with program(HELLO) as stage, reading(stage, size=PHONE) as reader:
        for wide, high in ((800, 900), (720, 450), (640, 400), PHONE):
            await reader.page.set_viewport_size({"width": wide, "height": high})
            for platform in ("slack", "discord"):
                await reader.page.locator(f"#switch [data-show={platform}]").click()
                messages = reader.side(platform).locator(".messages")
                assert await messages.evaluate("box => box.clientHeight") >= 300
                await expect(reader.box(platform)).to_be_in_viewport(ratio=1)
                await expect(reader.button(platform, "Send")).to_be_in_viewport(ratio=1)
                overflow = "document.documentElement.scrollWidth - innerWidth"
                assert await reader.page.evaluate(overflow) <= 0
                await reader.keep_picture(f"room-{wide}-{platform}")


async def test_a_slack_thread_opens_in_a_panel_beside_its_channel() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        slack = reader.side("slack")
        channel = public_channel(stage.slack)
        root = await stage.slack.say("bob", channel, "where it begins")
        for text in ("the first reply", "the second reply"):
            await stage.slack.say("bob", channel, text, thread_id=root)
        panel = slack.get_by_role("region", name="Thread in # general")
        await reader.button("slack", "2 replies").click()
        await expect(panel.get_by_text("the second reply")).to_be_visible()
        await expect(panel.get_by_text("where it begins")).to_be_visible()
        await expect(slack.locator(".messages").get_by_text("the first reply")).to_have_count(0)
        await expect(reader.box("slack")).to_be_focused()
        await reader.says("slack", "the third reply")
        await expect(panel.get_by_text("the third reply")).to_be_visible()
        await expect(slack.locator(".messages article")).to_have_count(1)
        await reader.page.keyboard.press("Escape")
        await expect(panel).to_be_hidden()
        await expect(reader.button("slack", "3 replies")).to_be_focused()
        await reader.page.keyboard.press("Enter")
        await expect(panel).to_be_visible()
        await reader.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        await expect(panel.get_by_text("the third reply")).to_be_visible()
        await expect(slack.locator(".messages")).to_be_hidden()
        await reader.keep_picture("panel-phone")
        await reader.button("slack", "Close the thread").click()
        await expect(slack.locator(".messages").get_by_text("where it begins")).to_be_visible()


@pytest.mark.parametrize("size", [(1280, 800), PHONE], ids=["wide", "phone"])
async def test_hostile_messages_neither_run_nor_break_the_page(size: tuple[int, int]) -> None:
    async with program(HELLO) as stage, reading(stage, size=size) as reader:
        slack, discord = stage.slack, stage.discord
        for platform, limit in ((slack, 4000), (discord, 2000)):
            for text in HOSTILE:
                await platform.say("bob", public_channel(platform), text[:limit])
        await reader.page.wait_for_function(
            "n => document.querySelectorAll('article').length >= n", arg=2 * len(HOSTILE)
        )
        assert await reader.page.evaluate("window.broken") is None
        links = await reader.page.evaluate("[...document.querySelectorAll('a')].map(a => a.href)")
        assert all(link.startswith("http") for link in links)
        assert await reader.page.locator("article :is(script, b, i, u)").count() == 0
        await expect(reader.message("slack", "<b>bold</b>")).to_have_count(1)
        assert await reader.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        for box in await reader.page.locator(".messages").all():
            assert await box.evaluate("box => box.scrollWidth <= box.clientWidth")


async def test_the_page_goes_on_when_the_demo_is_back() -> None:
    async with program(HELLO) as stage:
        platforms = {"slack": stage.slack, "discord": stage.discord}
        async with served_page(platforms, port=None) as address:
            port = int(address.rstrip("/").rsplit(":", 1)[1])
            running = window(address)
            reader = await running.__aenter__()
            await expect(reader.side("slack").locator(".link.is-on")).to_be_attached()
        try:
            away = reader.page.get_by_text("The demo has ended or is away")
            await expect(away).to_be_visible()
            await reader.box("slack").fill("@threadhand hello")
            await reader.box("slack").press("Enter")
            await expect(reader.box("slack")).to_have_value("@threadhand hello")
            async with served_page(platforms, port=port):
                await expect(away).to_be_hidden()
                await reader.box("slack").press("Enter")
                await expect(reader.message("slack", "Good day.")).to_be_visible()
        finally:
            await running.__aexit__(None, None, None)


async def test_a_reader_of_older_messages_is_not_moved_but_told_of_new_ones() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        slack = stage.slack
        channel = public_channel(slack)
        root = await slack.say("bob", channel, "a long thread begins")
        for number in range(40):
            await slack.say("bob", channel, f"reply number {number}.", thread_id=root)
        await reader.button("slack", "40 replies").click()
        newest = reader.message("slack", "reply number 39.")
        await expect(newest).to_be_in_viewport()
        await expect(reader.message("slack", "reply number 9.")).to_have_count(0)
        await reader.button("slack", "Show 10 earlier").click()
        old = reader.message("slack", "reply number 9.")
        await old.scroll_into_view_if_needed()
        await slack.say("bob", channel, "something new", thread_id=root)
        await expect(reader.button("slack", "New messages below")).to_be_visible()
        await expect(old).to_be_in_viewport()
        await reader.button("slack", "New messages below").click()
        await expect(reader.message("slack", "something new")).to_be_in_viewport()
        await expect(reader.button("slack", "New messages below")).to_be_hidden()


async def test_direct_messages_belong_to_one_person() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        for platform in ("slack", "discord"):
            await reader.button(platform, "threadhand").click()
            await reader.says(platform, "hello from alice")
            await expect(reader.message(platform, "Good day.")).to_be_visible()
            await reader.side(platform).get_by_label("You are").select_option("bob")
            await expect(reader.side(platform).get_by_text("hello from alice")).to_have_count(0)
