"""Reads plain text and Markdown files."""

import re

from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.encodings import decode_text

_HEADING = re.compile(r"#{1,6}[ \t]+(.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


def read_text(content: bytes, limits: ParseLimits) -> Document:
    """Reads plain text. Form feeds, if any, separate pages."""
    parts = decode_text(content).replace("\r\n", "\n").replace("\r", "\n").split("\f")
    limits.check(pages=len(parts))
    is_paged = sum(bool(part.strip()) for part in parts) > 1
    pages = [Page(number if is_paged else None, "", part) for number, part in enumerate(parts, start=1) if part.strip()]
    return Document(title="", kind="txt", pages=tuple(pages))


def read_markdown(content: bytes, limits: ParseLimits) -> Document:
    """Reads Markdown, one page per heading."""
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    headings = filter(None, map(_HEADING.match, text.split("\n", 50)[:50]))
    title = next(map(_heading_text, headings), "")
    return Document(title=title, kind="md", pages=split_at_headings(text))


def split_at_headings(text: str) -> tuple[Page, ...]:
    """Splits Markdown before each heading outside code fences, so each heading stays with its text."""
    pages: list[Page] = []
    place, lines, fence = "", list[str](), ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading:
            pages.append(Page(None, place, "\n".join(lines)))
            place, lines = _heading_text(heading), []
        lines.append(line)
    pages.append(Page(None, place, "\n".join(lines)))
    return tuple(page for page in pages if page.text.strip())


def _heading_text(heading: re.Match[str]) -> str:
    return heading[1].rstrip(" \t#").strip()
