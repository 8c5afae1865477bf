"""Reads rich text (rtf) and the binary files of old Word and PowerPoint (doc, ppt)."""

import re
from collections import Counter

import anydoc

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import left_out_page
from core.knowledge.parsing.plain import split_at_headings

_ESCAPED = re.compile(r"\\([^\w\s|\\])")
_MARKS = re.compile(rb"(?<!\\)\\(super|sub|v|deleted0?)(?![a-z0-9]) ?")
_SIGNS = {
    b"super": rb"\super ^",
    b"sub": rb"\sub _",
    b"v": rb"\v [hidden] ",
    b"deleted": rb"\strike ",
    b"deleted0": rb"\strike0 ",
}
"""The marks that are written for superscripts, subscripts, hidden and deleted text, because the library does not
distinguish them from other text."""
_UNREAD = re.compile(rb"\\(annotation|header|footer|fftype2)[lrf]?(?![a-z0-9])")
_UNREAD_NAMES = {b"annotation": "comment", b"header": "header", b"footer": "footer", b"fftype2": "form choice"}
_NOTE = (
    "[In this old kind of file, superscripts and hidden or deleted text look like all other text: 10^6 is shown as 106."
    " Comments and text boxes are not shown.]"
)


def read_old_format(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads the file, one page per heading or slide. Adds a note about what the library does not distinguish."""
    left_out = (Page(None, "Left out", _NOTE),)
    if kind == "rtf":
        left_out = left_out_page(Counter(_UNREAD_NAMES[unread[1]] for unread in _UNREAD.finditer(content)))
        content = _MARKS.sub(lambda mark: _SIGNS[mark[1]], content)
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
    return Document(title="", kind=kind, pages=(*left_out, *pages))
