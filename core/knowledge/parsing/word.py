"""Reads Word files (docx)."""

import io
from collections.abc import Iterator

import docx
from docx.document import Document as DocxDocument
from docx.table import Table
from docx.text.paragraph import Paragraph

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.plain import split_at_headings
from core.knowledge.parsing.shared import check_package, limit_cells, markdown_table

_TABLE_DEPTH_MAX = 5


def read_docx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a Word file, one page per heading, because a Word file has no pages before layout."""
    check_package(content, limits)
    opened = docx.Document(io.BytesIO(content))
    text = "\n\n".join(_blocks(opened, limits.cells_max))
    return Document(
        title=opened.core_properties.title or "", kind="docx", pages=split_at_headings(text)
    )


def _blocks(opened: DocxDocument, cells_max: int) -> Iterator[str]:
    for block in opened.iter_inner_content():
        text = (
            _paragraph(block)
            if isinstance(block, Paragraph)
            else markdown_table(limit_cells(_rows(block), cells_max))
        )
        if text.strip():
            yield text


def _paragraph(paragraph: Paragraph) -> str:
    text = paragraph.text.strip()
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
