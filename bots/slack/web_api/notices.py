"""Sends notices to users in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine

from bots.delivery.content import Notice
from bots.inbound.actions import Outcome, UserAction
from bots.slack.render.messages import RenderedMessage, render_content
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.posting import post_with_fallback
from core.domain.errors import SurfaceError
from core.domain.json import JsonObject
from core.failpoints import Failpoint
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

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

        `is_thread_open` is whether the thread has a reply. Slack shows ephemeral messages only in a thread that has
        one."""
        self._start(self._send(inbound, outcome, is_thread_open))

    def send_direct_message(self, user: str, outcome: Outcome | Awaitable[Outcome]) -> None:
        """Starts sending the outcome's notice, if it has one, to the person's direct messages. If the outcome is
        awaited, sends the notice after that."""
        self._start(self._send_directly(user, outcome))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = spawn(work, name="slack-notice")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_directly(self, user: str, work: Outcome | Awaitable[Outcome]) -> None:
        outcome = work if isinstance(work, Outcome) else await work
        if not outcome.notice:
            return
        try:
            body: JsonObject = {"channel": await self._client.open_direct_message(user), **NO_PREVIEWS}
            with NOTICE:
                await post_with_fallback(self._client, "chat.postMessage", body, _render(outcome))
        except SurfaceError as error:
            log.warning("slack: the notice %r was not sent: %s", outcome.notice, error)

    async def _send(self, inbound: UserAction, outcome: Outcome, is_thread_open: bool) -> None:
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
                await post_with_fallback(self._client, method, body, _render(outcome))
        except SurfaceError as error:
            log.warning("a notice could not be shown: %s", error)

    async def close(self) -> None:
        """Waits up to CLOSE_SECONDS_MAX for notices in progress."""
        if self._sending:
            _, late = await asyncio.wait(list(self._sending), timeout=CLOSE_SECONDS_MAX)
            await cancel(*late)


def _render(outcome: Outcome) -> RenderedMessage:
    return render_content(Notice(markdown=outcome.notice, commands=outcome.commands))
