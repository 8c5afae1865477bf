"""Reads plain text, Markdown, CSV and TSV files."""

import csv
import io
import re
from collections.abc import Iterable

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.shared import decode_text, markdown_table

_DELIMITERS = ",;\t|"
_CELL_CHARACTERS_MAX = 1_000_000
_HEADING = re.compile(r"#{1,6}[ \t]+(.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


def read_text(content: bytes, limits: ParseLimits, kind: DocumentKind = "txt") -> Document:
    """Reads plain text. Form feeds, if any, separate pages."""
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    parts = text.split("\f")
    if len(parts) > limits.pages_max:
        raise Unreadable("pages", str(len(parts)))
    is_paged = sum(bool(part.strip()) for part in parts) > 1
    pages = [Page(number if is_paged else None, "", part) for number, part in enumerate(parts, start=1) if part.strip()]
    return Document(title="", kind=kind, pages=tuple(pages))


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


def read_separated(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads a CSV or TSV file as one table. Detects the delimiter of a CSV file from its first lines.

    Of a file that is too large, reads the first rows and says so."""
    is_cut = len(content) >= limits.file_bytes_max
    text = decode_text(content[: content.rfind(b"\n") + 1] if is_cut else content)
    csv.field_size_limit(_CELL_CHARACTERS_MAX)
    delimiter = "\t" if kind == "tsv" else _delimiter(text[:10_000])
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows, is_whole = _first_rows(reader, limits)
        table = markdown_table(rows)
    except csv.Error as error:
        raise Unreadable("broken") from error
    pages = (Page(None, "", table),)
    if is_cut or not is_whole:
        note = f"[Only the first {len(rows):,} rows are read; the file goes on. A program can go through all of it.]"
        pages = (Page(None, "Left out", note), *pages)
    return Document(title="", kind=kind, pages=pages)


_CELL_CHARACTERS = 3
"""How many characters a table adds to each cell, and below each column's header."""
_HEADER_CHARACTERS = 6
_NOTE_CHARACTERS = 200


def _first_rows(rows: Iterable[list[str]], limits: ParseLimits) -> tuple[list[list[str]], bool]:
    """Returns the rows that fit into the limits as a table, in which all rows are equally wide, and whether these are
    all. Raises Unreadable if not even the first row fits."""
    kept, width, characters = list[list[str]](), 0, 0
    for row in rows:
        width = max(width, len(row))
        characters += sum(map(len, row)) + row.count("|")
        cells = width * (len(kept) + 2)
        if cells > limits.cells_max:
            break
        marks = cells * _CELL_CHARACTERS + width * _HEADER_CHARACTERS + 2 * len(kept)
        if characters + marks > limits.text_characters_max - _NOTE_CHARACTERS:
            break
        kept.append(row)
    else:
        return kept, True
    if not kept:
        raise Unreadable("cells", str(limits.cells_max))
    return kept, False


def _delimiter(head: str) -> str:
    """Returns the delimiter that occurs most often in each of the first lines."""
    lines = [line for line in head.splitlines()[:20] if line.strip()]
    if not lines:
        return ","
    return max(_DELIMITERS, key=lambda mark: min(line.count(mark) for line in lines[:5]))
