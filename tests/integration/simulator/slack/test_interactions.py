"""What may follow a press of a button, and who reads a streamed message, with the real bolt on the other side."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from slack_sdk.models.messages.chunk import MarkdownTextChunk, PlanUpdateChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator
from simulator.view import Markdown, TaskCard
from tests.integration.simulator.slack.conftest import BoltApp, seen
from tests.integration.simulator.slack.test_web_api import code, general
from tests.unit.simulator.slack.test_blocks import button, plain

ASK = {"type": "actions", "block_id": "ask", "elements": [button(action_id="yes", value="1", style="primary")]}
FORM = {
    "type": "modal",
    "title": plain("Question"),
    "submit": plain("Send"),
    "blocks": [{"type": "input", "label": plain("Why?"), "element": {"type": "plain_text_input", "action_id": "text"}}],
}


async def asked(slack: SlackSimulator, client: AsyncWebClient) -> str:
    posted = await client.chat_postMessage(channel=general(slack), text="ask", blocks=[ASK])
    return str(posted["ts"])


def catching(bot: BoltApp) -> list[dict[str, Any]]:
    """Returns the presses of the button. The list grows."""
    presses: list[dict[str, Any]] = []

    async def take(ack: Callable[[], Awaitable[None]], body: dict[str, Any]) -> None:
        await ack()
        presses.append(body)

    bot.app.action("yes")(take)
    return presses


async def test_an_app_that_does_not_answer_is_waited_for_in_vain() -> None:
    settings = SlackSettings(rate_scale=0, ack_seconds=0.1)
    async with SlackSimulator(settings=settings) as slack, BoltApp(slack) as bot:
        ts = await asked(slack, bot.client)
        with pytest.raises(TimeoutError):
            await slack.press("bob", general(slack), ts, "ask/yes")


async def test_a_response_url_answers_five_times(slack: SlackSimulator, bot: BoltApp) -> None:
    caught, ts = catching(bot), await asked(slack, bot.client)
    await slack.press("bob", general(slack), ts, "ask/yes")
    bodies = [
        {"text": "only you"},
        {"text": "all", "response_type": "in_channel"},
        {"text": "new", "replace_original": True},
        {"text": "", "colour": "red"},
        {"delete_original": True},
        {"text": "too many"},
    ]
    answers: list[tuple[int, str]] = []
    async with aiohttp.ClientSession() as session:
        for body in bodies:
            async with session.post(caught[0]["response_url"], json=body) as response:
                answers.append((response.status, (await response.json()).get("error", "")))
    assert answers == [(200, "")] * 3 + [(400, "invalid_arguments"), (200, ""), (404, "used_url")]
    messages = seen(slack).messages
    assert [(message.elements[0], message.visible_to) for message in messages] == [
        (messages[0].elements[0], "bob"),
        (messages[1].elements[0], None),
    ]


async def test_a_trigger_opens_one_form_and_not_for_long(slack: SlackSimulator, bot: BoltApp) -> None:
    caught, ts = catching(bot), await asked(slack, bot.client)
    await slack.press("bob", general(slack), ts, "ask/yes")
    trigger_id = caught[0]["trigger_id"]
    view: Any = bot.client.views_open
    broken = {**FORM, "title": plain("x" * 25)}
    answer = view(trigger_id=trigger_id, view=broken)
    assert await code(answer) == "invalid_arguments"
    await view(trigger_id=trigger_id, view=FORM)
    assert await code(view(trigger_id=trigger_id, view=FORM)) == "exchanged_trigger_id"
    assert await code(view(trigger_id="1.2.3", view=FORM)) == "invalid_trigger_id"
    slack.misbehave("expire_trigger")
    await slack.press("bob", general(slack), ts, "ask/yes")
    late = caught[1]["trigger_id"]
    assert await code(view(trigger_id=late, view=FORM)) == "expired_trigger_id"


async def started(slack: SlackSimulator, client: AsyncWebClient, **more: Any) -> tuple[str, str]:
    root = await slack.say("alice", "general", "work")
    answer = await client.chat_startStream(
        channel=general(slack),
        thread_ts=root,
        recipient_user_id=slack.member("alice").user_id,
        recipient_team_id=slack.workspace.team_id,
        **more,
    )
    return root, str(answer["ts"])


async def test_a_stream_grows_and_ends(slack: SlackSimulator, client: AsyncWebClient) -> None:
    root, ts = await started(slack, client, task_display_mode="plan")
    where = {"channel": general(slack), "ts": ts}
    await client.chat_appendStream(
        **where, chunks=[PlanUpdateChunk(title="Plan"), TaskUpdateChunk(id="1", title="Read", status="in_progress")]
    )
    await client.chat_appendStream(
        **where,
        chunks=[
            TaskUpdateChunk(id="1", title="Read", status="complete", details="3 rows"),
            MarkdownTextChunk(text="**a"),
            MarkdownTextChunk(text="b**"),
        ],
    )
    await client.chat_stopStream(**where, blocks=[{"type": "divider"}])
    elements = seen(slack).threads[0].messages[1].elements
    assert elements[:3] == (
        Markdown(text="Plan", flavour="plain"),
        TaskCard(title="Read", status="complete", detail="3 rows"),
        Markdown(text="**ab**", flavour="markdown"),
    )
    assert len(elements) == 4
    assert slack.workspace.sessions[general(slack), root].status == "active"
