"""The browser's life: killed and started again, its profile kept over the end of its sandbox, told where it lacks."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.errors import ToolError
from sandbox.local.provider import LocalSandboxProvider
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.integration.core.tools.browser.browser_stage import SITE, BrowserStage
from tests.support.sandboxes import reachable_folder, run

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHROMIUMS = "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chrom*|*/chrome) echo ${p#/proc/};; esac; done"


async def chromiums(stage: BrowserStage) -> list[int]:
    found = await run(stage.sandbox, CHROMIUMS, session="look")
    return [int(pid) for pid in found.output.split()]


async def test_a_crash_of_the_browser_is_one_error_and_a_restart(stage: BrowserStage) -> None:
    await stage.open("index.html")
    await run(stage.sandbox, f"kill -9 {' '.join(map(str, await chromiums(stage)))}", session="look")

    said = await stage.error("browser_click_element", index=0)

    assert "crashed" in said
    assert "Open the page again" in said
    await stage.open("index.html")
    assert stage.title == "Start"


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


async def test_a_crash_of_the_server_is_one_error_and_a_restart(stage: BrowserStage) -> None:
    await stage.open("index.html")
    await run(stage.sandbox, "pkill -9 -f browser.server", session="look")

    outcome = await stage.call("browser_wait", seconds=0)
    if outcome.outcome != "completed":
        assert "starts a fresh one" in str(outcome.result["error"])

    await stage.open("index.html")
    assert stage.title == "Start"
    assert len({*await chromiums(stage)}) > 0


async def test_a_server_that_lives_but_cannot_be_reached_is_replaced(stage: BrowserStage) -> None:
    """A dying process closes its socket before it counts as dead; without its socket it looks the same for longer."""
    await stage.open("index.html")
    gone = await run(stage.sandbox, "rm -v /tmp/threadhand-*-browser/socket", session="look")
    assert "removed" in gone.output

    await stage.open("second.html")

    assert stage.title == "Second"
    servers = await run(stage.sandbox, "pgrep -fc '[b]rowser.server'", session="look")
    assert servers.output.strip() == "1"


async def test_a_crashed_page_is_told_and_the_browser_goes_on(stage: BrowserStage) -> None:
    await stage.open("second.html")
    outcome = await stage.call("browser_navigate_to", url="chrome://crash")
    assert outcome.outcome == "failed"
    await run(stage.sandbox, "pkill -9 -f type=renderer", session="look")
    await stage.call("browser_wait", seconds=0)
    await stage.open("index.html")
    assert stage.title == "Start"


async def test_a_stop_of_commands_leaves_the_browser(stage: BrowserStage) -> None:
    await stage.open("index.html")
    before = await chromiums(stage)
    await stage.sandbox.interrupt()
    await stage.serve()
    await stage.do("browser_wait", seconds=0)
    assert stage.title == "Start"
    assert set(before) & set(await chromiums(stage))


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


async def test_a_sandbox_without_a_browser_says_so() -> None:
    async with reachable_folder() as folder:
        processes = UnsafeProcessProvider(folder)
        sandbox = await processes.open("thread", fence=1)
        with pytest.raises(ToolError, match="This sandbox has no browser"):
            await sandbox.browser.act("look", {}, timeout_seconds=30)
        await processes.close()


async def test_an_answer_that_never_comes_ends_the_browser(stage: BrowserStage) -> None:
    await stage.open("index.html")
    with pytest.raises(ToolError, match="did not answer and was ended"):
        await stage.sandbox.browser.act("wait", {"seconds": 50}, timeout_seconds=1)
    await stage.open("index.html")
    assert stage.title == "Start"


async def test_without_a_toolbox_the_lack_is_told(stage: BrowserStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable_folder() as folder:
        monkeypatch.setattr("sandbox.local.toolbox.REPOSITORY", folder)
        monkeypatch.setattr("sandbox.local.toolbox.SHARED_FOLDER", folder)
        jails = LocalSandboxProvider(folder / "jails")
        assert (await jails.probe()).ok
        assert jails.browser_unavailable_reason.endswith("Run: scripts/setup --toolbox")
        await jails.close()


async def test_a_site_is_shown_without_any_network(stage: BrowserStage) -> None:
    assert (await stage.open("index.html"))["url"].startswith(SITE)
    devices = await run(stage.sandbox, "cat /proc/net/dev | grep -c :", session="look")
    assert devices.output.strip() == "1"
