"""Answers that users see while the model writes them."""

from contextlib import suppress
from typing import Literal

from bots.delivery.content import AnswerPart
from bots.slack.events.payload_fields import get_text
from bots.slack.render.messages import render_content
from bots.slack.render.mrkdwn import neutralize_mentions
from bots.slack.web_api.client import ClientFor
from bots.slack.web_api.posting import post_with_fallback
from core.domain.errors import SurfaceRefused, SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import Precondition
from core.stores import Delivery

START_STREAM = "chat.startStream"
START = Failpoint("slack.start_stream")
APPEND = Failpoint("slack.append_stream")
FINISH = Failpoint("slack.finish_stream")
_UNAVAILABLE = frozenset({"channel_type_not_supported", "feature_not_enabled", "method_deprecated", "unknown_method"})
"""Refusals after which this process starts no more streams in the workspace."""


class SlackStreams:
    """Implements AnswerStreams.

    Slack accepts no metadata in chat.startStream, so a task whose id is the delivery id identifies the message until
    the answer replaces the task (docs.slack.dev, chat.startStream)."""

    def __init__(self, client_for: ClientFor) -> None:
        self._client_for = client_for

    async def start(self, address: Address, *, delivery_id: str, precondition: Precondition) -> str:
        body: JsonObject = {
            "channel": address.channel_id,
            "thread_ts": address.thread_key,
            "chunks": [_task(delivery_id, "in_progress")],
        }
        client = await self._client_for(address)
        try:
            with START:
                answer = await client.write(START_STREAM, body, precondition=precondition)
        except SurfaceRefused as refused:
            if refused.code in _UNAVAILABLE:
                client.unavailable_methods.add(START_STREAM)
            raise
        if not (ts := get_text(answer, "ts")):
            raise SurfaceUnclear("Slack's answer has no ts of the stream")
        return ts

    async def append(self, address: Address, stream: Delivery, markdown: str, *, precondition: Precondition) -> None:
        text: JsonObject = {"type": "markdown_text", "text": neutralize_mentions(markdown)}
        chunk = text if markdown else _task(stream.delivery_id, "in_progress")
        body: JsonObject = {"channel": address.channel_id, "ts": stream.message_ref or "", "chunks": [chunk]}
        client = await self._client_for(address)
        with APPEND:
            await client.write("chat.appendStream", body, precondition=precondition)

    async def finish(
        self, address: Address, stream: Delivery, content: AnswerPart | None, *, precondition: Precondition
    ) -> None:
        message: JsonObject = {"channel": address.channel_id, "ts": stream.message_ref or ""}
        last: JsonObject = {**message, "chunks": [_task(stream.delivery_id, "complete")]}
        client = await self._client_for(address)
        with FINISH:
            with suppress(SurfaceRefused):  # the stream has ended already: by itself, or before a crash
                await client.write("chat.stopStream", last, precondition=precondition)
            if content is None:
                return
            drawing = render_content(content)
            try:
                await post_with_fallback(client, "chat.update", message, drawing, precondition=precondition)
            except SurfaceRefused:
                with suppress(SurfaceRefused):
                    await client.write("chat.delete", message, precondition=precondition)
                raise


def _task(delivery_id: str, status: Literal["in_progress", "complete"]) -> JsonObject:
    return {"type": "task_update", "id": delivery_id, "title": "Writing", "status": status}
