"""Streamed messages: who may read along, what they become, and when they end."""

from typing import Any

from slack_sdk.models.messages.chunk import MarkdownTextChunk, PlanUpdateChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from simulator.view import Markdown, TaskCard
from tests.integration.simulator.slack.conftest import seen
from tests.integration.simulator.slack.test_web_api import general


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
