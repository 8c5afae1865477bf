"""A browser's server that lies: the host believes nothing that has not the right shape and size."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.domain.errors import ToolError
from core.ports import BrowserResult
from core.tasks import spawn
from sandbox.inside import protocol
from sandbox.inside.browser import protocol as packets
from tests.unit.sandbox.client.test_connection import Liar, close, make_liar

JPEG = b"\xff\xd8\xff\xe0 a picture"
STATE = {
    "url": "https://example.org/",
    "title": "Page",
    "tabs": [{"page_id": 0, "title": "Page", "url": "https://example.org/", "is_current": True}],
    "elements": ['[0] <button> "Press"'],
    "element_count": 1,
    "pixels_above": 0,
    "pixels_below": 10,
}


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    made = await make_liar()
    yield made
    await close(made)


async def answered(liar: Liar, *pieces: bytes, ends: bool = False) -> BrowserResult:
    """What the host makes of these bytes as the answer to an action."""
    acting = spawn(liar.sandbox.browser.act("look", {}, timeout_seconds=30), name="act")
    kind, channel, _ = await liar.take()
    assert kind == protocol.OPEN
    for piece in pieces:
        liar.send(protocol.DATA, channel, piece)
    if ends:
        liar.answer({}, channel=channel)
    return await acting


async def test_a_right_answer_is_taken_whole(liar: Liar) -> None:
    whole = packets.encode_message({"said": "Done.", "happened": ["a tab"], "state": STATE}, JPEG)
    seen = await answered(liar, whole[:7], whole[7:40], whole[40:])
    assert (seen.said, seen.error, seen.happened) == ("Done.", None, ("a tab",))
    assert seen.state is not None
    assert (seen.state.title, seen.state.pixels_below, seen.state.picture) == ("Page", 10, JPEG)


async def test_what_is_no_jpeg_is_no_picture(liar: Liar) -> None:
    seen = await answered(liar, packets.encode_message({"state": STATE}, b"<svg onload=alert(1)>"))
    assert seen.state is not None
    assert seen.state.picture == b""


@pytest.mark.parametrize(
    "change",
    [
        {"url": 7},
        {"title": "x" * 5000},
        {"tabs": "none"},
        {"tabs": [{}]},
        {"tabs": [STATE["tabs"][0]] * 60},
        {"elements": ["x"] * 501},
        {"elements": [{"number": 1}]},
        {"element_count": True},
        {"pixels_above": 1e300},
    ],
)
async def test_an_answer_of_another_shape_ends_the_browser(liar: Liar, change: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="starts a fresh one"):
        await answered(liar, packets.encode_message({"state": {**STATE, **change}}))


@pytest.mark.parametrize(
    "content",
    [
        packets.HEAD.pack(1 << 30, 0),
        packets.HEAD.pack(2, 1 << 30),
        packets.HEAD.pack(2, 0) + b"[]",
        packets.HEAD.pack(3, 0) + b"{]}",
        packets.HEAD.pack(20_000, 0) + b"[" * 20_000,
    ],
)
async def test_packets_that_break_the_rules_end_the_browser(liar: Liar, content: bytes) -> None:
    with pytest.raises(ToolError, match="starts a fresh one"):
        await answered(liar, content)


async def test_an_end_in_the_middle_is_told(liar: Liar) -> None:
    with pytest.raises(ToolError, match="ended during the call"):
        await answered(liar, packets.encode_message({"state": STATE})[:20], ends=True)


async def test_a_refusal_of_the_program_inside_is_the_models(liar: Liar) -> None:
    acting = spawn(liar.sandbox.browser.act("look", {}, timeout_seconds=30), name="act")
    _, channel, _ = await liar.take()
    error = {"code": "refused", "message": "The browser does not start: no fonts."}
    liar.answer(error, protocol.ERROR, channel)
    with pytest.raises(ToolError, match="no fonts"):
        await acting


async def test_silence_is_failed_at(liar: Liar) -> None:
    with pytest.raises(ToolError, match="did not answer and was ended"):
        async with asyncio.timeout(30):
            await liar.sandbox.browser.act("look", {}, timeout_seconds=0.2)
