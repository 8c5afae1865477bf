"""Text out of files of unknown encoding, without loading them whole."""

import codecs
from collections.abc import AsyncIterator

from core.errors import ToolError
from core.ports import Files

HEAD_BYTES = 8192


async def text_lines(files: Files, path: str, *, line_characters_max: int) -> AsyncIterator[str]:
    """Line by line with their ends; a line longer than the limit comes in pieces.

    Raises ToolError for a binary file.
    """
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    async for piece in files.read(path):
        if decoder is None:
            decoder = codecs.getincrementaldecoder(encoding_of(piece, path))(errors="replace")
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        for line in lines:
            yield line + "\n"
        if len(rest) > line_characters_max:
            yield rest
            rest = ""
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


async def whole_text(files: Files, path: str, *, bytes_max: int) -> tuple[str, str]:
    """The text and its encoding. Raises ToolError for a file that is binary, too large, or not valid text."""
    content = bytearray()
    async for piece in files.read(path, length=bytes_max + 1):
        content += piece
    if len(content) > bytes_max:
        raise ToolError(
            f"{path} is larger than {bytes_max} bytes; edit it with a command such as sed."
        )
    encoding = encoding_of(bytes(content[:HEAD_BYTES]), path)
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not valid {encoding} text; edit it with a program.") from error


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


def lines_of(text: str, piece: str, *, places_max: int) -> list[int]:
    """The lines, counted from 1, at which the piece stands in the text."""
    places: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(places) < places_max:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(piece, at + 1)
    return places
