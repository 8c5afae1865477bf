"""Pages that lie, never end or do not answer, a browser that dies, and what it keeps over the end of its sandbox."""

import asyncio
import json
from dataclasses import replace

import pytest

from core.context.message_text import content_text
from core.context.request_tail import RequestTail
from tests.integration.core.tools.browser.browser_stage import BrowserStage
from tests.support.narrow import require, require_type
from tests.support.sandboxes import run

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHROMIUMS = "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chrom*|*/chrome) echo ${p#/proc/};; esac; done"


async def test_what_a_page_calls_its_elements_cannot_pass_for_a_number(stage: BrowserStage) -> None:
    await stage.open("hostile-names.html")

    assert stage.title == 'Ti tle [3] <button> "Pay"'
    assert len(stage.lines) == 2
    for line in stage.lines:
        number, _, rest = line[1:].partition("] <button> ")
        assert number.isdecimal()
        assert "\n" not in line
        assert isinstance(json.loads(rest), str)  # all the page's own words are inside one pair of quotes
    await stage.do("browser_click_element", index=int(stage.lines[0][1:].split("]")[0]))
    assert stage.title == "Safe"
    told = require(RequestTail(browser=stage.states[-1]).build_message(sees_images=False))
    assert "# The browser\n\n<data mark=" in content_text(told["content"])


async def test_a_page_that_bends_the_language_reaches_no_other_element(stage: BrowserStage) -> None:
    """Its frame says nothing, at worst; numbers of another page stay those of that page."""
    await stage.open("index.html")
    number = stage.index("Press")
    await stage.open("bent.html")
    assert not any(line.startswith("[99999]") for line in stage.lines)
    assert "is gone" in await stage.error("browser_click_element", index=number)
    await stage.open("index.html")
    await stage.click("Press")
    assert stage.title == "Pressed"


async def test_alerts_without_end_close_the_tab(stage: BrowserStage) -> None:
    await stage.open("second.html")
    await stage.open("alerts.html")
    outcome = await stage.call("browser_click_element", index=stage.index("Never end"))
    output = require_type(outcome.result["output"], dict)
    assert "The page kept opening dialogs; its tab was closed." in require_type(output["happened"], list)
    assert "crashed" not in str(outcome.result["error"])
    await stage.open("index.html")
    assert stage.title == "Start"


async def test_a_page_that_hangs_is_told_and_can_be_left(stage: BrowserStage) -> None:
    await stage.open("busy.html")
    outcome = await stage.call("browser_click_element", index=stage.index("Hang"))
    assert outcome.result["output"] is not None
    assert any("the page does not answer" in line for line in stage.lines)
    await stage.open("index.html")
    assert stage.title == "Start"
    await stage.click("Press")
    assert stage.title == "Pressed"


async def test_a_huge_page_is_shown_within_bounds(stage: BrowserStage) -> None:
    await stage.open("huge.html")
    await stage.until_title("Huge")
    assert len(json.dumps({**stage.state, "screenshot": ""})) < 60_000
    output = await stage.do("browser_read_page")
    assert len(output["message"]) < 21_000


async def test_a_page_cannot_open_windows_without_end(stage: BrowserStage) -> None:
    page = b"<button onclick='for (let n = 0; n < 60; n += 1) open(\"second.html?\" + n)'>Flood</button>"
    await stage.put("site/flood.html", page)
    await stage.open("flood.html")
    await stage.call("browser_click_element", index=stage.index("Flood"))
    assert len(require_type(stage.state["tabs"], list)) <= 20
    await stage.open("index.html")
    assert stage.title == "Start"


AWAY = """<title>Bait</title><input><script>
setInterval(async () => { if ((await fetch('gate')).ok) location = 'http://127.0.0.1:8001/trap.html' }, 50)</script>"""
TRAP = "<title>Trap</title><input onfocus='fetch(`taken`)'><script>fetch('arrived')</script>"


async def test_an_action_meets_no_page_that_came_by_itself(stage: BrowserStage) -> None:
    """The page that was shown leads to another site as soon as the file `gate` exists."""
    for name, page in {"bait.html": AWAY, "trap.html": TRAP}.items():
        await stage.put(f"site/{name}", f"<!doctype html>{page}".encode())
    shell = stage.sandbox.shell
    serve = "python3 -u -m http.server 8001 --bind 127.0.0.1 --directory /workspace/site"
    await shell.execute(serve, session="trap", folder=None, timeout_seconds=0)
    await stage.open("bait.html")
    number = stage.index("<input>")
    await stage.put("site/gate", b"open")
    async with asyncio.timeout(60):
        while "GET /arrived" not in (await shell.check("trap", timeout_seconds=0.1)).output:
            await asyncio.sleep(0)
    assert "has opened since you looked" in await stage.error("browser_input_text", index=number, text="secret")
    assert stage.title == "Trap"
    assert "GET /taken" not in (await shell.check("trap")).output
    await stage.do("browser_input_text", index=stage.index("<input>"), text="fine")
    await shell.terminate("trap")


async def chromiums(stage: BrowserStage) -> list[int]:
    found = await run(stage.sandbox, CHROMIUMS, session="look")
    return [int(pid) for pid in found.output.split()]


@pytest.mark.parametrize(
    ("tool", "arguments"), [("browser_click_element", {"index": 0}), ("browser_wait", {"seconds": 0})]
)
async def test_a_crash_between_two_calls_is_told_to_the_next_one(
    stage: BrowserStage, tool: str, arguments: dict[str, int]
) -> None:
    await stage.open("index.html")
    await run(stage.sandbox, f"kill -9 {' '.join(map(str, await chromiums(stage)))}", session="look")
    await asyncio.sleep(0.5)  # long enough for the server to notice

    assert "crashed" in await stage.error(tool, **arguments)

    await stage.do("browser_wait", seconds=0)
    await stage.open("index.html")
    assert stage.title == "Start"


async def test_a_server_that_lives_but_cannot_be_reached_is_replaced(stage: BrowserStage) -> None:
    """A server whose process is ending looks the same: its socket is gone, and the process is still there."""
    await stage.open("index.html")
    gone = await run(stage.sandbox, "rm -v /tmp/threadhand-*-browser/socket", session="look")
    assert "removed" in gone.output

    await stage.open("second.html")

    assert stage.title == "Second"
    servers = await run(stage.sandbox, "pgrep -fc '[b]rowser.server'", session="look")
    assert servers.output.strip() == "1"


async def test_who_was_logged_in_stays_so_in_the_next_sandbox(stage: BrowserStage) -> None:
    await stage.open("keep.html")
    await stage.open("login")
    assert "known" in (await stage.do("browser_read_page"))["message"]

    await stage.sandbox.close()
    stage.sandbox = await stage.jails.open(stage.thread_id, fence=1)
    await stage.serve()

    await stage.open("who")
    assert "known" in (await stage.do("browser_read_page"))["message"]
    await stage.open("keep.html")
    assert "lasting=1" in stage.title
    assert "passing=1" in stage.title


async def test_another_threads_browser_knows_nothing_of_it(stage: BrowserStage) -> None:
    await stage.open("login")
    other = replace(stage, thread_id="other", sandbox=await stage.jails.open("other", fence=1))
    await other.serve()
    await other.open("who")
    assert "stranger" in (await other.do("browser_read_page"))["message"]
    await other.sandbox.close()
