"""Posting rendered messages, with simpler blocks or plain text if Slack refuses them, and notices to people."""

import asyncio
import logging
from collections.abc import Sequence

from bots.delivery.content import Notice
from bots.inbound.actions import IncomingMessage, MessageDeleted, MessageEdited, Outcome, UserAction
from bots.slack import limits
from bots.slack.render.block_kit import blocks_to_mrkdwn, simplify_blocks, truncate
from bots.slack.render.messages import RenderedMessage, render_content
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.messages import JsonObject
from core.domain.threads import Person
from core.failpoints import Failpoint
from core.ports import Precondition
from core.tasks import spawn

log = logging.getLogger(__name__)

_BLOCK_ERRORS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"}
)


async def post_with_fallback(
    client: SlackClient,
    method: str,
    body: JsonObject,
    drawing: RenderedMessage,
    *,
    precondition: Precondition | None = None,
) -> JsonObject:
    """Posts a rendered message, in a simpler form if Slack refuses its blocks. Raises as SlackClient.write does.

    Slack does not post a refused message, so the simpler form is not a duplicate.
    """
    blocks: Sequence[JsonObject] = drawing.blocks
    for _ in ("as drawn", "plainer"):
        whole: JsonObject = {**body, "text": drawing.text, "blocks": list(blocks)}
        try:
            return await client.write(method, whole, precondition=precondition)
        except SurfaceRefused as refusal:
            if refusal.code not in _BLOCK_ERRORS:
                raise
            log.warning("slack: the blocks of a message were refused: %s", refusal.code)
            blocks = simplify_blocks(blocks)
    said = truncate(blocks_to_mrkdwn(blocks) or drawing.text, limits.PLAIN_MESSAGE_MAX)
    in_words: JsonObject = {**body, "text": said, "blocks": []}
    return await client.write(method, in_words, precondition=precondition)


CLOSE_SECONDS_MAX = 5.0
NOTICE = Failpoint("slack.notice")


class NoticeSender:
    """Sends notices in the background, so that the acknowledgement does not wait for them."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, inbound: UserAction, outcome: Outcome, *, is_thread_open: bool) -> None:
        """Starts sending the outcome's notice, either only to the person or into the thread.

        `is_thread_open`: the thread has a reply. Slack shows ephemeral messages only in a thread that has one.
        """
        task = spawn(self._send(inbound, outcome, is_thread_open), name="slack-notice")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, inbound: UserAction, outcome: Outcome, is_thread_open: bool) -> None:
        drawing = render_content(Notice(markdown=outcome.notice))
        address = inbound.address
        body: JsonObject = {"channel": address.channel_id}
        # A direct message is private anyway, and an ephemeral message disappears after a reload.
        is_ephemeral = outcome.is_private and not address.channel_id.startswith("D")
        if is_thread_open or not is_ephemeral:
            body["thread_ts"] = address.thread_key
        if is_ephemeral:
            method, body = "chat.postEphemeral", {**body, "user": _person(inbound).person_id}
        else:
            method, body = (
                "chat.postMessage",
                {**body, "unfurl_links": False, "unfurl_media": False},
            )
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
                task.cancel()
            if late:
                await asyncio.wait(late)


def _person(inbound: UserAction) -> Person:
    if isinstance(inbound, IncomingMessage | MessageEdited | MessageDeleted):
        return inbound.author
    return inbound.person
