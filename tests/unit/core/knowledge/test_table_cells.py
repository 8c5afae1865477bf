"""Tables whose cells are merged, calculated to nothing, or far apart."""

import io

import openpyxl
import pytest

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.blocks import render_table
from core.knowledge.parsing.html import read_html
from core.knowledge.parsing.sheets import read_xlsx
from tests.support import made_files


def page(table: str) -> list[str]:
    document = read_html(f"<html><body>{table}".encode(), ParseLimits())
    return document.pages[0].text.splitlines()


def test_merged_cells_of_a_web_page_move_no_other() -> None:
    table = """<table>
    <tr><th rowspan=2>Team<th colspan="2">Days<th>Note</tr>
    <tr><th>2025<th>2026<th>!</tr>
    <tr><td>Design<td>20<td>25<td>ok</tr></table>"""
    assert page(table) == [
        "| Team | Days | Days | Note |",
        "| --- | --- | --- | --- |",
        "| Team | 2025 | 2026 | ! |",
        "| Design | 20 | 25 | ok |",
    ]


def test_a_cell_over_rows_and_columns_moves_those_around_it() -> None:
    table = """<table><tr><td>a<td rowspan=2 colspan=2>b<td>c<tr><td>d<td>e<tr><td>f<td>g</table>
    <table><tr><td>next<td>table"""
    assert page(table)[:4] == ["| a | b | b | c |", "| --- | --- | --- | --- |", "| d | b | b | e |", "| f | g |  |  |"]
    assert page(table)[-2:] == ["| next | table |", "| --- | --- |"]


@pytest.mark.parametrize("written", ["x", "", "-3", "0", "2.5", "²", "9" * 5_000])
def test_a_span_that_is_no_number_is_none(written: str) -> None:
    assert page(f"<table><tr><td colspan='{written}'>a<td>b")[0] == "| a | b |"


def test_one_wide_row_does_not_multiply_a_table() -> None:
    rows = [["a", "b"]] * 10_000 + [["x"] * 10_000]
    lines = render_table(rows).splitlines()

    assert sum(map(len, lines)) < 500_000
    assert lines[1].count("---") == lines[0].count("|") - 1 == 10_000
    assert lines[2].startswith("| a | b |")


def sheet(cells: str) -> list[str]:
    made = io.BytesIO()
    openpyxl.Workbook().save(made)
    namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    xml = f"<worksheet xmlns='{namespace}' xmlns:x='{namespace}'><sheetData>{cells}</sheetData></worksheet>"
    content = made_files.with_part(made.getvalue(), "xl/worksheets/sheet1.xml", xml.encode())
    return read_xlsx(content, ParseLimits()).pages[0].text.splitlines()


def test_a_formula_that_was_calculated_to_an_empty_text_is_empty() -> None:
    row = """<row r='1'><c r='A1' t='str'><f>IF(B1,"late","")</f><v></v></c>
    <c r='B1'><v>7</v></c><c r='C1'><f>B1*2</f><v>14</v></c><c r='E1'><f>B1*3</f></c></row>"""
    assert sheet(row)[0] == "|  | 7 | 14 |  | =B1*3 (not calculated) |"


def test_formulas_are_found_whatever_their_prefix() -> None:
    assert sheet("<x:row r='1'><x:c r='A1'><x:f>1+1</x:f></x:c></x:row>")[0] == ("| =1+1 (not calculated) |")


def test_a_cell_far_to_the_right_does_not_multiply_a_sheet() -> None:
    rows = "".join(f"<row r='{at}'><c r='A{at}'><v>1</v></c></row>" for at in range(2, 2_000))
    lines = sheet(f"<row r='1'><c r='XFD1'><v>7</v></c></row>{rows}")
    assert sum(map(len, lines)) < 500_000
