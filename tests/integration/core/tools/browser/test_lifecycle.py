"""The browser's life: killed and started again, its profile kept over the end of its sandbox, told where it lacks."""

import asyncio
from dataclasses import replace

import pytest

from tests.integration.core.tools.browser.browser_stage import BrowserStage
from tests.support.sandboxes import run

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHROMIUMS = "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chrom*|*/chrome) echo ${p#/proc/};; esac; done"


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
