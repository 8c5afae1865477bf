"""Slack's ChatSurface: posts, edits, uploads, reactions and the busy status."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

from bots.delivery.content import Content, Notice
from bots.delivery.reactions import Reactions
from bots.slack import limits
from bots.slack.events.payload_fields import get_object, get_objects, get_text
from bots.slack.render.messages import render_content
from bots.slack.web_api.answer_streams import START_STREAM, SlackStreams
from bots.slack.web_api.client import ClientFor
from bots.slack.web_api.notices import NO_PREVIEWS
from bots.slack.web_api.posting import post_with_fallback
from bots.slack.web_api.presence import EMOJI, change_reaction, fetch_own_reactions, show_busy
from bots.slack.web_api.uploads import FILES_PER_MESSAGE, FileUploads, names_delivery
from core.domain.errors import SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import OutgoingFile, Precondition, Reaction

METADATA_EVENT = "threadhand_delivery"
POST = Failpoint("slack.post")
EDIT = Failpoint("slack.edit")
UPLOAD = Failpoint("slack.upload")
REACT = Failpoint("slack.react")
FIND = Failpoint("slack.find")
TELL = Failpoint("slack.tell")
_RESTRICTED = "posting there is restricted"
CLOSED_REASONS: Mapping[str, str] = {
    "is_archived": "the channel is archived",
    "not_in_channel": "I am not a member of the channel",
    "channel_not_found": "the channel is gone, or I was removed from it",
    "restricted_action": _RESTRICTED,
    "restricted_action_read_only_channel": "the channel is read-only",
    "restricted_action_thread_only_channel": _RESTRICTED,
    "restricted_action_non_threadable_channel": "the channel has no threads",
    "restricted_action_thread_locked": "the thread is locked",
    "messages_tab_disabled": "direct messages to the app are switched off",
    "missing_scope": "the app lacks the permission to write",
    "no_permission": "the app lacks the permission to write",
    "not_installed": "the app no longer has access to the workspace",
}
"""Errors of chat.postMessage (docs.slack.dev) after which nothing can be posted in the thread."""


class SlackSurface:
    """Implements ChatSurface and ChatPresence. Each call uses the client of the address's workspace. Message ids are
    Slack's `ts` values."""

    platform = "slack"
    answer_limit: int = limits.ANSWER_MAX
    files_per_message = FILES_PER_MESSAGE
    edit_interval_seconds: float = limits.EDIT_INTERVAL_SECONDS
    closed_reasons = CLOSED_REASONS

    def __init__(self, client_for: ClientFor) -> None:
        self._client_for = client_for
        self._uploads = FileUploads()
        self._reactions = Reactions(EMOJI)
        self._streams = SlackStreams(client_for)

    def file_limit(self, address: Address) -> int:
        return limits.FILE_BYTES_MAX

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        files: Sequence[OutgoingFile] = (),
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        client = await self._client_for(address)
        if files:
            with UPLOAD:
                return await self._uploads.upload(
                    client,
                    address,
                    files,
                    delivery_id=delivery_id,
                    blocks=render_content(content).plain_blocks,
                    precondition=precondition,
                )
        body: JsonObject = {
            "channel": address.channel_id,
            **({"thread_ts": address.thread_key} if address.thread_key else {}),
            "metadata": {"event_type": METADATA_EVENT, "event_payload": {"delivery_id": delivery_id}},
            **NO_PREVIEWS,
        }
        with POST:
            answer = await post_with_fallback(
                client, "chat.postMessage", body, render_content(content), precondition=precondition
            )
        if not (ts := get_text(answer, "ts")):
            raise SurfaceUnclear("Slack's answer has no ts of the posted message")
        return ts

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition | None = None
    ) -> None:
        body: JsonObject = {"channel": address.channel_id, "ts": message_ref}
        client = await self._client_for(address)
        with EDIT:
            await post_with_fallback(client, "chat.update", body, render_content(content), precondition=precondition)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition | None = None
    ) -> str:
        client = await self._client_for(address)
        with UPLOAD:
            return await self._uploads.upload(
                client, address, [file], delivery_id=delivery_id, precondition=precondition
            )

    async def find(self, address: Address, delivery_id: str) -> str | None:
        client, cursor = await self._client_for(address), ""
        while True:
            parameters: dict[str, str | int | bool] = {
                "channel": address.channel_id,
                "include_all_metadata": True,
                "limit": limits.THREAD_PAGE_MAX,
            }
            method = "conversations.history"
            if address.thread_key:
                method, parameters["ts"] = "conversations.replies", address.thread_key
            if cursor:
                parameters["cursor"] = cursor
            with FIND:
                page = await client.read(method, parameters)
            for message in get_objects(page, "messages"):
                if self._carries(message, delivery_id):
                    return get_text(message, "ts")
            cursor = get_text(page, "response_metadata", "next_cursor")
            if not cursor or not address.thread_key:
                return None

    async def find_streams(self, address: Address) -> SlackStreams | None:
        """Returns None in channels, because only one user there would see a stream while it is written."""
        is_direct = address.channel_id.startswith("D") and bool(address.thread_key)
        if not is_direct or START_STREAM in (await self._client_for(address)).unavailable_methods:
            return None
        return self._streams

    async def delete(self, address: Address, message_ref: str) -> None:
        body: JsonObject = {"channel": address.channel_id, "ts": message_ref}
        await (await self._client_for(address)).write("chat.delete", body)

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        """Posts an ephemeral message in the channel. Its rate limit is separate from that of ordinary messages."""
        body: JsonObject = {"channel": address.channel_id, "user": person_id}
        client = await self._client_for(address)
        with TELL:
            await post_with_fallback(client, "chat.postEphemeral", body, render_content(Notice(markdown=text)))

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncGenerator[Address]:
        """Yields the direct message with the person (see DeliverySurface). Its `thread_key` is empty."""
        if person_id and not address.channel_id.startswith("D"):
            channel_id = await (await self._client_for(address)).open_direct_message(person_id)
            yield replace(address, channel_id=channel_id, thread_key="")

    async def begin_thread(
        self,
        channel: Address,
        content: Content,
        *,
        title: str,
        delivery_id: str,
        may_be_posted: bool,
        precondition: Precondition,
    ) -> str:
        """Posts the message whose thread holds a new conversation (see ThreadBeginner)."""
        top = replace(channel, thread_key="")
        ts = await self.find(top, delivery_id) if may_be_posted else None
        return ts or await self.post(top, content, delivery_id=delivery_id, precondition=precondition)

    def _carries(self, message: JsonObject, delivery_id: str) -> bool:
        metadata = get_object(message, "metadata")
        if (
            get_text(metadata, "event_type") == METADATA_EVENT
            and get_text(metadata, "event_payload", "delivery_id") == delivery_id
        ):
            return True
        blocks = get_objects(message, "blocks")
        if any(names_delivery(get_text(block, "block_id"), delivery_id) for block in blocks):
            return True
        if any(get_text(block, "task_id") == delivery_id for block in blocks):
            return True  # the message is a stream, which has no metadata
        file_id = self._uploads.uploaded_file_id(delivery_id)
        return any(get_text(file, "id") == file_id for file in get_objects(message, "files") if file_id)

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        client = await self._client_for(address)
        change = partial(change_reaction, client, address.channel_id, message_ref, precondition)
        with REACT:
            await self._reactions.set_only_reaction(
                # bots of several workspaces may share a channel
                f"{client.identity.team_id}:{address.channel_id}:{message_ref}",
                reaction,
                sent_at_seconds=float(message_ref),
                add=partial(change, "reactions.add", "already_reacted"),
                remove=partial(change, "reactions.remove", "no_reaction"),
                fetch_own=partial(fetch_own_reactions, client, address.channel_id, message_ref),
            )

    def typing(self, address: Address) -> AbstractAsyncContextManager[None]:
        return show_busy(self._client_for, address)
