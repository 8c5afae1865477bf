"""A Slack that does not take every block gets the same message in older ones, or in words."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bots.delivery.content import AnswerPart, Content, Notice, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.slack import limits
from bots.slack.app import SlackApp
from bots.slack.events.payload_fields import get_objects, get_text
from bots.slack.render.block_kit import blocks_to_mrkdwn, simplify_blocks
from core.domain.json import JsonObject
from core.domain.threads import Address
from simulator.slack.block_kit.message_rules import check_message_blocks
from tests.support.closing import close_after
from tests.support.web import serve_http

THREAD = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.000001")
ANSWER = AnswerPart(markdown="# Sales\n**Up** by 3 & [more](https://example.com/a?b=1&c=2) <!here>")
STEP = Task(call_id="c1", title="`ls`", state="done")
STATUS = RunStatus(run_id="r1", view=RunView(state="working", tasks=(STEP,), can_stop=True))
OLD = {"section", "divider", "image", "actions", "context", "input", "header", "rich_text"}


def is_old(body: JsonObject) -> str:
    kinds = {get_text(block, "type") for block in get_objects(body, "blocks")}
    return "" if kinds <= OLD else "invalid_blocks"


def takes_none(body: JsonObject) -> str:
    return "msg_blocks_too_long" if body.get("blocks") else ""


@asynccontextmanager
async def speaking(problem_of: Callable[[JsonObject], str], taken: list[JsonObject]) -> AsyncIterator[SlackApp]:
    """The app against a Slack that refuses what `problem_of` names a problem of."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/api/auth.test":
            return web.json_response({"ok": True, "team_id": "T1", "user_id": "U0", "bot_id": "B0"})
        body = await request.json()
        if code := problem_of(body):
            return web.json_response({"ok": False, "error": code})
        taken.append(body)
        return web.json_response({"ok": True, "ts": "1.000002", "channel": "C1"})

    async with serve_http(answer) as url, close_after(SlackApp(bot_token="xoxb-1", api_url=f"{url}/api/")) as app:
        await app.start()
        yield app


def takes_no_data_table(body: JsonObject) -> str:
    kinds = {get_text(block, "type") for block in get_objects(body, "blocks")}
    return "invalid_blocks" if "data_table" in kinds else ""


@pytest.mark.parametrize(
    ("problem_of", "kind", "row"),
    [(takes_no_data_table, "markdown", "| 2025 | 12 |"), (is_old, "rich_text", "2025  12")],
)
async def test_a_table_stays_a_table_where_its_block_is_not_known(
    problem_of: Callable[[JsonObject], str], kind: str, row: str
) -> None:
    taken: list[JsonObject] = []
    table = AnswerPart(markdown="Sales:\n\n| Year | Sales |\n|---|---|\n| 2025 | 12 |")
    async with speaking(problem_of, taken) as app:
        await app.surface.post(THREAD, table, delivery_id="d1")
    (body,) = taken
    (block,) = get_objects(body, "blocks")
    assert get_text(block, "type") == kind
    assert row in str(block)
    assert get_text(body, "metadata", "event_payload", "delivery_id") == "d1"


async def test_a_status_keeps_its_button_where_its_steps_are_not_known():
    taken: list[JsonObject] = []
    async with speaking(is_old, taken) as app:
        await app.surface.edit(THREAD, "1.000002", STATUS)
    (body,) = taken
    assert [get_text(block, "type") for block in get_objects(body, "blocks")] == ["section", "section", "actions"]
    assert "☑ ls" in str(body)


@pytest.mark.parametrize("content", [ANSWER, Notice(markdown="Look."), STATUS])
async def test_words_alone_are_what_is_left_where_no_block_is_taken(content: Content):
    taken: list[JsonObject] = []
    async with speaking(takes_none, taken) as app:
        await app.surface.post(THREAD, content, delivery_id="d1")
    (body,) = taken
    assert (body["blocks"], bool(get_text(body, "text"))) == ([], True)


@pytest.mark.parametrize("piece", ["word " * 20 + "\n", "x" * 7, "&", "a b&"])
def test_none_of_a_long_text_is_lost_where_its_block_is_not_known(piece: str):
    written = (piece * limits.ANSWER_MAX)[: limits.ANSWER_MAX if "&" not in piece else 2_500]
    sections = simplify_blocks([{"type": "markdown", "text": written}])
    check_message_blocks(list(sections))
    assert "".join(blocks_to_mrkdwn(sections).split()) == "".join(written.replace("&", "&amp;").split())
