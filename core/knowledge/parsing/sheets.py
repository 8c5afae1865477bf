"""Reads Excel files, new (xlsx, with macros xlsm) and old (xls)."""

import io
import re
import zipfile
from collections.abc import Iterator
from datetime import datetime
from itertools import zip_longest
from typing import Any

import openpyxl
import xlrd
from xlrd.biffh import XLRDError

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.shared import check_package, markdown_table

_COLUMNS_MAX = 1_000


def read_xlsx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a workbook, one page per sheet, with values instead of formulas.

    A formula without a value is shown, because programs that write workbooks often calculate nothing. Says how many
    charts and pictures are left out."""
    check_package(content, limits)
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    formulas = openpyxl.load_workbook(io.BytesIO(content), read_only=True) if _has_formulas(content) else None
    pages: list[Page] = []
    for sheet in book.worksheets:
        rows = _rows(sheet, values_only=formulas is None)
        if formulas is not None:
            rows = _with_formulas(rows, _rows(formulas[sheet.title]))
        _add(pages, sheet.title, ([_text(value) for value in row] for row in rows), limits)
    if note := _left_out(content):
        pages.insert(0, Page(None, "Left out", note))
    return Document(title="", kind="xlsx", pages=tuple(pages))


_Row = tuple[object, ...]
_FORMULA = re.compile(rb"[<:]f[ >/]")
_PIECE_BYTES = 1 << 20
_LEFT_OUT = (("xl/charts/chart", "charts"), ("xl/media/", "pictures"))


def _rows(sheet: Any, *, values_only: bool = True) -> Iterator[_Row]:
    # ignore the declared dimensions, because a sheet may claim to be larger than it is
    sheet.reset_dimensions()
    yield from sheet.iter_rows(values_only=values_only)


def _with_formulas(cells: Iterator[tuple[Any, ...]], formulas: Iterator[_Row]) -> Iterator[_Row]:
    for row, written in zip_longest(cells, formulas, fillvalue=()):
        yield tuple(
            cell and cell.value
            # only its kind tells a formula whose value is an empty text from one without a value
            if formula is None or (cell and (cell.value is not None or cell.data_type == "str"))
            else f"{getattr(formula, 'text', formula)} (not calculated)"
            for cell, formula in zip_longest(row, written)
        )


def _has_formulas(content: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        for name in package.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            with package.open(name) as part:
                end = b""
                while piece := part.read(_PIECE_BYTES):
                    if _FORMULA.search(end + piece):
                        return True
                    end = piece[-2:]
    return False


def _left_out(content: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        names = package.namelist()
    counts = ((sum(name.startswith(start) for name in names), what) for start, what in _LEFT_OUT)
    found = " and ".join(f"{count} {what}" for count, what in counts if count)
    return f"[not shown here, of the whole file: {found}]" if found else ""


def read_xls(content: bytes, limits: ParseLimits) -> Document:
    try:
        book = xlrd.open_workbook(file_contents=content, on_demand=True, logfile=io.StringIO())
    except XLRDError as error:
        reason = "protected" if "encrypted" in str(error).lower() else "broken"
        raise Unreadable(reason) from error
    pages: list[Page] = []
    for name in book.sheet_names():
        _add(pages, name, _old_rows(book, name), limits)
        book.unload_sheet(name)
    return Document(title="", kind="xls", pages=tuple(pages))


def _add(pages: list[Page], name: str, rows: Iterator[list[str]], limits: ParseLimits) -> None:
    table = markdown_table(rows, limits.cells_max)
    if table:
        pages.append(Page(None, name, table))
    if sum(len(page.text) for page in pages) > limits.text_characters_max:
        raise Unreadable("text", str(limits.text_characters_max))


def _old_rows(book: xlrd.Book, name: str) -> Iterator[list[str]]:
    sheet = book.sheet_by_name(name)
    for number in range(sheet.nrows):
        yield [_old_text(cell.ctype, cell.value, book.datemode) for cell in sheet.row(number)[:_COLUMNS_MAX]]


def _old_text(kind: int, value: object, datemode: int) -> str:
    if kind == xlrd.XL_CELL_DATE and isinstance(value, float):
        try:
            return _text(xlrd.xldate_as_datetime(value, 1 if datemode else 0))
        except (xlrd.XLDateError, ValueError, OverflowError):
            return _text(value)
    if kind == xlrd.XL_CELL_BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == xlrd.XL_CELL_ERROR and isinstance(value, int):
        return str(xlrd.error_text_from_code.get(value, "#ERROR"))
    return _text(value)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "TRUE" if value else "FALSE"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case datetime() if value.hour == value.minute == value.second == 0:
            return value.date().isoformat()
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return str(value)
