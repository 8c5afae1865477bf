"""Reads OpenDocument files: texts (odt), spreadsheets (ods) and presentations (odp), and templates of each."""

from collections.abc import Iterable, Iterator
from typing import Any

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.model import (
    Block,
    Cell,
    Mark,
    Run,
    note,
    pages_at_headings,
    render_blocks,
    render_runs,
    render_table,
    repeat_merged_cells,
    slide_page,
    spell_number,
)
from core.knowledge.parsing.office import Package, attribute, local_name
from core.knowledge.parsing.sheets import Sheet, add_row, sheet_page

_HIDDEN = ("collapse", "filter")
_KINDS: dict[str, DocumentKind] = {"text": "odt", "spreadsheet": "ods", "presentation": "odp"}
_NUMBERS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman", "": "none"}
_SIGNS = {"tab": "\t", "line-break": "\n", "s": " "}
_UNREAD = ("tracked-changes", "ruby-text", "text-box", "notes", "sequence-decls", "variable-decls")
_REPEATED_MAX = 1_000


def read_open_document(content: bytes, limits: ParseLimits) -> Document:
    """Reads an OpenDocument file as the readers of Office files read theirs. Deleted text is not shown."""
    package = Package(content, limits)
    if next(package.root("META-INF/manifest.xml").iter("encryption-data"), None) is not None:
        raise Unreadable("protected")
    reader = _Reader(package, limits)
    body = next(reader.content.iter(*_KINDS), None)
    if body is None:
        raise Unreadable("unsupported")
    return package.document(_KINDS[body.tag], reader.pages(body))


class _Reader:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self._package, self._limits = package, limits
        self._marks = dict[str, frozenset[Mark]]()
        self._hidden = set[str]()
        self._lists = dict[str, dict[str, Any]]()
        self.content = package.root("content.xml", is_needed=True)
        for root in (package.root("styles.xml"), self.content):
            for style in root.iter("style"):
                name = attribute(style, "name")
                properties = {local_name(key): value for one in style for key, value in one.items()}
                self._marks[name] = _marks_of(properties)
                if properties.get("visibility") == "hidden" or properties.get("display") == "false":
                    self._hidden.add(name)
            for style in root.iter("list-style"):
                self._lists[attribute(style, "name")] = {attribute(level, "level"): level for level in style}

    def pages(self, body: Any) -> Iterable[Page]:
        match body.tag:
            case "text":
                return pages_at_headings(self._blocks(body))
            case "spreadsheet":
                return (sheet_page(self._sheet(table), self._limits) for table in body.iterchildren("table"))
            case _:
                return (self._slide(at, slide) for at, slide in enumerate(body.iterchildren("page"), start=1))

    def _slide(self, number: int, slide: Any) -> Page:
        title = next((frame for frame in slide.iter("frame") if attribute(frame, "class") == "title"), None)
        heading = "" if title is None else " ".join(render_blocks(self._boxes(title)).split())
        blocks = [
            block for shape in slide if shape is not title and shape.tag != "notes" for block in self._boxes(shape)
        ]
        for notes in slide.iterchildren("notes"):
            words = render_blocks(block for frame in notes for block in self._boxes(frame))
            blocks.append(note("speaker notes", words))
        return slide_page(number, heading, blocks, is_hidden=attribute(slide, "style-name") in self._hidden)

    def _boxes(self, shape: Any) -> Iterator[Block]:
        """Yields the blocks in a shape of a slide, or of a frame in a text."""
        if shape.tag in ("frame", "g", "text-box", "custom-shape", "rect", "ellipse", "a"):
            if picture := _name_picture(shape):
                yield Block(picture)
            elif shape.tag == "frame" and attribute(shape, "class") in ("page-number", "page"):
                return
            for inner in shape:
                yield from self._boxes(inner)
        else:
            yield from self._blocks([shape])

    def _blocks(self, container: Any, numbers: tuple[int, ...] = (), style: str = "") -> Iterator[Block]:
        """Yields the blocks in a container. `numbers` are those of the list items around it."""
        number = 0
        for element in container:
            match element.tag:
                case "h" | "p":
                    line = self.line(element)
                    level = _count(element, "outline-level") if element.tag == "h" else 0
                    yield Block(line, "heading" if level else "paragraph", level)
                    for box in element.iter("text-box", "object"):
                        if next(box.iterancestors("p", "h"), None) is element:
                            yield from self._blocks(box if box.tag == "text-box" else [box])
                case "list":
                    yield from self._blocks(element, (*numbers, 0), attribute(element, "style-name") or style)
                case "list-item" | "list-header":
                    number = int(attribute(element, "start-value") or number + (element.tag == "list-item"))
                    path = (*numbers[:-1], number)
                    inner = list(self._blocks(element, path, style))
                    if element.tag == "list-item" and inner and inner[0].kind == "paragraph":
                        inner[0] = Block(inner[0].text, "item", len(path) - 1, self._marker(style, path))
                    yield from inner
                case "table":
                    yield Block(render_table(repeat_merged_cells(self._rows(element)), self._limits), "table")
                case "object":
                    yield self._object(element)
                case "annotation":
                    yield Block(self._note(element).strip())
                case "section" | "index-body" | "table-of-content" | "list-block":
                    yield from self._blocks(element)
                case _:
                    pass

    def _object(self, element: Any) -> Block:
        """Returns the figures of a chart."""
        chart = self._package.root(f"{attribute(element, 'href').removeprefix('./')}/content.xml")
        table = next((table for found in chart.iter("chart") for table in found.iter("table")), None)
        if table is None:
            self._package.left_out["embedded object"] += 1
            return Block("")
        return Block(f"[chart]\n\n{render_table(repeat_merged_cells(self._rows(table)), self._limits)}", "table")

    def _marker(self, style: str, numbers: tuple[int, ...]) -> str:
        levels = [self._lists.get(style, {}).get(str(at)) for at in range(1, len(numbers) + 1)]
        level = levels[-1]
        if level is None or level.tag != "list-level-style-number":
            return "-"
        first = len(levels) - _count(level, "display-levels")
        shown = zip(levels[max(first, 0) :], numbers[max(first, 0) :], strict=True)
        kinds = ((attribute(held, "num-format") if held is not None else "1", number) for held, number in shown)
        spelled = ".".join(spell_number(number, _NUMBERS.get(kind, kind)) for kind, number in kinds)
        return attribute(level, "num-prefix") + spelled + attribute(level, "num-suffix")

    def line(self, element: Any) -> str:
        return render_runs(self._runs(element, Run(""))).strip()

    def _runs(self, element: Any, around: Run) -> Iterator[Run]:
        marks = around.marks | self._marks.get(attribute(element, "style-name"), frozenset())
        link = attribute(element, "href") if element.tag == "a" else around.link
        yield Run(" ".join((element.text or " ").split("\n")) if element.text else "", marks, link)
        for child in element:
            if child.tag in _SIGNS:
                yield Run(_SIGNS[child.tag] * min(_count(child, "c"), _REPEATED_MAX), marks, link)
            elif child.tag in ("note", "annotation"):
                yield Run(self._note(child))
            elif child.tag == "frame":
                yield Run(_name_picture(child))
            elif child.tag not in _UNREAD:
                yield from self._runs(child, Run("", marks, link))
            yield Run((child.tail or "").replace("\n", " "), marks, link)

    def _note(self, element: Any) -> str:
        body = element.find("note-body") if element.tag == "note" else element
        words = " ".join(render_blocks(self._blocks(body if body is not None else ())).split())
        return f" {note(attribute(element, 'note-class') or 'comment', words, element.findtext('creator') or '').text}"

    def _rows(self, table: Any) -> Iterator[list[Cell]]:
        for row in table.iter("table-row"):
            if next(row.iterancestors("table"), None) is table:
                cells = row.iterchildren("table-cell")
                yield [Cell(render_blocks(self._blocks(cell)), *_spans(cell)) for cell in cells]

    def _sheet(self, table: Any) -> Sheet:
        sheet = Sheet(attribute(table, "name"), attribute(table, "style-name") in self._hidden)
        at = 0
        for column in table.iter("table-column"):
            count = min(_count(column, "number-columns-repeated"), 16_384)
            if attribute(column, "visibility") in _HIDDEN:
                sheet.hidden_columns.update(range(at, at + count))
            at += count
        number = 0
        for row in table.iter("table-row"):
            texts = dict(self._sheet_cells(row, number, sheet))
            count = _count(row, "number-rows-repeated")
            for repeated in range(number, number + count if texts else number):
                add_row(sheet, repeated, texts, self._limits, is_hidden=attribute(row, "visibility") in _HIDDEN)
            number += count
        for shapes in table.iterchildren("shapes"):
            sheet.blocks += [note("text box", block.text) for shape in shapes for block in self._boxes(shape)]
        return sheet

    def _sheet_cells(self, row: Any, number: int, sheet: Sheet) -> Iterator[tuple[int, str]]:
        at = 0
        for cell in row.iterchildren("table-cell", "covered-table-cell"):
            count = _count(cell, "number-columns-repeated")
            paragraphs = "\n".join(self.line(paragraph) for paragraph in cell.iterchildren("p"))
            marks = self._marks.get(attribute(cell, "style-name"), frozenset())
            text = render_runs([Run(paragraphs or attribute(cell, "value"), marks)])
            for comment in cell.iterchildren("annotation"):
                sheet.blocks.append(Block(f"{self._note(comment).strip()} (at {text or 'an empty cell'})"))
            if text:
                yield from ((column, text) for column in range(at, at + min(count, _REPEATED_MAX)))
            columns, rows = _spans(cell)
            if rows > 1 or columns > 1:
                sheet.merged.append((number, number + rows - 1, at, at + columns - 1))
            at += count


def _count(element: Any, name: str) -> int:
    return int(attribute(element, name) or 1)


def _spans(cell: Any) -> tuple[int, int]:
    """Returns how many columns and rows a cell covers."""
    return _count(cell, "number-columns-spanned"), _count(cell, "number-rows-spanned")


def _marks_of(properties: dict[str, str]) -> frozenset[Mark]:
    place = properties.get("text-position", "0%")
    marks: tuple[tuple[Mark, bool], ...] = (
        ("struck", properties.get("text-line-through-style", "none") != "none"),
        ("superscript", place.startswith("super") or place[0] in "123456789"),
        ("subscript", place.startswith(("sub", "-"))),
        ("hidden", properties.get("display") == "none"),
    )
    return frozenset(mark for mark, is_set in marks if is_set)


def _name_picture(frame: Any) -> str:
    """Returns what a frame's picture shows, or an empty text if there is none, or it stands for a table or chart."""
    if frame.find("image") is None or frame.find("object") is not None or frame.find("table") is not None:
        return ""
    label = frame.findtext("desc") or frame.findtext("title") or attribute(frame, "name")
    return f"[picture: {' '.join(label.split())}]"
