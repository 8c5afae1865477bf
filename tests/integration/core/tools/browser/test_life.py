"""The browser's life: killed and started again, its profile kept over the end of its sandbox, told where it lacks."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.errors import ToolError
from sandbox.local.provider import LocalSandboxProvider
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.integration.core.tools.browser.desk import SITE, Desk
from tests.integration.sandbox.providers import reachable_folder, run

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHROMIUMS = "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chrom*|*/chrome) echo ${p#/proc/};; esac; done"


async def chromiums(desk: Desk) -> list[int]:
    found = await run(desk.sandbox, CHROMIUMS, session="look")
    return [int(pid) for pid in found.output.split()]


@pytest.mark.slow
async def test_a_crash_of_the_browser_is_one_error_and_a_restart(desk: Desk) -> None:
    await desk.open("index.html")
    await run(desk.sandbox, f"kill -9 {' '.join(map(str, await chromiums(desk)))}", session="look")

    said = await desk.error("browser_click_element", index=0)

    assert "crashed" in said
    assert "Open the page again" in said
    await desk.open("index.html")
    assert desk.title == "Start"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("browser_click_element", {"index": 0}), ("browser_wait", {"seconds": 0})],
)
async def test_a_crash_between_two_calls_is_told_to_the_next_one(
    desk: Desk, tool: str, arguments: dict[str, int]
) -> None:
    await desk.open("index.html")
    await run(desk.sandbox, f"kill -9 {' '.join(map(str, await chromiums(desk)))}", session="look")
    await asyncio.sleep(0.5)  # long enough for the server to notice

    assert "crashed" in await desk.error(tool, **arguments)

    await desk.do("browser_wait", seconds=0)
    await desk.open("index.html")
    assert desk.title == "Start"


@pytest.mark.slow
async def test_a_crash_of_the_server_is_one_error_and_a_restart(desk: Desk) -> None:
    await desk.open("index.html")
    await run(desk.sandbox, "pkill -9 -f browser.server", session="look")

    outcome = await desk.call("browser_wait", seconds=0)
    if outcome.outcome != "completed":
        assert "starts a fresh one" in str(outcome.result["error"])

    await desk.open("index.html")
    assert desk.title == "Start"
    assert len({*await chromiums(desk)}) > 0


@pytest.mark.slow
async def test_a_server_that_lives_but_cannot_be_reached_is_replaced(desk: Desk) -> None:
    """A dying process closes its socket before it counts as dead; without its socket it looks the same for longer."""
    await desk.open("index.html")
    gone = await run(desk.sandbox, "rm -v /tmp/threadhand-*-browser/socket", session="look")
    assert "removed" in gone.output

    await desk.open("second.html")

    assert desk.title == "Second"
    servers = await run(desk.sandbox, "pgrep -fc '[b]rowser.server'", session="look")
    assert servers.output.strip() == "1"


async def test_a_crashed_page_is_told_and_the_browser_goes_on(desk: Desk) -> None:
    await desk.open("second.html")
    outcome = await desk.call("browser_navigate_to", url="chrome://crash")
    assert outcome.outcome == "failed"
    await run(desk.sandbox, "pkill -9 -f type=renderer", session="look")
    await desk.call("browser_wait", seconds=0)
    await desk.open("index.html")
    assert desk.title == "Start"


async def test_a_stop_of_commands_leaves_the_browser(desk: Desk) -> None:
    await desk.open("index.html")
    before = await chromiums(desk)
    await desk.sandbox.interrupt()
    await desk.serve()
    await desk.do("browser_wait", seconds=0)
    assert desk.title == "Start"
    assert set(before) & set(await chromiums(desk))


@pytest.mark.slow
async def test_who_was_logged_in_stays_so_in_the_next_sandbox(desk: Desk) -> None:
    await desk.open("keep.html")
    await desk.open("login")
    assert "known" in (await desk.do("browser_read_page"))["message"]

    await desk.sandbox.close()
    desk.sandbox = await desk.jails.open(desk.thread_id, fence=1)
    await desk.serve()

    await desk.open("who")
    assert "known" in (await desk.do("browser_read_page"))["message"]
    await desk.open("keep.html")
    assert "lasting=1" in desk.title
    assert "passing=1" in desk.title


@pytest.mark.slow
async def test_another_threads_browser_knows_nothing_of_it(desk: Desk) -> None:
    await desk.open("login")
    other = replace(desk, thread_id="other", sandbox=await desk.jails.open("other", fence=1))
    await other.serve()
    await other.open("who")
    assert "stranger" in (await other.do("browser_read_page"))["message"]
    await other.sandbox.close()


async def test_a_sandbox_without_a_browser_says_so() -> None:
    async with reachable_folder() as folder:
        processes = UnsafeProcessProvider(folder)
        sandbox = await processes.open("thread", fence=1)
        with pytest.raises(ToolError, match="This sandbox has no browser"):
            await sandbox.browser.act("look", {}, timeout_seconds=20)
        await processes.close()


@pytest.mark.slow
async def test_an_answer_that_never_comes_ends_the_browser(desk: Desk) -> None:
    await desk.open("index.html")
    with pytest.raises(ToolError, match="did not answer and was ended"):
        await desk.sandbox.browser.act("wait", {"seconds": 50}, timeout_seconds=1)
    await desk.open("index.html")
    assert desk.title == "Start"


async def test_without_a_toolbox_the_lack_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reachable_folder() as folder:
        monkeypatch.setattr("sandbox.local.programs.REPOSITORY", folder)
        monkeypatch.setattr("sandbox.local.programs.SHARED_FOLDER", folder)
        jails = LocalSandboxProvider(folder / "jails")
        assert (await jails.probe()).ok
        assert jails.browser_unavailable_reason.endswith("Run: scripts/setup --toolbox")
        await jails.close()


async def test_a_site_is_shown_without_any_network(desk: Desk) -> None:
    assert (await desk.open("index.html"))["url"].startswith(SITE)
    devices = await run(desk.sandbox, "cat /proc/net/dev | grep -c :", session="look")
    assert devices.output.strip() == "1"
