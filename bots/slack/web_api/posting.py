"""Posting rendered messages with simpler blocks or plain text if Slack refuses them, notices to people, streams."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Literal

from bots.delivery.content import AnswerPart, Notice
from bots.delivery.markdown import truncate
from bots.inbound.actions import Outcome, UserAction
from bots.slack import limits
from bots.slack.events.payload_fields import get_text
from bots.slack.render.block_kit import blocks_to_mrkdwn, simplify_blocks
from bots.slack.render.messages import RenderedMessage, render_content
from bots.slack.render.mrkdwn import neutralize_mentions
from bots.slack.web_api.client import ClientFor, SlackClient
from core.domain.errors import SurfaceError, SurfaceRefused, SurfaceUnclear
from core.domain.messages import JsonObject
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import Precondition
from core.stores import Delivery
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

BLOCK_ERRORS = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"})


async def post_with_fallback(
    client: SlackClient,
    method: str,
    body: JsonObject,
    drawing: RenderedMessage,
    *,
    precondition: Precondition | None = None,
) -> JsonObject:
    """Posts a rendered message, in a simpler form if Slack refuses its blocks. Raises as SlackClient.write does.

    Slack does not post a refused message, so the simpler form is not a duplicate."""
    plain, simple = drawing.plain_blocks, simplify_blocks(drawing.plain_blocks)
    forms = (drawing.blocks, plain) if plain != drawing.blocks else (plain,)
    for blocks in (*forms, simple):
        whole: JsonObject = {**body, "text": drawing.text, "blocks": list(blocks)}
        try:
            return await client.write(method, whole, precondition=precondition)
        except SurfaceRefused as refusal:
            if refusal.code not in BLOCK_ERRORS:
                raise
            log.warning("slack: the blocks of a message were refused: %s", refusal.code)
    said = truncate(blocks_to_mrkdwn(simple) or drawing.text, limits.PLAIN_MESSAGE_MAX)
    in_words: JsonObject = {**body, "text": said, "blocks": []}
    return await client.write(method, in_words, precondition=precondition)


NO_PREVIEWS: JsonObject = {"unfurl_links": False, "unfurl_media": False}


def notice_body(channel: str, markdown: str) -> JsonObject:
    """Returns the body of a message that the bot itself writes."""
    drawing = render_content(Notice(markdown=markdown))
    return {"channel": channel, "text": drawing.text, "blocks": list(drawing.blocks), **NO_PREVIEWS}


CLOSE_SECONDS_MAX = 5.0
NOTICE = Failpoint("slack.notice")


class NoticeSender:
    """Sends notices in the background, so that the acknowledgement does not wait for them."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, inbound: UserAction, outcome: Outcome, *, is_thread_open: bool) -> None:
        """Starts sending the outcome's notice, either only to the person or into the thread.

        `is_thread_open`: the thread has a reply. Slack shows ephemeral messages only in a thread that has one."""
        self._start(self._send(inbound, outcome, is_thread_open))

    def send_directly(self, user: str, sentence: str) -> None:
        """Starts sending the sentence to the person's direct messages."""
        self._start(self._send_directly(user, sentence))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = spawn(work, name="slack-notice")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_directly(self, user: str, sentence: str) -> None:
        try:
            channel = await self._client.open_direct(user)
            await self._client.write("chat.postMessage", {"channel": channel, "text": sentence})
        except SurfaceError as error:
            log.warning("slack: not told %r: %s", sentence, error)

    async def _send(self, inbound: UserAction, outcome: Outcome, is_thread_open: bool) -> None:
        drawing = render_content(Notice(markdown=outcome.notice, commands=outcome.commands))
        address = inbound.address
        body: JsonObject = {"channel": address.channel_id}
        # A direct message is private anyway, and an ephemeral message disappears after a reload.
        is_ephemeral = outcome.is_private and not address.channel_id.startswith("D")
        if is_thread_open or not is_ephemeral:
            body["thread_ts"] = address.thread_key
        if is_ephemeral:
            method, body = "chat.postEphemeral", {**body, "user": inbound.person.person_id}
        else:
            method, body = "chat.postMessage", body | NO_PREVIEWS
        try:
            with NOTICE:
                await post_with_fallback(self._client, method, body, drawing)
        except SurfaceError as error:
            log.warning("a notice could not be shown: %s", error)

    async def close(self) -> None:
        """Waits up to CLOSE_SECONDS_MAX for notices in progress."""
        if self._sending:
            _, late = await asyncio.wait(list(self._sending), timeout=CLOSE_SECONDS_MAX)
            for task in late:
                await cancel(task)


START_STREAM = "chat.startStream"
START = Failpoint("slack.start_stream")
APPEND = Failpoint("slack.append_stream")
FINISH = Failpoint("slack.finish_stream")
_UNAVAILABLE = frozenset({"channel_type_not_supported", "feature_not_enabled", "method_deprecated", "unknown_method"})
"""Refusals after which this process starts no more streams in the workspace."""


class SlackStreams:
    """Implements AnswerStreams.

    Slack accepts no metadata with chat.startStream, so a task named after the delivery identifies the message until the
    answer replaces it (docs.slack.dev, chat.startStream)."""

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
            with suppress(SurfaceRefused):  # it has ended already: by itself, or before a crash
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
