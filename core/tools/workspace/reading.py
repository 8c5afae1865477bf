"""The `read_file` tool: text with its line numbers, and documents as text, page by page."""

import asyncio
import base64
import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby

from pydantic import Field, model_validator

from core.context.request_tail import PICTURES_MAX
from core.context.tokens import count_text, first_tokens
from core.domain.call_consent import STAYS
from core.domain.errors import DocumentError, ToolError
from core.domain.messages import Message
from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.child import BARE_EXCEL, STARTS
from core.knowledge.parsing.parser_process import parse_document, run_in_child, spool_to_file
from core.ports import Files, file_version
from core.tools.pictures import build_picture_message
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.file_changes import in_one_piece, read_editable_bytes
from core.tools.workspace.paths import FilePathParams, add_path_to_error, file_subject
from core.tools.workspace.text_encoding import EDIT_BYTES_MAX, HEAD_BYTES, require_encoding
from core.web_access.pictures import prepare_picture

READ_CHARACTERS_MAX = 20_000
READ_TOKENS_MAX = 7_000
"""Smaller than the limit for tool results, so that a file's text is not truncated a second time in the middle."""
PAGES_SHOWN_MAX = PICTURES_MAX
_PICTURES_BYTES_MAX = 60_000_000
_DRAWN_PAGES = "core.knowledge.parsing.pdf"
_PAGES_SHOWN = (
    "Of {last} pages, {shown} are pictures without text; they come at the end of your next request. If you cannot see"
    " them, read their text with `pdftoppm -r 200 -png` and `tesseract`, where these are installed; else say that you"
    " cannot read them."
)
_MAILS = (".eml", ".mht", ".mhtml")
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")
_HEIC = (b"ftyphei", b"ftypmif1")
"""The bytes after the first four of HEIC photos, the format of newer phones."""
_CONTAINERS = (*STARTS, *BARE_EXCEL)


class ReadParams(FilePathParams):
    """Read a file: text with a number before each line, or a document (PDF, Office, EPUB, e-mail, zip) as text, page by
    page. Long files come cut and say how to read on. The numbers are not part of the file."""

    start_line: int = Field(default=1, ge=1, description="First line to read, counted from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to read.")
    page: int = Field(default=1, ge=1, description="For documents: the page, slide or part.")

    @model_validator(mode="after")
    def _in_order(self) -> "ReadParams":
        if self.end_line is not None and self.end_line < self.start_line:
            raise ValueError(f"end_line {self.end_line} is before start_line {self.start_line}")
        return self


async def run_read(params: ReadParams, context: ToolContext) -> str | ToolOutput:
    path = params.file_path
    files = (await context.sandbox()).files
    try:
        content = await read_editable_bytes(files, path)
        if path.lower().endswith(_MAILS) or not await asyncio.to_thread(_is_text, content[:HEAD_BYTES], path):
            head, limits = content[:HEAD_BYTES], ParseLimits()
            if head.startswith(_PICTURES) or head[4:].startswith(_HEIC):
                raise ToolError(f"{path} is a picture; see_image shows it to you.")
            name = path if head.startswith(_CONTAINERS) or path.lower().endswith(_MAILS) else ""
            try:
                async with spool_to_file(files.read(path), limits) as spooled:
                    document = await parse_document(spooled.file, name=name, limits=limits, wanted_page=params.page)
            except DocumentError as error:
                if error.detail.startswith("scanned"):
                    return await _shown_pages(params, files, context)
                if error.detail.startswith("unsupported"):
                    raise ToolError(
                        f"{path} is a binary file, not text. Use a program that knows its format, or attach it for the"
                        " people."
                    ) from error
                raise ToolError(f"{path}: {error}") from error
            text, has_pictures = await asyncio.to_thread(_document_pages, params, document)
            return await _shown_pages(params, files, context, text) if has_pictures else text
        pieces = files.read(path)
        if len(content) <= EDIT_BYTES_MAX:
            context.known_versions[path] = file_version(content)
            pieces = in_one_piece(content)
        reading = _Reading(params)
        lines = read_numbered_lines(pieces, path, start_line=params.start_line, line_characters_max=READ_CHARACTERS_MAX)
        async with aclosing(lines):
            async for number, text in lines:
                if not reading.takes(number, text):
                    break
        return reading.shown()
    except ToolError as error:
        raise add_path_to_error(path, error) from error


def _is_text(head: bytes, path: str) -> bool:
    try:
        return not head.startswith((*_CONTAINERS, *_PICTURES)) and bool(require_encoding(head, path))
    except ToolError:
        return False


async def _shown_pages(params: ReadParams, files: Files, context: ToolContext, text: str = "") -> ToolOutput:
    """Shows the first pages without text, from the requested page on, as pictures. `text` is the text of the other
    pages."""
    path, limits = params.file_path, ParseLimits()
    content = b"".join([one async for one in files.read(path, length=limits.file_bytes_max)])
    wanted: dict[str, object] = {"first": params.page, "count": PAGES_SHOWN_MAX}
    try:
        output = await run_in_child(_DRAWN_PAGES, wanted, content, limits, bytes_max=_PICTURES_BYTES_MAX)
        *found, end = [json.loads(line) for line in output.splitlines()]
        pages, last = {int(one["page"]): one["picture"] for one in found}, int(end["pages"])
        pictures = {page: base64.b64decode(picture) for page, picture in pages.items()}
    except (DocumentError, ValueError, TypeError, KeyError) as error:
        raise ToolError(f"{path}: The pictures of its pages cannot be read.") from error
    if not text and params.page > last:
        raise ToolError(f"{path} has {last} pages.")
    messages, unread = list[Message](), list[str]()
    for page, picture in pictures.items():
        place = f"{path}, page {page}"
        try:
            prepared = await prepare_picture(picture, name=place)
        except ToolError:
            unread.append(str(page))
            continue
        messages.append(
            build_picture_message(
                prepared, place=place, original_size=len(picture), thread_id=context.thread_id, run_id=context.run_id
            )
        )
    shown = ", ".join(str(page) for page in pictures if str(page) not in unread)
    notes = [_PAGES_SHOWN.format(shown=shown, last=last)] if shown else []
    if unread:
        notes.append(f"The pictures of pages {', '.join(unread)} cannot be decoded.")
    if len(pictures) == PAGES_SHOWN_MAX and max(pictures) < last:
        notes.append(f"Read on with page={max(pictures) + 1}.")
    return ToolOutput(output=f"{text}\n[{' '.join(notes)}]".strip(), messages=tuple(messages))


def _document_pages(params: ReadParams, document: Document) -> tuple[str, bool]:
    """Returns as many whole pages as fit, from the requested page on, or the requested lines of that page, and whether
    any of them is a picture."""
    # a very long page comes in parts, which are one page for the reader
    parts = groupby(enumerate(document.pages, start=1), key=lambda numbered: numbered[1].number or -numbered[0])
    pages = [(abs(number), _join_parts([page for _, page in of_page])) for number, of_page in parts]
    last = pages[-1][0]
    wanted = [one for one in pages if one[0] >= params.page]
    if not wanted:
        raise ToolError(f"{params.file_path} has {last} pages.")
    if len(pages) == 1 and document.kind == "txt":
        return _page_lines(params, pages[0][1], ""), False
    shown, room, has_pictures = list[str](), READ_TOKENS_MAX, False
    for number, page in wanted:
        head = f"[page {number} of {last}{f': {page.place}' if page.place else ''}]\n"
        room -= count_text(head) + count_text(page.text)
        if room < 0 or params.start_line > 1 or params.end_line is not None:
            if not shown:
                return head + _page_lines(params, page, f" and page={number}"), page.is_picture
            shown.append(f"[cut before page {number}; read on with page={number}]")
            break
        shown.append(f"{head}{page.text.strip()}\n")
        has_pictures |= page.is_picture
    return "\n".join(shown), has_pictures


def _join_parts(parts: Sequence[Page]) -> Page:
    return replace(parts[0], text="\n".join(part.text.strip("\n") for part in parts))


def _page_lines(params: ReadParams, page: Page, where: str) -> str:
    reading = _Reading(params, where)
    for number, line in enumerate(page.text.splitlines(keepends=True), start=1):
        if not reading.takes(number, line):
            break
    return reading.shown()


def with_line_number(number: int, text: str) -> str:
    return f"{number:6}\t{text}"


async def read_numbered_lines(
    pieces: AsyncIterator[bytes], path: str, *, start_line: int, line_characters_max: int
) -> AsyncGenerator[tuple[int, str], None]:
    """Yields each line of a file's pieces: its number, counted from 1, and its text with the line break.

    A line longer than `line_characters_max` is yielded in several pieces with the same number. Lines before
    `start_line` are skipped in batches, each of which yields the number of its last line with an empty text. Raises
    ToolError if the file is binary."""
    decoder: codecs.IncrementalDecoder | None = None
    number, rest = 1, ""
    async for piece in pieces:
        skipped = 0
        if decoder is None:
            encoding = await asyncio.to_thread(require_encoding, piece, path)
            decoder = codecs.getincrementaldecoder(encoding.name)(errors="replace")
            skipped = len(encoding.mark)
        *lines, rest = (rest + decoder.decode(piece[skipped:])).split("\n")
        if lines and number + len(lines) < start_line:
            number += len(lines)
            yield number - 1, ""
            lines.clear()
        for line in lines:
            yield number, line + "\n"
            number += 1
        if len(rest) > line_characters_max:
            yield number, rest
            rest = ""
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest:
        yield number, rest


class _Reading:
    """Collects the requested lines up to the size limit, and a note about the lines that did not fit. `where` holds the
    arguments that a call needs to read on, besides the line."""

    def __init__(self, params: ReadParams, where: str = "") -> None:
        self._params = params
        self._where = where
        self._wanted: list[str] = []
        self._room = READ_TOKENS_MAX
        self._last = 0
        self._note = ""

    def takes(self, number: int, text: str) -> bool:
        """Adds a line or a piece of a line. Returns False if no more lines are needed."""
        is_new_line, self._last = number != self._last, number
        if number < self._params.start_line:
            return True
        if self._params.end_line is not None and number > self._params.end_line:
            return False
        shown = with_line_number(number, text) if is_new_line else text
        tokens = count_text(shown)
        if tokens <= self._room:
            self._wanted.append(shown)
            self._room -= tokens
            return True
        if is_new_line and self._wanted:
            self._note = f"[cut before line {number}; read on with start_line={number}{self._where}]"
        else:
            self._wanted.append(first_tokens(shown[:READ_CHARACTERS_MAX], self._room) + "\n")
            self._note = (
                f"[line {number} is too long to be shown whole; take it apart with a command. The next line is"
                f" start_line={number + 1}{self._where}]"
            )
        return False

    def shown(self) -> str:
        if self._wanted:
            return "".join(self._wanted) + self._note
        path = self._params.file_path
        return f"[{path} is empty]" if self._last == 0 else f"[{path} has only {self._last} lines]"


read_file = Tool(
    name="read_file",
    effect="reads",
    reach=STAYS,
    params=ReadParams,
    run=run_read,
    subject=lambda params: file_subject(params.file_path),
    title=lambda params: f"Reading {params.file_path}",
    example={"file_path": "notes.md", "start_line": 1, "end_line": 40},
    is_idempotent=True,
    requires=("sandbox",),
)
