"""What a person is told at once: in private as an ephemeral message, else in the thread."""

import asyncio
import logging

from bots.delivery.content import Notice
from bots.inbound.decide import Inbound, IncomingMessage, MessageDeleted, MessageEdited, Outcome
from bots.slack.render.blocks import draw
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.writing import write
from core.domain.errors import SurfaceError
from core.domain.messages import JsonObject
from core.domain.threads import Person
from core.failpoints import Failpoint
from core.tasks import spawn

CLOSE_SECONDS_MAX = 5.0
NOTICE = Failpoint("slack.notice")

log = logging.getLogger(__name__)


class Notices:
    """Sends beside the acknowledgement, which must not wait for it."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._sending: set[asyncio.Task[None]] = set()

    def show(self, inbound: Inbound, outcome: Outcome, *, is_thread_open: bool) -> None:
        """Starts to send the notice to the person, or into the thread.

        `is_thread_open`: somebody has replied. In a thread that is none yet Slack shows nothing ephemeral.
        """
        task = spawn(self._send(inbound, outcome, is_thread_open), name="slack-notice")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, inbound: Inbound, outcome: Outcome, is_thread_open: bool) -> None:
        drawing = draw(Notice(markdown=outcome.notice))
        address = inbound.address
        body: JsonObject = {"channel": address.channel_id}
        # Nobody else reads a direct message, and there the ephemeral kind would be gone after a reload.
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
                await write(self._client, method, body, drawing)
        except SurfaceError as error:
            log.warning("a notice could not be shown: %s", error)

    async def close(self) -> None:
        """Waits a moment for what is being sent."""
        if self._sending:
            _, late = await asyncio.wait(list(self._sending), timeout=CLOSE_SECONDS_MAX)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


def _person(inbound: Inbound) -> Person:
    if isinstance(inbound, IncomingMessage | MessageEdited | MessageDeleted):
        return inbound.author
    return inbound.person
