"""Uploads of the agent's files: get an upload URL, send the bytes, then post the file into the thread."""

import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from functools import partial

import aiohttp
from pydantic import JsonValue
from yarl import URL

from bots.slack import limits
from bots.slack.events.payload_fields import get_text
from bots.slack.render.block_kit import simplify_blocks
from bots.slack.render.mrkdwn import escape_mrkdwn
from bots.slack.web_api.client import CALL_SECONDS_MAX, SlackClient
from bots.slack.web_api.downloads import is_slack_url
from bots.slack.web_api.posting import BLOCK_ERRORS
from core.domain.errors import SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.threads import Address
from core.ports import OutgoingFile, Precondition

NAME_CHARACTERS_MAX = 200
FILES_PER_MESSAGE = 6
"""How many files can go with an answer. A block id of 255 characters holds the delivery id of the answer and of each
file, with 32 characters each."""
_DELIVERY = "delivery:"
_REMEMBERED_MAX = 500
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\\u202a-\u202e\u2066-\u2069]+")


class FileUploads:
    """Uploads files, and remembers their delivery ids in case Slack's final response is lost."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, str] = OrderedDict()

    def uploaded_file_id(self, delivery_id: str) -> str:
        """Returns the id of the file that this process uploaded for the delivery, or ""."""
        return self._files.get(delivery_id, "")

    async def upload(
        self,
        client: SlackClient,
        address: Address,
        files: Sequence[OutgoingFile],
        *,
        delivery_id: str,
        blocks: Sequence[JsonObject] = (),
        precondition: Precondition | None = None,
    ) -> str:
        """Posts the files into the thread, in one message with the blocks. Returns the id of the first file. Raises the
        same exceptions as ChatSurface.upload."""
        sent: list[JsonValue] = []
        for file in files:
            if file.size_bytes > limits.FILE_BYTES_MAX:
                raise SurfaceRefused("The file is larger than Slack accepts", code="too_large")
            if file.size_bytes <= 0:
                raise SurfaceRefused("Slack does not accept empty files", code="empty_file")
            name = safe_file_name(file.name)
            ticket = await client.write_form(
                "files.getUploadURLExternal", {"filename": name, "length": file.size_bytes}, precondition=precondition
            )
            await _send(client, URL(get_text(ticket, "upload_url")), file)
            file_id = get_text(ticket, "file_id")
            self._files[file.delivery_id or delivery_id] = file_id
            sent.append({"id": file_id, "title": escape_mrkdwn(safe_file_name(file.name))})
        while len(self._files) > _REMEMBERED_MAX:
            self._files.popitem(last=False)
        # `blocks` replaces the initial comment; the id of the first block names the deliveries
        note: JsonObject = {"type": "context", "elements": [{"type": "plain_text", "text": "Attached"}]}
        names = [delivery_id, *(one.delivery_id for one in files if one.delivery_id)]
        first, *rest = simplify_blocks(blocks) or [note]
        shown = [{**first, "block_id": delivery_block_id(*names)}, *rest]
        body = {"files": json.dumps(sent), "channel_id": address.channel_id, "thread_ts": address.thread_key}
        complete = partial(client.write_form, "files.completeUploadExternal", precondition=precondition)
        try:
            await complete({**body, "blocks": json.dumps(shown)})
        except SurfaceRefused as refusal:
            # Slack does not document which blocks go with a file
            plain = [block for block in shown if block["type"] != "actions"]
            if refusal.code not in BLOCK_ERRORS or plain == shown:
                raise
            await complete({**body, "blocks": json.dumps(plain)})
        return self._files[files[0].delivery_id or delivery_id]


async def _send(client: SlackClient, url: URL, file: OutgoingFile) -> None:
    if not is_slack_url(url, client.api_url):
        raise SurfaceRefused("Slack returned an upload URL on another host", code="foreign_host")
    broken: list[Exception] = []
    try:
        async with client.session.post(
            url,
            data=_checked_chunks(file, broken),
            headers={"Content-Length": str(file.size_bytes), "Content-Type": "application/octet-stream"},
            proxy=client.proxy,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(sock_connect=CALL_SECONDS_MAX, sock_read=120),
        ) as answer:
            status = answer.status
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        if broken:
            # The file could not be read, so aiohttp closed the connection.
            raise broken[0] from error
        raise SurfaceUnclear(f"The upload broke off ({type(error).__name__})") from error
    if status == 429:
        raise SurfaceRateLimited("Slack asks for patience", retry_after_seconds=1)
    if status >= 500:
        raise SurfaceUnclear(f"Slack failed to take the file ({status})")
    if status != 200:
        raise SurfaceRefused("Slack refused the file", code=f"upload_status_{status}")


def delivery_block_id(*delivery_ids: str) -> str:
    """Returns the block id that names the deliveries of a message with files."""
    return _DELIVERY + ",".join(one.replace("-", "") for one in delivery_ids)


def names_delivery(block_id: str, delivery_id: str) -> bool:
    names = block_id.removeprefix(_DELIVERY).replace("-", "").split(",")
    return block_id.startswith(_DELIVERY) and delivery_id.replace("-", "") in names


def safe_file_name(name: str) -> str:
    """Returns the name without folders, control characters and bidirectional marks."""
    clean = _UNSAFE.sub("_", name).strip(". ")
    if len(clean) <= NAME_CHARACTERS_MAX:
        return clean or "file"
    stem, dot, ending = clean.rpartition(".")
    kept = f"{dot}{ending}" if stem and len(ending) <= 20 else ""
    return clean[: NAME_CHARACTERS_MAX - len(kept)] + kept


async def _checked_chunks(file: OutgoingFile, broken: list[Exception]) -> AsyncIterator[bytes]:
    """Yields the file's chunks. Raises SurfaceRefused if their total size differs from the file's declared size.

    Appends exceptions to `broken`, because aiohttp would only report a lost connection."""
    sent = 0
    try:
        async for piece in file.pieces:
            sent += len(piece)
            if sent > file.size_bytes:
                break
            yield piece
        if sent != file.size_bytes:
            raise SurfaceRefused("The file changed while it was sent", code="size_changed")
    except Exception as error:  # aiohttp hides it behind an exception of its own
        broken.append(error)
        raise
