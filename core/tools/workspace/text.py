"""Text out of files of unknown encoding, without loading them whole."""

import codecs
import re
from collections.abc import AsyncGenerator
from itertools import islice

from core.domain.errors import ToolError
from core.ports import Files

HEAD_BYTES = 8192
_WORD = re.compile(r"\S+")


async def numbered_lines(
    files: Files, path: str, *, start_line: int, line_characters_max: int
) -> AsyncGenerator[tuple[int, str], None]:
    """Line by line, counted from 1, with their ends; a line longer than the limit comes in pieces of the same number.

    What lies before `start_line` is passed over in heaps; then the number of the last line passed comes, without text.
    Raises ToolError for a binary file.
    """
    decoder: codecs.IncrementalDecoder | None = None
    number, rest = 1, ""
    async for piece in files.read(path):
        if decoder is None:
            decoder = codecs.getincrementaldecoder(encoding_of(piece, path))(errors="replace")
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
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


async def whole_text(files: Files, path: str, *, bytes_max: int) -> tuple[str, str]:
    """The text and its encoding. Raises ToolError for a file that is binary, too large, or not valid text."""
    content = bytearray()
    async for piece in files.read(path, length=bytes_max + 1):
        content += piece
    if len(content) > bytes_max:
        raise ToolError(
            f"{path} is larger than {bytes_max} bytes; edit it with a command such as sed."
        )
    encoding = encoding_of(bytes(content), path)
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not valid {encoding} text; edit it with a program.") from error


def encoded(text: str, encoding: str, path: str) -> bytes:
    """Raises ToolError for a character that the encoding does not have: nothing is put in its place."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = ascii(text[error.start])
        raise ToolError(
            f"{path} is {encoding} text, which cannot hold the character {character}. Nothing was written. Leave the"
            " character out, or convert the file to UTF-8 first."
        ) from error


def encoding_of(head: bytes, path: str) -> str:
    """The encoding that the first bytes speak for. Raises ToolError for a binary file."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if b"\x00" in head[:HEAD_BYTES]:
        raise ToolError(
            f"{path} is a binary file, not text. Use a program that knows its format, or attach it for the people."
        )
    try:
        # not final: the head may end inside a character
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def places_of(text: str, piece: str, *, places_max: int) -> list[int]:
    """Where the piece begins in the text; places that overlap count each."""
    places: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(places) < places_max:
        places.append(at)
        at = text.find(piece, at + 1)
    return places


def line_like(text: str, piece: str) -> int | None:
    """The line, counted from 1, that begins a place which differs from the piece in white space alone."""
    words, heard = " ".join(piece.split()), " ".join(text.split())
    at = heard.find(words) if words else -1
    if at < 0:
        return None
    words_before = heard.count(" ", 0, at)
    first = next(islice(_WORD.finditer(text), words_before, None))
    return text.count("\n", 0, first.start()) + 1
