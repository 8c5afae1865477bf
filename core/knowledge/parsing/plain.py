"""Reads plain text, Markdown, CSV and TSV files."""

import csv
import io
import re

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.shared import decode_text, limit_cells, markdown_table

_DELIMITERS = ",;\t|"
_CELL_CHARACTERS_MAX = 1_000_000
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*$")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


def read_text(content: bytes, limits: ParseLimits, kind: DocumentKind = "txt") -> Document:
    """Reads plain text. Form feeds, if any, separate pages."""
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    parts = text.split("\f")
    if len(parts) > limits.pages_max:
        raise Unreadable("pages", str(len(parts)))
    is_paged = sum(bool(part.strip()) for part in parts) > 1
    pages = [
        Page(number if is_paged else None, "", part)
        for number, part in enumerate(parts, start=1)
        if part.strip()
    ]
    return Document(title="", kind=kind, pages=tuple(pages))


def read_markdown(content: bytes, limits: ParseLimits) -> Document:
    """Reads Markdown, one page per heading."""
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    return Document(title=_first_heading(text), kind="md", pages=split_at_headings(text))


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
            place, lines = heading[1].strip(), []
        lines.append(line)
    pages.append(Page(None, place, "\n".join(lines)))
    return tuple(page for page in pages if page.text.strip())


def _first_heading(text: str) -> str:
    return next((found[1] for line in text.split("\n")[:50] if (found := _HEADING.match(line))), "")


def read_separated(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads a CSV or TSV file as one table. Detects the delimiter of a CSV file from its first lines."""
    text = decode_text(content)
    csv.field_size_limit(_CELL_CHARACTERS_MAX)
    delimiter = "\t" if kind == "tsv" else _delimiter(text[:10_000])
    try:
        rows = limit_cells(
            csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), limits.cells_max
        )
        table = markdown_table(rows)
    except csv.Error as error:
        raise Unreadable("broken") from error
    return Document(title="", kind=kind, pages=(Page(None, "", table),))


def _delimiter(head: str) -> str:
    """Returns the delimiter that occurs most often in each of the first lines."""
    lines = [line for line in head.splitlines()[:20] if line.strip()]
    if not lines:
        return ","
    return max(_DELIMITERS, key=lambda mark: min(line.count(mark) for line in lines[:5]))
