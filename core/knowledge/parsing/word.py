"""Reads Word files: documents and templates, with or without macros, which are never run."""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from docx.opc.constants import CONTENT_TYPE
from docx.opc.part import PartFactory
from docx.oxml import parse_xml
from docx.oxml.ns import qn
from docx.package import Package
from docx.parts.document import DocumentPart
from docx.section import Section

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.plain import split_at_headings
from core.knowledge.parsing.shared import check_package, markdown_table, office_text, unwrap_content

_COLUMNS_MAX = 64  # Word makes no table wider
_BOX, _PARAGRAPH, _TABLE = qn("w:txbxContent"), qn("w:p"), qn("w:tbl")
# python-docx opens only documents without macros
_TEMPLATE = CONTENT_TYPE.WML_DOCUMENT_MAIN.replace("document.main", "template.main")
for _kind in ("document.macroEnabled", "template.macroEnabledTemplate"):
    PartFactory.part_type_for[f"application/vnd.ms-word.{_kind}.main+xml"] = DocumentPart
PartFactory.part_type_for[_TEMPLATE] = DocumentPart


def read_docx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a Word file, one page per heading, because a Word file has no pages before layout.

    Headers and footers come first, footnotes and comments last. Pictures are named. Tracked changes are accepted."""
    check_package(content, limits)
    main: Any = Package.open(io.BytesIO(content)).main_document_part
    opened = main.document
    styles = {style.style_id: style.name or "" for style in opened.styles}
    body = _flat(opened.element).body
    text = "\n\n".join(
        (
            *dict.fromkeys(text for section in opened.sections for text in _margins(section)),
            *_blocks(body, styles, limits.cells_max),
            *_notes(content),
        )
    )
    return Document(title=opened.core_properties.title or "", kind="docx", pages=split_at_headings(text))


def _flat(root: Any) -> Any:
    """Moves what is in content controls, tracked insertions and text boxes to where a plain file has it."""
    unwrap_content(root)
    for box in reversed(list(root.iter(_BOX))):
        for around in [*box.iterancestors(_PARAGRAPH)][:1]:
            for block in box[::-1]:
                around.addnext(block)
    return root


def _blocks(container: Any, styles: Mapping[str, str], cells_max: int) -> Iterator[str]:
    for block in container:
        text = ""
        if block.tag == _PARAGRAPH:
            text = _paragraph(block, styles)
        elif block.tag == _TABLE:
            text = markdown_table(_rows(block), cells_max)
        if text:
            yield text


_NOTES = ("footnotes", "endnotes", "comments")
_MARGINS = [first + place for place in ("header", "footer") for first in ("", "first_page_", "even_page_")]


def _margins(section: Section) -> Iterator[str]:
    """Yields the texts at the top and bottom of the section's pages."""
    for kind in _MARGINS:
        margin = getattr(section, kind)
        if margin.is_linked_to_previous:
            continue
        text = " ".join(office_text(_flat(margin.part.element)).split())
        if text:
            yield f"[{kind.rpartition('_')[2]}: {text}]"


def _notes(content: bytes) -> Iterator[str]:
    """Yields the texts of footnotes, endnotes and comments, which python-docx does not read."""
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        names = set(package.namelist())
        for kind in _NOTES:
            if f"word/{kind}.xml" not in names:
                continue
            for note in _flat(parse_xml(package.read(f"word/{kind}.xml"))):
                text = " ".join(office_text(note).split())
                if text:
                    yield f"[{kind[:-1]} {note.get(qn('w:id'))}: {text}]"


def _paragraph(element: Any, styles: Mapping[str, str]) -> str:
    text = re.sub(" +", " ", office_text(element)).strip()
    style = styles.get(element.style, "")
    if not text:
        return ""
    if style == "Title":
        return f"# {' '.join(text.split())}"
    if style.startswith("Heading ") and style[8:].isdigit():
        return f"{'#' * min(int(style[8:]), 6)} {' '.join(text.split())}"
    return f"- {text}" if style.startswith("List ") else text


def _rows(table: Any) -> Iterator[list[str]]:
    """Yields the table's rows. A merged cell appears only once. Tables in its cells become text."""
    for row in table.tr_lst:
        cells = [""] * min(row.grid_before, _COLUMNS_MAX)
        for cell in row.tc_lst:
            cells.append("" if cell.vMerge == "continue" else office_text(cell))
            cells += [""] * (min(cell.grid_span, _COLUMNS_MAX) - 1)
        yield cells
