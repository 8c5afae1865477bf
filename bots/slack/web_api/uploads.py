"""Files of the agent on their way into a thread: an address, the bytes, then one call that posts them."""

import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator

import aiohttp
from yarl import URL

from bots.slack import limits
from bots.slack.events.payload import get_text
from bots.slack.render.block_kit import truncate
from bots.slack.render.mrkdwn import escape_mrkdwn
from bots.slack.web_api.client import CALL_SECONDS_MAX, SlackClient
from bots.slack.web_api.files import is_slack_url
from core.domain.errors import SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.messages import JsonObject
from core.domain.threads import Address
from core.ports import OutgoingFile, Precondition

NAME_CHARACTERS_MAX = 200
_REMEMBERED_MAX = 500
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\\u202a-\u202e\u2066-\u2069]+")


class FileUploads:
    """Remembers which file it sent under which delivery id, for the case that the last answer got lost."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._files: OrderedDict[str, str] = OrderedDict()

    def uploaded_file_id(self, delivery_id: str) -> str:
        """The id of the file sent under the delivery id by this process, or ""."""
        return self._files.get(delivery_id, "")

    async def upload(
        self,
        address: Address,
        file: OutgoingFile,
        *,
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        """Posts the file into the thread and answers its file id. Raises as ChatSurface.upload says."""
        _check_size(file)
        name = safe_file_name(file.name)
        ticket = await self._client.write_form(
            "files.getUploadURLExternal",
            {"filename": name, "length": file.size_bytes},
            precondition=precondition,
        )
        file_id = get_text(ticket, "file_id")
        await self._send(URL(get_text(ticket, "upload_url")), file)
        self._remember(delivery_id, file_id)
        # `blocks` takes the place of an initial comment; its id is what tells this post from any other.
        note: JsonObject = {
            "type": "context",
            "block_id": delivery_block_id(delivery_id),
            "elements": [{"type": "plain_text", "text": truncate(name, limits.FILE_NOTE_MAX)}],
        }
        await self._client.write_form(
            "files.completeUploadExternal",
            {
                "files": json.dumps([{"id": file_id, "title": escape_mrkdwn(name)}]),
                "channel_id": address.channel_id,
                "thread_ts": address.thread_key,
                "blocks": json.dumps([note]),
            },
            precondition=precondition,
        )
        return file_id

    async def _send(self, url: URL, file: OutgoingFile) -> None:
        if not is_slack_url(url, self._client.api_url):
            raise SurfaceRefused("Slack named a foreign upload address", code="foreign_host")
        broken: list[Exception] = []
        try:
            async with self._client.session.post(
                url,
                data=_checked_chunks(file, broken),
                headers={
                    "Content-Length": str(file.size_bytes),
                    "Content-Type": "application/octet-stream",
                },
                proxy=self._client.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=CALL_SECONDS_MAX, sock_read=120),
            ) as answer:
                status = answer.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if broken:
                # The connection broke off because the pieces did.
                raise broken[0] from error
            raise SurfaceUnclear(f"The upload broke off ({type(error).__name__})") from error
        if status == 429:
            raise SurfaceRateLimited("Slack asks for patience", retry_after_seconds=1)
        if status >= 500:
            raise SurfaceUnclear(f"Slack failed to take the file ({status})")
        if status != 200:
            raise SurfaceRefused("Slack refused the file", code=f"upload_status_{status}")

    def _remember(self, delivery_id: str, file_id: str) -> None:
        self._files[delivery_id] = file_id
        while len(self._files) > _REMEMBERED_MAX:
            self._files.popitem(last=False)


def delivery_block_id(delivery_id: str) -> str:
    """The id of the block that names a file's delivery."""
    return f"delivery:{delivery_id}"[: limits.BLOCK_ID_MAX]


def safe_file_name(name: str) -> str:
    """The name without folders, control characters and direction marks."""
    clean = _UNSAFE.sub("_", name).strip(". ")
    if len(clean) <= NAME_CHARACTERS_MAX:
        return clean or "file"
    stem, dot, ending = clean.rpartition(".")
    kept = f"{dot}{ending}" if stem and len(ending) <= 20 else ""
    return clean[: NAME_CHARACTERS_MAX - len(kept)] + kept


def _check_size(file: OutgoingFile) -> None:
    if file.size_bytes > limits.FILE_BYTES_MAX:
        raise SurfaceRefused("The file is larger than Slack takes", code="too_large")
    if file.size_bytes <= 0:
        raise SurfaceRefused("Slack takes no empty file", code="empty_file")


async def _checked_chunks(file: OutgoingFile, broken: list[Exception]) -> AsyncIterator[bytes]:
    """The pieces, as long as they are what was announced: a changed file must not hang the connection.

    What goes wrong with them is noted in `broken`, as aiohttp would only tell of a lost connection.
    """
    sent = 0
    try:
        async for piece in file.pieces:
            sent += len(piece)
            if sent > file.size_bytes:
                break
            yield piece
        if sent != file.size_bytes:
            raise SurfaceRefused("The file changed while it was sent", code="size_changed")
    except Exception as error:
        broken.append(error)
        raise
