"""The ChatSurface of one Slack workspace: posts, edits, uploads, reactions and the busy status."""

from contextlib import AbstractAsyncContextManager

from bots.delivery.content import Content
from bots.slack import limits
from bots.slack.events.payload import get_object, get_objects, get_text
from bots.slack.render.messages import render_content
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.posting import post_with_fallback
from bots.slack.web_api.presence import BusyStatus, Reactions
from bots.slack.web_api.uploads import FileUploads, delivery_block_id
from core.domain.errors import SurfaceUnclear
from core.domain.messages import JsonObject
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import OutgoingFile, Precondition, Reaction

METADATA_EVENT = "threadhand_delivery"
POST = Failpoint("slack.post")
EDIT = Failpoint("slack.edit")
UPLOAD = Failpoint("slack.upload")
REACT = Failpoint("slack.react")
FIND = Failpoint("slack.find")


class SlackSurface:
    """Implements ChatSurface and ChatPresence for one workspace. Message ids are Slack's `ts` values."""

    platform = "slack"
    answer_limit: int = limits.ANSWER_MAX
    file_bytes_max: int = limits.FILE_BYTES_MAX
    edit_interval_seconds: float = limits.EDIT_INTERVAL_SECONDS

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._uploads = FileUploads(client)
        self._reactions = Reactions(client)
        self._presence = BusyStatus(client)

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        body: JsonObject = {
            "channel": address.channel_id,
            "thread_ts": address.thread_key,
            "metadata": {
                "event_type": METADATA_EVENT,
                "event_payload": {"delivery_id": delivery_id},
            },
            "unfurl_links": False,
            "unfurl_media": False,
        }
        with POST:
            answer = await post_with_fallback(
                self._client,
                "chat.postMessage",
                body,
                render_content(content),
                precondition=precondition,
            )
        if not (ts := get_text(answer, "ts")):
            raise SurfaceUnclear("Slack's answer has no ts of the posted message")
        return ts

    async def edit(
        self,
        address: Address,
        message_ref: str,
        content: Content,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        body: JsonObject = {"channel": address.channel_id, "ts": message_ref}
        with EDIT:
            await post_with_fallback(
                self._client,
                "chat.update",
                body,
                render_content(content),
                precondition=precondition,
            )

    async def upload(
        self,
        address: Address,
        file: OutgoingFile,
        *,
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        with UPLOAD:
            return await self._uploads.upload(
                address, file, delivery_id=delivery_id, precondition=precondition
            )

    async def find(self, address: Address, delivery_id: str) -> str | None:
        cursor = ""
        while True:
            parameters: dict[str, str | int | bool] = {
                "channel": address.channel_id,
                "ts": address.thread_key,
                "include_all_metadata": True,
                "limit": limits.THREAD_PAGE_MAX,
            }
            if cursor:
                parameters["cursor"] = cursor
            with FIND:
                page = await self._client.read("conversations.replies", parameters)
            for message in get_objects(page, "messages"):
                if self._carries(message, delivery_id):
                    return get_text(message, "ts")
            cursor = get_text(page, "response_metadata", "next_cursor")
            if not cursor:
                return None

    def _carries(self, message: JsonObject, delivery_id: str) -> bool:
        metadata = get_object(message, "metadata")
        if (
            get_text(metadata, "event_type") == METADATA_EVENT
            and get_text(metadata, "event_payload", "delivery_id") == delivery_id
        ):
            return True
        block_id = delivery_block_id(delivery_id)
        if any(get_text(block, "block_id") == block_id for block in get_objects(message, "blocks")):
            return True
        file_id = self._uploads.uploaded_file_id(delivery_id)
        return any(
            get_text(file, "id") == file_id for file in get_objects(message, "files") if file_id
        )

    async def react(
        self,
        address: Address,
        message_ref: str,
        reaction: Reaction | None,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        with REACT:
            await self._reactions.show(
                address.channel_id, message_ref, reaction, precondition=precondition
            )

    def typing(self, address: Address) -> AbstractAsyncContextManager[None]:
        return self._presence.typing(address)
