"""Uploads and downloads: the multipart body of a call, and signed addresses that expire."""

import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import BodyPartReader, web

from simulator.discord.rest.errors import BROKEN_JSON, TOO_LARGE, Refused, invalid
from simulator.discord.world import Attachment, World

FILES_MAX = 10
_FIELD = re.compile(r"files\[(\d{1,3})\]|file(\d{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """`index` is the n of `files[n]`, by which the `attachments` of the body name the file."""

    index: int
    filename: str
    content: bytes
    content_type: str


async def read_body(request: web.Request, file_bytes_max: int) -> tuple[object, list[Upload]]:
    """The JSON body and the files; None where there is no body. Raises Refused."""
    if request.content_type == "multipart/form-data":
        return await _read_multipart(request, file_bytes_max)
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(TOO_LARGE) from None
    if not raw:
        return None, []
    if request.content_type != "application/json":
        message = 'Expected "Content-Type" header to be one of {application/json}.'
        raise invalid((), "CONTENT_TYPE_INVALID", message)
    return _parse(raw), []


def _parse(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(BROKEN_JSON) from None


async def _read_multipart(request: web.Request, file_bytes_max: int) -> tuple[object, list[Upload]]:
    body: object = None
    uploads: list[Upload] = []
    is_too_large = False
    async for part in _parts(request):
        raw = await _read_part(part, file_bytes_max)
        if raw is None:
            is_too_large = True
        elif part.name == "payload_json":
            body = _parse(raw)
        elif (field := _FIELD.fullmatch(part.name or "")) is not None:
            uploads.append(_upload(part, field, raw))
    if is_too_large:
        raise Refused(TOO_LARGE)
    if len(uploads) > FILES_MAX:
        message = f"Must be {FILES_MAX} or fewer in length."
        raise invalid(("attachments",), "BASE_TYPE_MAX_LENGTH", message)
    return body, uploads


async def _parts(request: web.Request) -> AsyncIterator[BodyPartReader]:
    try:
        reader = await request.multipart()
        while (part := await reader.next()) is not None:
            if isinstance(part, BodyPartReader):
                yield part
    except ValueError:
        raise Refused(BROKEN_JSON) from None


async def _read_part(part: BodyPartReader, bytes_max: int) -> bytes | None:
    """None where the part is too large; the rest is read all the same, so that the client hears the answer."""
    pieces: list[bytes] = []
    size = 0
    while piece := await part.read_chunk(65536):
        size += len(piece)
        if size <= bytes_max:
            pieces.append(bytes(piece))
    return b"".join(pieces) if size <= bytes_max else None


def _upload(part: BodyPartReader, field: re.Match[str], raw: bytes) -> Upload:
    return Upload(
        index=int(field.group(1) or field.group(2) or 0),
        filename=part.filename or "unknown",
        content=raw,
        content_type=part.headers.get("Content-Type", "application/octet-stream"),
    )


def signed_url(world: World, attachment: Attachment) -> str:
    """An address of the CDN: `ex` and `is` are hexadecimal seconds, `hm` signs them."""
    issued = int(time.time())
    expires = format(int(issued + world.settings.file_url_seconds), "x")
    path = f"/attachments/{attachment.channel_id}/{attachment.attachment_id}/"
    path += quote(attachment.filename)
    signature = _sign(world, path, expires, format(issued, "x"))
    return f"{world.http_url}{path}?ex={expires}&is={issued:x}&hm={signature}"


def page_url(world: World, attachment: Attachment) -> str:
    """For the page that shows the simulator: without a signature, it does not expire."""
    return f"{world.http_url}/files/{attachment.attachment_id}/{quote(attachment.filename)}"


def _sign(world: World, path: str, expires: str, issued: str) -> str:
    text = f"{path}?{expires}&{issued}".encode()
    return hmac.new(world.file_secret, text, hashlib.sha256).hexdigest()


async def serve_attachment(world: World, request: web.Request) -> web.Response:
    """404 for an address that has expired, was changed or names nothing, as Discord's CDN answers."""
    expires, issued = request.query.get("ex", ""), request.query.get("is", "")
    signature = _sign(world, request.rel_url.raw_path, expires, issued)
    is_signed = hmac.compare_digest(signature.encode(), request.query.get("hm", "").encode())
    attachment = world.attachments.get(request.match_info["attachment"])
    if not is_signed or attachment is None or int(expires, 16) < time.time():
        return web.Response(status=404, text="This content is no longer available.")
    return _file_response(attachment)


async def serve_page_file(world: World, request: web.Request) -> web.Response:
    attachment = world.attachments.get(request.match_info["attachment"])
    if attachment is None:
        return web.Response(status=404, text="There is no such file.")
    return _file_response(attachment)


def _file_response(attachment: Attachment) -> web.Response:
    disposition = f'attachment; filename="{attachment.filename}"'
    if attachment.content_type.startswith("image/") and "svg" not in attachment.content_type:
        disposition = "inline"
    headers = {
        "Content-Type": attachment.content_type,
        "Content-Disposition": disposition,
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(body=attachment.content, headers=headers)
