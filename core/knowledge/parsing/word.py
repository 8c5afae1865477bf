"""Reads Word files (docx)."""

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import docx
from docx.document import Document as DocxDocument
from docx.oxml import parse_xml
from docx.oxml.ns import qn
from docx.section import Section
from docx.table import Table
from docx.text.paragraph import Paragraph

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.plain import split_at_headings
from core.knowledge.parsing.shared import check_package, markdown_table

_TABLE_DEPTH_MAX = 5


def read_docx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a Word file, one page per heading, because a Word file has no pages before layout.

    Headers and footers come first, footnotes and comments last. Pictures are named."""
    check_package(content, limits)
    opened = docx.Document(io.BytesIO(content))
    text = "\n\n".join(
        (
            *dict.fromkeys(text for section in opened.sections for text in _margins(section)),
            *_blocks(opened, limits.cells_max),
            *_notes(content),
        )
    )
    return Document(
        title=opened.core_properties.title or "", kind="docx", pages=split_at_headings(text)
    )


def _blocks(opened: DocxDocument, cells_max: int) -> Iterator[str]:
    for block in opened.iter_inner_content():
        text = (
            _paragraph(block)
            if isinstance(block, Paragraph)
            else markdown_table(_rows(block), cells_max)
        )
        if text.strip():
            yield text


_NOTES = ("footnotes", "endnotes", "comments")
_MARGINS = (
    "header",
    "first_page_header",
    "even_page_header",
    "footer",
    "first_page_footer",
    "even_page_footer",
)


def _margins(section: Section) -> Iterator[str]:
    """Yields the texts at the top and bottom of the section's pages."""
    for kind in _MARGINS:
        margin = getattr(section, kind)
        if margin.is_linked_to_previous:
            continue
        rows = (" ".join(row) for table in margin.tables for row in _rows(table))
        text = " ".join(" ".join((*map(_paragraph, margin.paragraphs), *rows)).split())
        if text:
            yield f"[{kind.rpartition('_')[2]}: {text}]"


def _notes(content: bytes) -> Iterator[str]:
    """Yields the texts of footnotes, endnotes and comments, which python-docx does not read."""
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        names = set(package.namelist())
        for kind in _NOTES:
            if f"word/{kind}.xml" not in names:
                continue
            notes: Any = parse_xml(package.read(f"word/{kind}.xml"))
            for note in notes:
                text = "".join(one.text or "" for one in note.iter(qn("w:t"))).strip()
                if text:
                    yield f"[{kind[:-1]} {note.get(qn('w:id'))}: {text}]"


def _paragraph(paragraph: Paragraph) -> str:
    # python-docx has no property for the XML element
    element = getattr(paragraph, "_p")  # noqa: B009
    named = (one.get("descr") or one.get("name") or "" for one in element.iter(qn("wp:docPr")))
    pictures = (f"[picture: {' '.join(one.split())}]" for one in named)
    text = " ".join([paragraph.text.strip(), *pictures]).strip()
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    if not text:
        return ""
    if style == "Title":
        return f"# {' '.join(text.split())}"
    if style.startswith("Heading ") and style[8:].isdigit():
        return f"{'#' * min(int(style[8:]), 6)} {' '.join(text.split())}"
    return f"- {text}" if style.startswith("List ") else text


def _rows(table: Table, depth: int = 1) -> Iterator[list[str]]:
    """Yields the table's rows. A merged cell appears only once."""
    for row in table.rows:
        cells, seen = list[str](), set[object]()
        for cell in row.cells:
            # the parts of a merged cell can be recognised only by their common XML element
            element: object = getattr(cell, "_tc")  # noqa: B009 - it is protected, and there is no other way
            is_new = element not in seen
            seen.add(element)
            inner = ""
            if is_new and depth < _TABLE_DEPTH_MAX:
                inner = " ".join(
                    " ".join(words) for one in cell.tables for words in _rows(one, depth + 1)
                )
            cells.append(f"{cell.text} {inner}".strip() if is_new else "")
        yield cells
