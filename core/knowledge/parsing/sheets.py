"""Reads Excel files, new (xlsx, with macros xlsm) and old (xls)."""

import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import lxml.etree as untyped
import xlrd
from xlrd.biffh import XLRDError

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import (
    REPEATED_CHARACTERS_MAX,
    Block,
    TextRun,
    change_marks,
    note_block,
    render_blocks,
    render_runs,
    render_table,
)
from core.knowledge.parsing.number_formats import BUILT_IN, format_number, format_stored_number
from core.knowledge.parsing.office import (
    DAMAGE,
    OfficePackage,
    PartText,
    attribute_value,
    is_switched_on,
    local_name,
    marks_of,
    relation_id,
)

_ETREE: Any = untyped
_COLUMNS_MAX = 16_384
_EMPTY_COLUMNS_MAX = 10  # for each column with content
_REFERENCE = re.compile("([A-Z]{1,3})([0-9]{1,7})")
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")  # a character that XML cannot hold
_LINK = re.compile(r'HYPERLINK\("([^"]+)"', re.IGNORECASE)
_THREADED = "[Threaded comment]"  # the beginning of a comment's copy for old programs


@dataclass(slots=True)
class Sheet:
    """A sheet while it is being read. Rows and columns count from 0. `merged` contains the first and last row and
    column of each group of merged cells. `blocks` follow the table."""

    name: str
    is_hidden: bool = False
    cells: int = 0
    characters: int = 0
    rows: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    merged: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    blocks: list[Block] = field(default_factory=list[Block])


def build_sheet_page(sheet: Sheet, limits: ParseLimits) -> Page:
    """Renders a sheet as a page. Merged cells are repeated, and hidden parts are marked."""
    _repeat_merged(sheet, limits)
    numbers, marked = sorted(number for number, row in sheet.rows.items() if any(row.values())), set[int]()
    for number in numbers:
        row = sheet.rows[number]
        for column in [column for column in row if column in sheet.hidden_columns and column not in marked]:
            row[column] = f"[hidden column] {row[column]}"
            marked.add(column)
        if number in sheet.hidden_rows:
            row[min(row)] = f"[hidden row] {row[min(row)]}"

    used = sorted({column for number in numbers for column, text in sheet.rows[number].items() if text})
    # a cell far to the right must not make every row long
    columns = range(used[-1] + 1) if used and used[-1] < _EMPTY_COLUMNS_MAX * len(used) else used
    texts = ([sheet.rows[number].get(column, "") for column in columns] for number in numbers)
    table = Block(render_table(texts, limits), "table")
    has_content = table.text or sheet.blocks
    hidden = Block("[hidden sheet]" if sheet.is_hidden and has_content else "")
    return Page(None, sheet.name, render_blocks((hidden, table, *sheet.blocks)))


def add_row(sheet: Sheet, number: int, cells: dict[int, str], limits: ParseLimits, *, is_hidden: bool = False) -> None:
    """Adds the texts of a row, by column. Raises Unreadable if the sheet becomes too large."""
    sheet.rows.setdefault(number, {}).update(cells)
    sheet.cells += len(cells)
    sheet.characters += sum(map(len, cells.values()))
    limits.check(cells=sheet.cells, characters=sheet.characters)
    if is_hidden:
        sheet.hidden_rows.add(number)


def _repeat_merged(sheet: Sheet, limits: ParseLimits) -> None:
    """Repeats the text of merged cells, unless it is a title that has its row to itself."""
    numbers, steps = sorted(sheet.rows), 0
    for first, last, left, right in sheet.merged:
        start = sheet.rows.get(first, {})
        text = start.get(left, "")
        if not text or len(text) > REPEATED_CHARACTERS_MAX:
            continue
        is_title = first == last and not any(value for column, value in start.items() if not left <= column <= right)
        for number in numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]:
            row = sheet.rows[number]
            columns = range(left, left + 1 if is_title else right + 1)
            steps += len(columns)
            limits.check(cells=steps)
            row |= {column: row.get(column) or text for column in columns}


def read_xlsx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a workbook, one page per sheet, with values as their formats show them. A formula without a stored value is
    shown itself, because programs that write workbooks often calculate nothing. Notes how many charts and images are
    left out."""
    package = OfficePackage(content, limits)
    reader = _WorkbookReader(package, limits)
    return package.build_document("xlsx", (build_sheet_page(sheet, limits) for sheet in reader.sheets()))


class _WorkbookReader:
    def __init__(self, package: OfficePackage, limits: ParseLimits) -> None:
        self._package, self._limits, self._part = package, limits, package.main_part()
        self._relations = package.relations(self._part)
        parts = {relation.kind: relation.target for relation in self._relations.values()}
        # without its texts and formats, a workbook would show other values
        strings, styles = (
            package.read_cleaned_root(parts.get(kind, ""), is_needed=parts.get(kind, "").lower() in package.names())
            for kind in ("sharedStrings", "styles")
        )
        self._strings = [_rich_text(item) for item in strings.iter("si")]
        self._people = {
            attribute_value(person, "id"): attribute_value(person, "displayName")
            for relation in self._relations.values()
            if relation.kind == "person"
            for person in package.read_cleaned_root(relation.target).iter("person")
        }
        codes = {code.get("numFmtId"): code.get("formatCode", "") for code in styles.iter("numFmt")}
        struck = [is_switched_on(font, "strike") for font in styles.iterfind("fonts/font")]
        self._formats = list[tuple[str, bool]]()
        for style in styles.iterfind("cellXfs/xf"):
            number, font = style.get("numFmtId", "0"), int(style.get("fontId", "0"))
            code = codes.get(number) or BUILT_IN.get(int(number), "")
            self._formats.append((code, struck[font] if font < len(struck) else False))

    def sheets(self) -> Iterator[Sheet]:
        book = self._package.read_cleaned_root(self._part, is_needed=True)
        properties = book.find("workbookPr")
        self._is_1904 = properties is not None and properties.get("date1904", "0") in ("1", "true")
        for element in book.iterfind("sheets/sheet"):
            relation = self._relations.get(relation_id(element))
            if relation is None or relation.kind != "worksheet":
                self._package.left_out["chart sheet"] += 1
                continue
            sheet = Sheet(element.get("name", ""), element.get("state", "visible") != "visible")
            try:
                self._read_sheet(sheet, relation.target)
            except DAMAGE as error:  # the rows before the damaged part are complete
                self._package.count_damage(error)
            yield sheet

    def _read_sheet(self, sheet: Sheet, part: str) -> None:
        text, number = PartText(self._package, part), -1
        with self._package.open_part(part) as opened:
            wanted = [f"{{*}}{name}" for name in ("row", "col", "mergeCell", "hyperlink")]
            for _, element in _ETREE.iterparse(opened, tag=wanted, resolve_entities=False, remove_comments=True):
                match local_name(element.tag):
                    case "row":
                        number, column, cells = int(element.get("r") or number + 2) - 1, -1, dict[int, str]()
                        for cell in element:
                            reference = _REFERENCE.fullmatch(cell.get("r", ""))
                            column = _column_number(reference[1]) if reference else column + 1
                            if shown := self._cell_text(cell):
                                cells[column] = shown
                        is_hidden = element.get("hidden") in ("1", "true")
                        add_row(sheet, number, cells, self._limits, is_hidden=is_hidden)
                    case "col" if element.get("hidden") in ("1", "true"):
                        last = min(int(element.get("max")), _COLUMNS_MAX)
                        sheet.hidden_columns.update(range(int(element.get("min")) - 1, last))
                    case "mergeCell":
                        (first, left), (last, right) = _corners(element.get("ref", ""))
                        sheet.merged.append((first, last, left, right))
                    case "hyperlink":
                        (at, column), _ = _corners(element.get("ref", ""))
                        _link_cell(sheet, at, column, text.relation_target(element))
                    case _:
                        pass
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
        self._read_notes(sheet, part)

    def _cell_text(self, cell: Any) -> str:
        parts = {child.tag.rpartition("}")[2]: child for child in cell}
        formula = (parts["f"].text or "") if "f" in parts else ""
        style, kind = int(cell.get("s", "0")), cell.get("t", "n")
        code, is_struck = self._formats[style] if style < len(self._formats) else ("", False)
        if "is" in parts:
            for element in parts["is"].iter("*"):
                element.tag = local_name(element.tag)
            shown = _rich_text(parts["is"])
        elif "v" in parts and (parts["v"].text or kind == "str"):
            shown = self._value_text(parts["v"].text or "", kind, code)
        elif "f" in parts:
            shown = f"={formula} (not calculated)" if formula else "(a formula, not calculated)"
        else:
            return ""
        if shown and (link := _LINK.match(formula)):
            shown = render_runs([TextRun(shown, link=link[1])])
        return f"~~{shown}~~" if is_struck and shown else shown

    def _value_text(self, value: str, kind: str, code: str) -> str:
        match kind:
            case "n":
                return format_stored_number(value, code, is_1904=self._is_1904)
            case "s":
                number = int(value) if value.isdecimal() else len(self._strings)
                return self._strings[number] if number < len(self._strings) else "[missing text]"
            case "b":
                return "TRUE" if value == "1" else "FALSE"
            case "d":
                return re.sub("T00:00:00(?:[.]0+)?Z?$", "", value)
            case _:
                return _unescape(value)

    def _read_notes(self, sheet: Sheet, part: str) -> None:
        """Adds the comments, text boxes and charts of a sheet."""
        for relation in self._package.relations(part).values():
            if relation.kind == "drawing":
                root, text = self._package.read_cleaned_root(relation.target), PartText(self._package, relation.target)
                for body in root.iter("txBody"):
                    sheet.blocks.append(note_block("text box", "\n".join(map(text.line, body.iter("p")))))
                self._package.left_out["chart"] += sum(1 for _ in root.iter("chart"))
                self._package.left_out["picture"] += sum(1 for _ in root.iter("pic"))
            elif relation.kind in ("comments", "threadedComment"):
                root = self._package.read_cleaned_root(relation.target)
                authors = self._people | {str(at): one.text or "" for at, one in enumerate(root.iter("author"))}
                for comment in root.iter("comment", "threadedComment"):
                    words = "".join(text.text or "" for text in comment.iter("t", "text")).strip()
                    if not words.startswith(_THREADED):
                        author = authors.get(comment.get("authorId") or comment.get("personId", ""), "")
                        sheet.blocks.append(note_block(f"comment on {comment.get('ref', '')}", words, author))


def _rich_text(item: Any) -> str:
    pieces = (piece for piece in item if piece.tag in ("t", "r"))
    return _unescape(
        render_runs(
            TextRun(piece.text or "")
            if piece.tag == "t"
            else TextRun(piece.findtext("t") or "", change_marks(frozenset(), marks_of(piece.find("rPr"))))
            for piece in pieces
        )
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text


def _link_cell(sheet: Sheet, row: int, column: int, address: str) -> None:
    if shown := sheet.rows.get(row, {}).get(column):
        sheet.rows[row][column] = render_runs([TextRun(shown, link=address)])


def _corners(reference: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the rows and columns of the first and the last cell of a range."""
    corners = [(int(row) - 1, _column_number(letters)) for letters, row in _REFERENCE.findall(reference)] or [(-1, -1)]
    return corners[0], corners[-1]


@lru_cache(_COLUMNS_MAX)
def _column_number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return min(number, _COLUMNS_MAX) - 1


def read_xls(content: bytes, limits: ParseLimits) -> Document:
    """Reads an old workbook in the same way as `read_xlsx` reads a new one."""
    try:
        book = xlrd.open_workbook(file_contents=content, on_demand=True, formatting_info=True, logfile=io.StringIO())
    except XLRDError as error:
        raise Unreadable("protected" if "encrypted" in str(error).lower() else "broken") from error
    pages = list[Page]()
    for name in book.sheet_names():
        old: Any = book.sheet_by_name(name)
        sheet = Sheet(name, bool(old.visibility))
        sheet.hidden_columns = {column for column, known in old.colinfo_map.items() if known.hidden}
        sheet.merged = [(first, last - 1, left, right - 1) for first, last, left, right in old.merged_cells]
        for number in range(old.nrows):
            cells = {column: _old_text(book, cell) for column, cell in enumerate(old.row(number))}
            known = old.rowinfo_map.get(number)
            add_row(sheet, number, cells, limits, is_hidden=bool(known and known.hidden))
        for link in old.hyperlink_list:
            address = link.url_or_path or ""
            address = address if isinstance(address, str) else address.decode("utf-8", "replace")
            _link_cell(sheet, link.frowx, link.fcolx, address.rstrip("\0"))
        for (number, column), comment in old.cell_note_map.items():
            sheet.blocks.append(note_block(f"comment on {xlrd.cellname(number, column)}", comment.text, comment.author))
        pages.append(build_sheet_page(sheet, limits))
        book.unload_sheet(name)
    return Document(title="", kind="xls", pages=tuple(pages))


def _old_text(book: Any, cell: Any) -> str:
    is_styled = cell.xf_index is not None and cell.xf_index < len(book.xf_list)
    style = book.xf_list[cell.xf_index] if is_styled else None
    known = book.format_map.get(style.format_key) if style else None
    match cell.ctype:
        case xlrd.XL_CELL_NUMBER | xlrd.XL_CELL_DATE:
            shown = format_number(cell.value, known.format_str if known else "", is_1904=bool(book.datemode))
        case xlrd.XL_CELL_BOOLEAN:
            shown = "TRUE" if cell.value else "FALSE"
        case xlrd.XL_CELL_ERROR:
            shown = str(xlrd.error_text_from_code.get(cell.value, "#ERROR"))
        case _:
            shown = str(cell.value)
    is_struck = style and style.font_index < len(book.font_list) and book.font_list[style.font_index].struck_out
    return f"~~{shown}~~" if shown and is_struck else shown
