"""Reads OpenDocument files: texts (odt), spreadsheets (ods) and presentations (odp), and templates of each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import (
    Block,
    Cell,
    Mark,
    TextRun,
    build_slide_page,
    change_marks,
    note_block,
    pages_at_headings,
    render_blocks,
    render_runs,
    render_table,
    repeat_merged_cells,
)
from core.knowledge.parsing.lists import ListLevel, ListNumbers
from core.knowledge.parsing.office import OfficePackage, attribute_value, local_name
from core.knowledge.parsing.sheets import Sheet, add_row, build_sheet_page

_HIDDEN = ("collapse", "filter")
_KINDS: dict[str, DocumentKind] = {"text": "odt", "spreadsheet": "ods", "presentation": "odp"}
_NUMBERS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman", "": "none"}
_SIGNS = {"tab": "\t", "line-break": "\n", "s": " "}
_OUTLINE = "the numbers of headings"
_STYLES_MAX = 20
_WITHOUT_BLOCKS = ("tracked-changes", "notes", "frame", "forms")
_UNREAD = ("tracked-changes", "ruby-text", "text-box", "notes", "sequence-decls", "variable-decls")
_REPEATED_MAX = 1_000


def read_open_document(content: bytes, limits: ParseLimits) -> Document:
    """Reads an OpenDocument file in the same way as Office files. Deleted text is not shown."""
    package = OfficePackage(content, limits)
    if next(package.read_cleaned_root("META-INF/manifest.xml").iter("encryption-data"), None) is not None:
        raise Unreadable("protected")
    reader = _Reader(package, limits)
    body = next(reader.content.iter(*_KINDS), None)
    if body is None:
        raise Unreadable("unsupported")
    return package.build_document(_KINDS[body.tag], reader.pages(body))


class _Reader:
    def __init__(self, package: OfficePackage, limits: ParseLimits) -> None:
        self._package, self._limits = package, limits
        self._styles, self._resolved = dict[str, dict[str, str]](), dict[str, dict[str, str]]()
        self._lists = defaultdict[str, ListNumbers](lambda: ListNumbers({}))
        self.content = package.read_cleaned_root("content.xml", is_needed=True)
        self._masters = package.read_cleaned_root("styles.xml")
        for root in (self._masters, self.content):
            for style in root.iter("style"):
                properties = {local_name(key): value for one in (style, *style) for key, value in one.items()}
                self._styles[attribute_value(style, "name")] = properties
            for style in root.iter("list-style", "outline-style"):
                name = attribute_value(style, "name") if style.tag == "list-style" else _OUTLINE
                self._lists[name] = ListNumbers(_read_levels(style))

    def _style(self, element: Any) -> dict[str, str]:
        """Returns the properties of an element's style. If styles inherit from each other, the nearest property
        counts."""
        name = style = attribute_value(element, "style-name")
        if style not in self._resolved:
            properties = dict[str, str]()
            for _ in range(_STYLES_MAX):
                if (found := self._styles.get(name)) is None:
                    break
                properties, name = found | properties, found.get("parent-style-name", "")
            self._resolved[style] = properties
        return self._resolved[style]

    def _is_hidden(self, element: Any) -> bool:
        style = self._style(element)
        return style.get("visibility") == "hidden" or style.get("display") == "false"

    def pages(self, body: Any) -> Iterable[Page]:
        match body.tag:
            case "text":
                margins = [
                    note_block(margin.tag[:6], " ".join(render_blocks(self._blocks(margin)).split()))
                    for margin in self._masters.iterfind(".//master-page/*")
                    if margin.tag.startswith(("header", "footer"))
                ]
                return pages_at_headings((*dict.fromkeys(margins), *self._blocks(body)))
            case "spreadsheet":
                return (build_sheet_page(self._sheet(table), self._limits) for table in body.iterchildren("table"))
            case _:
                return (self._slide(at, slide) for at, slide in enumerate(body.iterchildren("page"), start=1))

    def _slide(self, number: int, slide: Any) -> Page:
        title = next((frame for frame in slide.iter("frame") if attribute_value(frame, "class") == "title"), None)
        heading = "" if title is None else " ".join(render_blocks(self._blocks([title])).split())
        blocks = list(self._blocks(shape for shape in slide if shape is not title and shape.tag != "notes"))
        blocks += (
            note_block("speaker notes", render_blocks(self._blocks(notes))) for notes in slide.iterchildren("notes")
        )
        return build_slide_page(number, heading, blocks, is_hidden=self._is_hidden(slide))

    def _blocks(self, container: Iterable[Any], depth: int = 0, style: str = "") -> Iterator[Block]:
        """Yields the blocks in a container. `depth` is the number of lists around it, and `style` the name of
        their list style."""
        for element in container:
            match element.tag:
                case "h" | "p":
                    yield from self._paragraph(element, is_item=bool(depth))
                case "list":
                    named = attribute_value(element, "style-name") or style
                    if not depth and not any(local_name(key).startswith("continue-") for key in element.attrib):
                        self._lists[named].counts.clear()
                    yield from self._blocks(element, depth + 1, named)
                case "list-item":
                    yield from self._item(element, depth, style)
                case "table":
                    yield Block(render_table(repeat_merged_cells(self._rows(element)), self._limits), "table")
                case "object":
                    chart = self._package.read_cleaned_root(
                        f"{attribute_value(element, 'href').removeprefix('./')}/content.xml"
                    )
                    table = next((table for found in chart.iter("chart") for table in found.iter("table")), None)
                    if table is None:
                        self._package.left_out["embedded object"] += 1
                    else:
                        figures = render_table(repeat_merged_cells(self._rows(table)), self._limits)
                        yield Block(f"[chart]\n\n{figures}", "table")
                case "annotation":
                    yield Block(self._note(element).strip())
                case "frame" if attribute_value(element, "class") not in ("page-number", "page"):
                    yield Block(_name_picture(element))
                    yield from self._blocks(element)
                case name if name not in _WITHOUT_BLOCKS:
                    yield from self._blocks(element, depth, style)
                case _:
                    pass

    def _paragraph(self, element: Any, *, is_item: bool) -> Iterator[Block]:
        line, level = self.line(element), _count(element, "outline-level") if element.tag == "h" else 0
        is_numbered = level and line and not is_item and attribute_value(element, "is-list-header") != "true"
        marker = self._lists[_OUTLINE].next_marker(level - 1).removeprefix("-") if is_numbered else ""
        yield Block(line, "heading" if level else "paragraph", level, marker)
        for box in element.iter("text-box", "object"):
            if next(box.iterancestors("p", "h"), None) is element:
                yield from self._blocks(box if box.tag == "text-box" else [box])

    def _item(self, element: Any, depth: int, style: str) -> Iterator[Block]:
        """Yields the blocks of a list item. An item that begins with a list only adds depth."""
        blocks = self._blocks(element, depth, style)
        if len(element) and element[0].tag in ("p", "h"):
            start = attribute_value(element, "start-value")
            marker = self._lists[style].next_marker(depth - 1, int(start) if start else None)
            first = next(blocks)
            is_heading = first.kind == "heading"
            yield Block(
                first.text, "heading" if is_heading else "item", first.level if is_heading else depth - 1, marker
            )
        yield from blocks

    def line(self, element: Any) -> str:
        return render_runs(self._runs(element, TextRun(""))).strip()

    def _runs(self, element: Any, around: TextRun) -> Iterator[TextRun]:
        marks = change_marks(around.marks, _marks_of(self._style(element)))
        link = attribute_value(element, "href") if element.tag == "a" else around.link
        yield TextRun(" ".join((element.text or " ").split("\n")) if element.text else "", marks, link)
        for child in element:
            if child.tag in _SIGNS:
                yield TextRun(_SIGNS[child.tag] * min(_count(child, "c"), _REPEATED_MAX), marks, link)
            elif child.tag in ("note", "annotation"):
                yield TextRun(self._note(child))
            elif child.tag == "frame":
                yield TextRun(_name_picture(child))
            elif child.tag not in _UNREAD:
                yield from self._runs(child, TextRun("", marks, link))
            yield TextRun((child.tail or "").replace("\n", " "), marks, link)

    def _note(self, element: Any) -> str:
        body = element.find("note-body") if element.tag == "note" else element
        words = " ".join(render_blocks(self._blocks(body if body is not None else ())).split())
        kind, author = attribute_value(element, "note-class") or "comment", element.findtext("creator") or ""
        return f" {note_block(kind, words, author).text}"

    def _rows(self, table: Any) -> Iterator[list[Cell]]:
        for row in table.iter("table-row"):
            if next(row.iterancestors("table"), None) is table:
                cells = row.iterchildren("table-cell")
                yield [Cell(render_blocks(self._blocks(cell)), *_spans(cell)) for cell in cells]

    def _sheet(self, table: Any) -> Sheet:
        sheet = Sheet(attribute_value(table, "name"), self._is_hidden(table))
        at = 0
        for column in table.iter("table-column"):
            count = min(_count(column, "number-columns-repeated"), 16_384)
            if attribute_value(column, "visibility") in _HIDDEN:
                sheet.hidden_columns.update(range(at, at + count))
            at += count
        number = 0
        for row in table.iter("table-row"):
            texts = dict(self._sheet_cells(row, number, sheet))
            count = _count(row, "number-rows-repeated")
            for repeated in range(number, number + count if texts else number):
                add_row(sheet, repeated, texts, self._limits, is_hidden=attribute_value(row, "visibility") in _HIDDEN)
            number += count
        for shapes in table.iterchildren("shapes"):
            sheet.blocks += self._blocks(shapes)
        return sheet

    def _sheet_cells(self, row: Any, number: int, sheet: Sheet) -> Iterator[tuple[int, str]]:
        at = 0
        for cell in row.iterchildren("table-cell", "covered-table-cell"):
            count = _count(cell, "number-columns-repeated")
            paragraphs = "\n".join(self.line(paragraph) for paragraph in cell.iterchildren("p"))
            marks = change_marks(frozenset(), _marks_of(self._style(cell)))
            text = render_runs([TextRun(paragraphs or attribute_value(cell, "value"), marks)])
            for drawn in cell:
                if drawn.tag == "annotation":
                    sheet.blocks.append(Block(f"{self._note(drawn).strip()} (at {text or 'an empty cell'})"))
                elif drawn.tag != "p":
                    sheet.blocks += self._blocks([drawn])
            if text:
                yield from ((column, text) for column in range(at, at + min(count, _REPEATED_MAX)))
            columns, rows = _spans(cell)
            if rows > 1 or columns > 1:
                sheet.merged.append((number, number + rows - 1, at, at + columns - 1))
            at += count


def _read_levels(style: Any) -> dict[int, ListLevel]:
    """Returns how a list style numbers the items of each depth."""
    levels = dict[int, ListLevel]()
    for level in style:
        depth, kind = _count(level, "level"), attribute_value(level, "num-format")
        outer = range(max(depth - _count(level, "display-levels"), 0) + 1, depth)
        shown = [f"%{at}" for at in outer if levels.get(at - 1, ListLevel("none", "")).kind != "none"]
        pattern = ".".join((*shown, f"%{depth}") if kind else shown)
        is_numbered = level.tag in ("list-level-style-number", "outline-level-style")
        levels[depth - 1] = ListLevel(
            _NUMBERS.get(kind, kind) if is_numbered else "bullet",
            attribute_value(level, "num-prefix") + pattern + attribute_value(level, "num-suffix") if pattern else "",
            _count(level, "start-value"),
        )
    return levels


def _count(element: Any, name: str) -> int:
    return int(attribute_value(element, name) or 1)


def _spans(cell: Any) -> tuple[int, int]:
    """Returns how many columns and rows a cell covers."""
    return _count(cell, "number-columns-spanned"), _count(cell, "number-rows-spanned")


def _marks_of(properties: dict[str, str]) -> Mapping[Mark, bool]:
    """Returns the marks that the properties of a style switch on or off."""
    marks: dict[Mark, bool] = {}
    if place := properties.get("text-position", ""):
        marks["superscript"] = place.startswith("super") or place[0] in "123456789"
        marks["subscript"] = place.startswith(("sub", "-"))
    if strike := properties.get("text-line-through-style", ""):
        marks["struck"] = strike != "none"
    if display := properties.get("display", ""):
        marks["hidden"] = display == "none"
    return marks


def _name_picture(frame: Any) -> str:
    """Returns a description of a frame's image. Returns an empty text if there is none, or if the image stands for a
    table or chart."""
    if frame.find("image") is None or frame.find("object") is not None or frame.find("table") is not None:
        return ""
    label = frame.findtext("desc") or frame.findtext("title") or attribute_value(frame, "name")
    return f"[picture: {' '.join(label.split())}]"
