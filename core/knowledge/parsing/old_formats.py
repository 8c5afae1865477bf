"""Reads rich text (rtf) and the binary files of old Word and PowerPoint (doc, ppt)."""

import re

import anydoc

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.plain import split_at_headings

_ESCAPED = re.compile(r"\\([^\w\s|\\])")
_MARKS = re.compile(rb"\\(super|sub|v)(?![a-z0-9]) ?")
_SIGNS = {b"super": b" ^", b"sub": b" _", b"v": b" [hidden] "}
"""What is put before raised, lowered and hidden rich text, which the library reads as other text."""
_NOTE = (
    "[In this old kind of file, raised and hidden text cannot be told from other text. Comments and text boxes are not"
    " shown.]"
)


def read_old_format(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads the file, one page per heading or slide. Says what the library does not tell apart."""
    if kind == "rtf":
        content = _MARKS.sub(lambda mark: mark[0].rstrip() + _SIGNS[mark[1]], content)
    try:
        text = anydoc.to_markdown_bytes(content)
    except anydoc.EncryptedError as error:
        raise Unreadable("protected") from error
    except anydoc.ResourceLimitError as error:
        raise Unreadable("unpacked") from error
    except anydoc.ConvertError as error:
        raise Unreadable("broken") from error
    pages = split_at_headings(_ESCAPED.sub(r"\1", text))
    if not pages:
        raise Unreadable("empty")
    if kind == "ppt":
        pages = tuple(Page(number, page.place, page.text) for number, page in enumerate(pages, start=1))
    left_out = () if kind == "rtf" else (Page(None, "Left out", _NOTE),)
    return Document(title="", kind=kind, pages=(*left_out, *pages))
