"""What a person does and meets on the page beside the story."""

from pathlib import Path

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


async def test_files_are_chosen_dropped_again_and_sent(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("what is kept")
    (tmp_path / "dropped.txt").write_text("what is not")
    async with program(HELLO) as stage, reading(stage) as reader:
        slack = reader.side("slack")
        chooser = slack.get_by_label("Attach a file")
        await chooser.set_input_files([tmp_path / "kept.txt", tmp_path / "dropped.txt"])
        await reader.button("slack", "Do not attach dropped.txt").click()
        await reader.says("slack", "@threadhand look at this")
        sent = reader.message("slack", "look at this")
        await expect(sent.get_by_role("link", name="kept.txt")).to_be_visible()
        await expect(slack.get_by_text("dropped.txt")).to_have_count(0)
        await expect(reader.message("slack", "Good day.")).to_be_visible()
        kept = await reader.download(sent.get_by_role("link", name="kept.txt"))
        assert kept == "what is kept"


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


async def test_a_box_to_write_in_is_one_tab_stop_away() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        for platform, stops in (("slack", 1), ("discord", 2)):
            await reader.page.reload()
            await expect(reader.page.locator(f"#write-{platform}")).to_be_attached()
            for _ in range(stops):
                await reader.page.keyboard.press("Tab")
            await reader.page.keyboard.press("Enter")
            await expect(reader.box(platform)).to_be_focused()


async def test_the_fault_menu_closes_on_escape_and_colours_are_kept() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        slack = reader.side("slack")
        await slack.get_by_label("Make this platform misbehave").click()
        await expect(slack.get_by_label("Fault")).to_be_visible()
        await reader.page.keyboard.press("Escape")
        await expect(slack.get_by_label("Fault")).to_be_hidden()
        await slack.get_by_label("Show Slack in dark colours").click()
        await reader.side("discord").get_by_label("Show Discord in light colours").click()
        await reader.keep_picture("colours")
        await reader.page.reload()
        await expect(slack.get_by_label("Show Slack in light colours")).to_be_visible()


async def test_a_dark_system_gets_a_dark_slack_and_an_armed_fault_is_shown() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        slack = reader.side("slack")
        await reader.page.emulate_media(color_scheme="dark")
        await reader.page.reload()
        await expect(slack.get_by_label("Show Slack in light colours")).to_be_visible()
        await slack.get_by_label("Make this platform misbehave").click()
        await slack.get_by_label("How often").fill("3")
        await reader.button("slack", "Do it").click()
        await expect(slack.locator(".armed")).to_contain_text("answer 429: too many requests (3 ×)")
        await reader.page.reload()
        await expect(slack.locator(".armed")).to_contain_text("(3 ×)")
        await slack.get_by_label("Make this platform misbehave").click()
        await reader.button("slack", "Back to normal").click()
        await expect(slack.locator(".armed")).to_be_empty()


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


CUT = """bar => {
  const title = bar.querySelector("h2"), workspace = title.querySelector("small");
  const cut = [...bar.children].filter(one => one.scrollWidth > one.clientWidth).map(one => one.outerHTML);
  const isShown = workspace.offsetTop + workspace.offsetHeight <= title.offsetTop + title.offsetHeight + 1;
  return [cut, isShown, bar.scrollWidth - bar.clientWidth];
}"""


async def test_a_bar_cuts_no_name_beside_an_open_thread() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        channel = public_channel(stage.slack)
        root = await stage.slack.say("bob", channel, "where it begins")
        await stage.slack.say("bob", channel, "a reply", thread_id=root)
        await reader.button("slack", "1 reply").click()
        for wide in (1400, 1101, 1001):
            await reader.page.set_viewport_size({"width": wide, "height": 800})
            for platform in ("slack", "discord"):
                cut, is_shown, overflow = await reader.side(platform).locator(".bar").evaluate(CUT)
                assert (cut, overflow) == ([], 0), (platform, wide)
                assert is_shown or wide < 1400, (platform, wide)
                await expect(reader.button(platform, "Send")).to_be_in_viewport(ratio=1)
            await reader.keep_picture(f"bar-{wide}")


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


async def test_nested_lists_keep_their_numbers() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        channel = public_channel(stage.slack)
        text = "3. three\n    1. a\n        • point\n    2. b\n4. four\n• bullet"
        await stage.slack.say("bob", channel, text)
        message = reader.message("slack", "bullet")
        await expect(message.locator("ol ol > li")).to_have_count(2)
        items = await message.locator("li").evaluate_all(
            "all => all.map(one => [one.parentElement.tagName, one.value, one.firstChild.textContent])"
        )
        assert items == [
            ["OL", 3, "three"], ["OL", 1, "a"], ["UL", 0, "point"], ["OL", 2, "b"], ["OL", 4, "four"],
            ["UL", 0, "bullet"],
        ]  # fmt: skip
        style = await message.locator("ol ol").evaluate("list => getComputedStyle(list).listStyleType")
        assert style == "lower-alpha"


async def test_a_message_is_edited_and_deleted_in_its_place() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        await reader.says("slack", "a first *version*")
        message = reader.message("slack", "first version")
        await message.hover()
        await message.get_by_role("button", name="More about").click()
        await message.get_by_role("button", name="Edit").click()
        await message.get_by_label("The new text").fill("a second version")
        await message.get_by_role("button", name="Save").click()
        edited = reader.message("slack", "a second version")
        await expect(edited).to_contain_text("(edited)")
        await edited.get_by_role("button", name="Delete").click()
        await expect(reader.side("slack").locator("article")).to_have_count(0)


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


async def test_the_page_tells_what_the_platform_refuses_and_keeps_the_text() -> None:
    async with program(HELLO) as stage, reading(stage) as reader:
        await reader.says("discord", "x" * 2001)
        await expect(reader.page.get_by_role("alert").first).not_to_be_empty()
        await expect(reader.box("discord")).to_have_value("x" * 2001)
        reader.errors.clear()  # the browser notes each refused request


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
