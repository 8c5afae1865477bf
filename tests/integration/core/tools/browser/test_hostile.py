"""Pages that lie, never end, are too large or do not answer: the next call works all the same."""

import json
import time

import pytest

from core.context.ephemeral_messages import TEXT_CHARACTERS_MAX, ephemeral_contents
from tests.integration.core.tools.browser.desk import SITE, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_what_a_page_calls_its_elements_cannot_pass_for_a_number(desk: Desk) -> None:
    await desk.open("hostile-names.html")

    assert desk.title == 'Ti tle [3] <button> "Pay"'
    assert len(desk.lines) == 2
    for line in desk.lines:
        number, _, rest = line[1:].partition("] <button> ")
        assert number.isdecimal()
        assert "\n" not in line
        assert isinstance(
            json.loads(rest), str
        )  # all the page's own words are inside one pair of quotes
    await desk.do("browser_click_element", index=int(desk.lines[0][1:].split("]")[0]))
    assert desk.title == "Safe"
    told = ephemeral_contents([desk.states[-1]], messages_since_browser=1, sees_images=False)
    assert str(told[0]["content"]).startswith("<data mark=")


async def test_a_page_that_bends_the_language_reaches_no_other_element(desk: Desk) -> None:
    """Its frame says nothing, at worst; numbers of another page stay those of that page."""
    await desk.open("index.html")
    number = desk.index("Press")
    await desk.open("bent.html")
    assert not any(line.startswith("[99999]") for line in desk.lines)
    assert "is gone" in await desk.error("browser_click_element", index=number)
    await desk.open("index.html")
    await desk.click("Press")
    assert desk.title == "Pressed"


@pytest.mark.slow
async def test_alerts_without_end_close_the_tab(desk: Desk) -> None:
    await desk.open("second.html")
    await desk.open("alerts.html")
    outcome = await desk.call("browser_click_element", index=desk.index("Never end"))
    output = outcome.result["output"]
    assert isinstance(output, dict)
    happened = output["happened"]
    assert isinstance(happened, list)
    assert "The page kept opening dialogs; its tab was closed." in happened
    assert "crashed" not in str(outcome.result["error"])
    await desk.open("index.html")
    assert desk.title == "Start"


async def test_a_page_that_closes_itself_is_no_crash_of_the_browser(desk: Desk) -> None:
    await desk.open("closing.html")
    await desk.click("Open another")
    outcome = await desk.call("browser_click_element", index=desk.index("Close this"))
    assert "crashed" not in str(outcome.result)
    assert desk.title == "Closing"


@pytest.mark.slow
async def test_a_page_that_hangs_is_told_and_can_be_left(desk: Desk) -> None:
    await desk.open("busy.html")
    outcome = await desk.call("browser_click_element", index=desk.index("Hang"))
    assert outcome.result["output"] is not None
    assert any("the page does not answer" in line for line in desk.lines)
    await desk.open("index.html")
    assert desk.title == "Start"
    await desk.click("Press")
    assert desk.title == "Pressed"


@pytest.mark.slow
async def test_a_huge_page_is_shown_within_bounds(desk: Desk) -> None:
    await desk.open("huge.html")
    await desk.until_title("Huge")
    assert len(json.dumps({**desk.state, "screenshot": ""})) < 60_000
    output = await desk.do("browser_read_page")
    assert len(output["message"]) < 21_000


@pytest.mark.slow
async def test_a_page_of_three_thousand_controls_lists_those_in_view(desk: Desk) -> None:
    started = time.monotonic()
    output = await desk.open("many.html")
    assert time.monotonic() - started < 20  # a bound for loaded machines; the bench measures
    assert 30 < output["element_count"] < 400
    told = ephemeral_contents([desk.states[-1]], messages_since_browser=1, sees_images=False)
    assert len(str(told[0]["content"])) < TEXT_CHARACTERS_MAX
    await desk.do("browser_scroll_to_text", text="Press 999")
    await desk.do("browser_input_text", index=desk.index('"Field 999"'), text="last")
    assert any('value="last"' in line for line in desk.lines)


async def test_redirects_without_end_end(desk: Desk) -> None:
    assert "redirects without end" in await desk.error("browser_navigate_to", url=f"{SITE}/loop")
    await desk.open("index.html")
    assert desk.title == "Start"


async def test_a_page_cannot_open_windows_without_end(desk: Desk) -> None:
    page = b"<button onclick='for (let n = 0; n < 60; n += 1) open(\"second.html?\" + n)'>Flood</button>"
    await desk.put("site/flood.html", page)
    await desk.open("flood.html")
    await desk.call("browser_click_element", index=desk.index("Flood"))
    tabs = desk.state["tabs"]
    assert isinstance(tabs, list)
    assert len(tabs) <= 20
    await desk.open("index.html")
    assert desk.title == "Start"
