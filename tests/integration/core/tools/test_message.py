"""ask, complete and web_browser_takeover: what ends a run, and with which files."""

from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image
from pydantic import JsonValue

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.threads import Reply
from core.ports import Sandbox
from core.tools.replies import NoReplyParams, no_reply
from core.tools.tool import ToolContext, ToolOutput
from tests.integration.core.tools.conftest import Bench
from tests.integration.core.tools.shared_bench import IN_MODULE_LOOP
from tests.integration.core.tools.shared_bench import bench as bench
from tests.integration.core.tools.shared_bench import shared_sandbox as shared_sandbox

pytestmark = IN_MODULE_LOOP


async def reply(bench: Bench, tool: str, **arguments: JsonValue) -> Reply:
    outcome = await bench.call(tool, **arguments)
    assert outcome.outcome == "completed", outcome.result
    assert outcome.reply is not None
    return outcome.reply


async def test_each_ends_the_run_in_its_own_way(bench: Bench) -> None:
    assert await reply(bench, "ask", text="Which?") == Reply(kind="ask", text="Which?")
    assert await reply(bench, "complete") == Reply(kind="answer", text="")
    assert await reply(bench, "complete", text="Done.") == Reply(kind="answer", text="Done.")
    assert await reply(bench, "web_browser_takeover", text="Log in.") == Reply(kind="takeover", text="Log in.")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["https://a.example/x,y", "Q2"], ("https://a.example/x,y", "Q2")),
        ('["https://a.example/x,y", "Q2"]', ("https://a.example/x,y", "Q2")),
        (" Q1 ,Q2, ", ("Q1", "Q2")),
        (",,", ()),
        (None, ()),
    ],
)
async def test_a_list_is_given_in_any_of_the_forms(bench: Bench, given: JsonValue, read: tuple[str, ...]) -> None:
    assert (await reply(bench, "ask", text="Which?", options=given)).options == read
    for name in ("Q1", "Q2"):
        await bench.put(name, b"")
    assert (await reply(bench, "complete", attachments=given)).attachments == read


CHART = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><rect width="200" height="100" fill="%s"/>%s</svg>'
)
ELSEWHERE = b'<image href="secret.png" width="200" height="100"/><script>document.documentElement.remove()</script>'


async def test_a_chart_comes_as_a_picture_too(bench: Bench) -> None:
    await bench.put("plan.SVG", CHART % (b"blue", b""))
    await bench.put("plan.png", b"drawn by the model")
    await bench.put("out/sales.png", b"not of this chart")
    for fill, pixel in ((b"red", (255, 0, 0)), (b"lime", (0, 255, 0))):  # the second, when people asked for a change
        await bench.put("out/sales.svg", CHART % (fill, ELSEWHERE))
        charts = ["/workspace/out/sales.svg", "plan.SVG", "plan.png", "out/sales.svg"]
        given = await reply(bench, "complete", attachments=[*charts])
        assert given.attachments == (*charts, "out/sales.svg.png")
        with Image.open(BytesIO(await bench.get("out/sales.svg.png"))) as picture:
            assert picture.size == (1600, 800)
            assert picture.convert("RGB").getpixel((800, 400)) == pixel
    assert await bench.get("plan.png") == b"drawn by the model"
    assert await bench.get("out/sales.png") == b"not of this chart"
    assert await bench.sessions() == []


@pytest.mark.parametrize(
    "chart", [b"<svg", b"", b'<svg viewBox="a b c d"/>', b'<svg viewBox="0 0 2 1"/>', CHART % (b"red", b"&unknown;")]
)
async def test_a_chart_that_cannot_be_drawn_goes_alone(bench: Bench, chart: bytes) -> None:
    await bench.put("a.svg", chart)
    await bench.put("a.svg.png", b"an older picture")
    await bench.put("b.svg", CHART % (b"red", b""))
    await bench.put("b.svg.png/c.txt", b"")
    await bench.put("good.svg", CHART % (b"red", b""))
    given = await reply(bench, "complete", attachments="a.svg,b.svg,good.svg")
    assert given.attachments == ("a.svg", "b.svg", "good.svg", "good.svg.png")


async def test_an_attachment_that_is_not_there_sends_nothing(bench: Bench) -> None:
    await bench.put("folder/a", b"")
    outcome = await bench.call("complete", text="Here.", attachments=["none.md", "folder", "../x", "folder/a"])
    assert outcome.reply is None
    assert outcome.result["error"] == (
        "Nothing was sent: none.md: There is no such file or folder; folder is not a"
        " file; ../x climbs with '..'; give a path relative to /workspace without it. list_files shows what there is."
        " Make the files first or leave them out, then call it again."
    )


async def test_without_a_sandbox_the_words_are_sent_all_the_same(bench: Bench) -> None:
    async def lost() -> Sandbox:
        raise SandboxUnavailable("There is no sandbox.")

    bench.context = ToolContext(thread_id="t", run_id="r", sandbox=lost)
    assert (await reply(bench, "ask", text="Which?", attachments="a.md")).attachments == ("a.md",)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("ask", {}, "text: Field required"),
        ("ask", {"text": ""}, "at least 1 character"),
        ("ask", {"text": "x", "options": [str(n) for n in range(501)]}, "at most 500"),
        ("ask", {"text": "x", "options": ["x", {"a": 1}]}, "valid string"),
        ("ask", {"text": "x", "attachments": [["a.md"]]}, "valid string"),
        ("ask", {"text": "x", "attachments": {"a": 1}}, "valid tuple"),
        ("complete", {"attachments": [f"{n}.md" for n in range(21)]}, "at most 20"),
        ("complete", {"attachments": "[" * 100_000}, "at most 4096 characters"),
        ("web_browser_takeover", {}, "text: Field required"),
    ],
)
async def test_wrong_arguments_end_nothing(
    bench: Bench, tool: str, arguments: dict[str, JsonValue], words: str
) -> None:
    outcome = await bench.call(tool, **arguments)
    assert outcome.reply is None
    assert words in str(outcome.result["error"])


async def test_silence_is_refused_to_people_who_addressed_the_agent() -> None:
    context = ToolContext(thread_id="t", run_id="r", sandbox=no_sandbox)
    silent = await no_reply.run(NoReplyParams(), context)
    assert isinstance(silent, ToolOutput)
    assert silent.reply == Reply(kind="silence", text="")
    with pytest.raises(ToolError, match="addressed you by name"):
        await no_reply.run(NoReplyParams(), replace(context, must_answer=lambda: True))


async def no_sandbox() -> Sandbox:
    raise AssertionError("not needed")
