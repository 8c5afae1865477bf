"""Parses and validates API requests: IDs, query parameters, JSON bodies, and messages with files."""

import json
import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self, TypeVar, cast

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from bots.web import upload_spool
from bots.web.deps import API_PLACE, DEPS
from bots.web.errors import ApiError
from core.domain.json import JsonObject
from core.domain.threads import Address, IncomingFile, Platform, Position, Selection, Usage

log = logging.getLogger(__name__)

JSON_BYTES_MAX = 1024 * 1024
TEXT_CHARACTERS_MAX = 200_000
AGENT_CHARACTERS_MAX = 100
FILES_MAX = 20
NAME_CHARACTERS_MAX = 200
PAGE_DEFAULT = 50
PAGE_MAX = 200
ADDRESS_CHARACTERS_MAX = 200
T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=BaseModel)
_AddressPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{0,100}(\.[0-9]{1,20})?$")]
"""The characters that occur in ids of the platforms. Parts of an address become parts of the platforms' URLs."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION = re.compile(r"([0-9]{1,18})-([0-9a-z-]{1,40})")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
AUTHOR_CHARACTERS_MAX = 100
_FORM_FIELDS = {"text": TEXT_CHARACTERS_MAX, "agent_id": AGENT_CHARACTERS_MAX, "author": AUTHOR_CHARACTERS_MAX}
_MIME = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}")


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A message from an API client. The contents of its files are in the upload spool. `author` is a name, or empty."""

    text: str
    files: tuple[IncomingFile, ...] = ()
    agent_id: str | None = None
    author: str = ""


class PlaceBody(BaseModel):
    """A place in a request body. Without a `thread_key`, it is a channel. An empty body means the API's own threads."""

    platform: Platform = "api"
    workspace_id: _AddressPart = API_PLACE.workspace_id
    channel_id: _AddressPart = API_PLACE.channel_id
    thread_key: _AddressPart = ""

    @model_validator(mode="after")
    def _check_api(self) -> Self:
        if self.platform == "api" and replace(self.address, thread_key="") != API_PLACE:
            raise PydanticCustomError("place", "the API has no such place")
        return self

    @property
    def address(self) -> Address:
        return Address(**self.model_dump())


def usage_object(usage: Usage) -> JsonObject:
    """Returns usage in the format of responses."""
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "estimated_usd": usage.estimated_usd,
    }


def parse_path_id(request: web.Request, name: str) -> str:
    """Returns the ID in the URL path. Raises ApiError 400 if it is not a UUID."""
    value = request.match_info[name]
    if not _ID.fullmatch(value):
        raise ApiError(400, "bad_id", f"The {name} is not an id.")
    return value


def parse_query_integer(request: web.Request, name: str, *, default: int, smallest: int = 0, largest: int) -> int:
    """Returns an integer query parameter, or `default` if it is missing.

    Raises ApiError 400 if the value is not a whole number from `smallest` to `largest`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,12}", text) or not smallest <= int(text) <= largest:
        raise ApiError(400, "bad_request", f"{name} must be a whole number from {smallest} to {largest}.")
    return int(text)


def parse_selection(request: web.Request) -> Selection:
    """Returns the selection that the query parameters `platform`, `workspace_id`, `channel_id` and `person_id`
    describe."""
    names = [field.name for field in fields(Selection) if field.name in request.query]
    return Selection(**{name: _checked_text(request.query[name], name, ADDRESS_CHARACTERS_MAX) for name in names})


def parse_page_size(request: web.Request) -> int:
    return parse_query_integer(request, "limit", default=PAGE_DEFAULT, smallest=1, largest=PAGE_MAX)


def parse_cursor(request: web.Request) -> str | None:
    """Returns the query parameter `cursor`, or None if it is missing. Raises ApiError 400 if it is not an ID."""
    cursor = request.query.get("cursor")
    if cursor is not None and not _ID.fullmatch(cursor):
        raise ApiError(400, "bad_cursor", "The cursor is not one of this list.")
    return cursor


def parse_position(request: web.Request) -> Position | None:
    """Returns the position that the query parameter `cursor` encodes, or None if it is missing. Raises ApiError 400 if
    it is malformed."""
    cursor = request.query.get("cursor")
    if cursor is None:
        return None
    if (parts := _POSITION.fullmatch(cursor)) is None:
        raise ApiError(400, "bad_cursor", "The cursor is not one of this list.")
    try:
        return _EPOCH + timedelta(microseconds=int(parts[1])), parts[2]
    except OverflowError:
        raise ApiError(400, "bad_cursor", "The cursor is not one of this list.") from None


def format_position(position: Position) -> str:
    at, row_id = position
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{row_id}"


def page_object(
    name: str, found: Sequence[T], size: int, to_object: Callable[[T], JsonObject], to_cursor: Callable[[T], str]
) -> JsonObject:
    """Returns a page of a list in the format of responses. `found` has one more entry than `size` if another page
    follows."""
    page = found[:size]
    return {name: [to_object(one) for one in page], "next_cursor": to_cursor(page[-1]) if len(found) > size else None}


def parse_idempotency_key(request: web.Request) -> str | None:
    """Returns the Idempotency-Key header, or None if it is missing. Raises ApiError 400 if its format is invalid."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise ApiError(400, "bad_request", "Idempotency-Key must have 1 to 200 printable ASCII characters.")
    return key


async def parse_json_object(request: web.Request) -> JsonObject:
    """Returns the JSON object in the request body, or an empty object if the body is empty.

    Raises ApiError 400 if the body is not a JSON object, and ApiError 415 if its content type is not JSON."""
    body = await request.read()
    if not body:
        return {}
    if request.content_type != "application/json":
        raise ApiError(415, "unsupported_media_type", "Send JSON, or a multipart form.")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "bad_json", "The body is not valid JSON.") from None
    if not isinstance(content, dict):
        raise ApiError(400, "bad_json", "The body must be a JSON object.")
    return cast(JsonObject, content)


async def parse_model(request: web.Request, kind: type[BodyT]) -> BodyT:
    """Returns the JSON body as a model. Raises ApiError 400 with a sentence for its first problem."""
    try:
        return kind.model_validate(await parse_json_object(request))
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(map(str, problem["loc"])) or "The body"
        raise ApiError(400, "bad_request", f"{name}: {problem['msg']}.") from error


def parse_text_field(body: JsonObject, name: str, *, characters_max: int) -> str:
    """Returns a string field of the body, or an empty string if the field is missing.

    Raises ApiError 400 if the value is not a string, and ApiError 413 if it is too long."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise ApiError(400, "bad_request", f"{name} must be a string.")
    return _checked_text(value, name, characters_max)


async def parse_message(request: web.Request) -> MessageRequest:
    """Returns the message in a request: a JSON object with `text`, or a multipart form with `text` and files.

    Both formats accept an optional `agent_id` and `author`. Files are streamed to the upload spool and deleted if the
    request is rejected. Raises ApiError if the request is invalid."""
    if request.content_type.startswith("multipart/"):
        message = await _form(request)
    else:
        body = await parse_json_object(request)
        message = MessageRequest(
            parse_text_field(body, "text", characters_max=TEXT_CHARACTERS_MAX),
            agent_id=parse_text_field(body, "agent_id", characters_max=AGENT_CHARACTERS_MAX) or None,
            author=parse_text_field(body, "author", characters_max=AUTHOR_CHARACTERS_MAX),
        )
    if not message.text.strip() and not message.files:
        raise ApiError(400, "empty_message", "A message needs a text or a file.")
    return message


def discard_uploads(request: web.Request, files: tuple[IncomingFile, ...]) -> None:
    """Deletes files that `parse_message` stored in the upload spool."""
    for file in files:
        upload_spool.discard_upload(request.app[DEPS].spool_folder, file.file_ref)


async def _form(request: web.Request) -> MessageRequest:
    texts: dict[str, str] = {}
    files: list[IncomingFile] = []
    try:
        reader = await request.multipart()
        while (part := await reader.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise ApiError(400, "bad_form", "Nested forms are not supported.")
            if part.filename is not None:
                if len(files) >= FILES_MAX:
                    raise ApiError(413, "too_many_files", f"A message takes at most {FILES_MAX} files.")
                ports = request.app[DEPS]
                try:
                    file_ref, size = await upload_spool.store_upload(
                        ports.spool_folder, _pieces(part), bytes_max=ports.upload_bytes_max
                    )
                except upload_spool.UploadTooLarge:
                    limit = ports.upload_bytes_max / 2**20
                    raise ApiError(413, "too_large", f"A file may have at most {limit:.4g} MB.") from None
                mime_type = part.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                if not _MIME.fullmatch(mime_type):
                    mime_type = "application/octet-stream"
                name = sanitize_file_name(part.filename or "")
                files.append(IncomingFile(file_ref=file_ref, name=name, mime_type=mime_type, size_bytes=size))
            elif part.name in _FORM_FIELDS:
                characters_max = _FORM_FIELDS[part.name]
                content = bytearray()
                while piece := await part.read_chunk():
                    content += piece
                    if len(content) > JSON_BYTES_MAX:
                        raise ApiError(413, "too_large", "The text is too long.")
                texts[part.name] = _checked_text(content.decode(errors="replace"), part.name, characters_max)
            else:
                raise ApiError(400, "bad_form", "The form takes the fields text, agent_id and author, and files.")
    except (ValueError, AssertionError, HttpProcessingError) as error:
        discard_uploads(request, tuple(files))
        log.warning("the form of a request cannot be parsed: %s", type(error).__name__)
        raise ApiError(400, "bad_form", "The form is broken.") from error
    except BaseException:
        discard_uploads(request, tuple(files))
        raise
    return MessageRequest(texts.get("text", ""), tuple(files), texts.get("agent_id") or None, texts.get("author", ""))


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(256 * 1024):
        yield piece


def sanitize_file_name(name: str) -> str:
    """Returns a file name without folders, control characters and direction marks, or "file" if nothing remains."""
    last = re.split(r"[/\\]", name)[-1]
    kept = "".join(character for character in last if unicodedata.category(character) not in {"Cc", "Cf", "Cs"})
    return kept.strip(" .")[-NAME_CHARACTERS_MAX:] or "file"


def _checked_text(text: str, name: str, characters_max: int) -> str:
    if len(text) > characters_max:
        raise ApiError(413, "too_large", f"{name} may have at most {characters_max} characters.")
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
