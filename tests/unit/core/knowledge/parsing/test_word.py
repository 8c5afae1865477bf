"""What is read out of the parts of a Word file that are not simply paragraphs of runs."""

import re
import time

import pytest

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.word import read_docx
from tests.support import made_files

NAMESPACES = " ".join(
    f'xmlns:{prefix}="{address}"'
    for prefix, address in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
    }.items()
)


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def paragraph(*parts: str) -> str:
    return f"<w:p>{''.join(parts)}</w:p>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(run(text))}</w:tc>"


def controlled(content: str) -> str:
    return f"<w:sdt><w:sdtPr><w:alias w:val='a'/></w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def math(text: str) -> str:
    return f"<m:r><w:rPr/><m:t>{text}</m:t></m:r>"


def boxed(content: str) -> str:
    """A text box as Word writes it, once for itself and once for older programs."""
    box = f"<w:txbxContent>{content}</w:txbxContent>"
    return (
        "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wp:inline>"
        f"<wp:docPr id='1' name='Text Box 1'/><wps:wsp><wps:txbx>{box}</wps:txbx></wps:wsp>"
        "</wp:inline></w:drawing></mc:Choice><mc:Fallback><w:pict><v:shape><v:textbox>"
        f"{box}</v:textbox></v:shape></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )


def word(body: str) -> bytes:
    document = f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>"
    return made_files.with_part(made_files.word(), "word/document.xml", document.encode())


def read(body: str) -> str:
    return "\n\n".join(page.text for page in read_docx(word(body), ParseLimits()).pages).strip()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (controlled(paragraph(run("Total"))), "Total"),
        (paragraph(run("Dear "), controlled(run("Ms Doe"))), "Dear Ms Doe"),
        (controlled(controlled(paragraph(run("twice")))), "twice"),
        (f"<w:customXml>{paragraph(run('tagged'))}</w:customXml>", "tagged"),
        (paragraph(f"<w:smartTag>{run('Oslo')}</w:smartTag>"), "Oslo"),
        (paragraph("<w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>", run("no tab")), "no tab"),
    ],
)
def test_the_text_in_content_controls_is_read(body: str, text: str) -> None:
    assert read(body) == text


def test_the_result_of_a_field_is_read_and_its_instruction_is_not() -> None:
    fields = paragraph(
        run("On "),
        f"<w:fldSimple w:instr='DATE'>{run('1 May')}</w:fldSimple>",
        "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>",
        f"<w:r><w:fldChar w:fldCharType='separate'/></w:r>{run(', page 7')}",
        "<w:r><w:fldChar w:fldCharType='end'/></w:r>",
    )
    assert read(fields) == "On 1 May, page 7"


def test_text_boxes_are_read_once_with_their_headings_and_tables() -> None:
    heading = paragraph("<w:pPr><w:pStyle w:val='Heading1'/></w:pPr>", run("Skills"))
    table = f"<w:tbl><w:tr>{cell('a')}{cell('b')}</w:tr></w:tbl>"
    inner = boxed(paragraph(run("innermost")))
    body = paragraph(run("Before "), boxed(heading + table + paragraph(inner)), run("after"))

    assert re.sub(r"\s*\n\s*", "\n", read(body)) == ("Before after\n# Skills\n| a | b |\n| --- | --- |\ninnermost")


def test_two_text_boxes_of_a_paragraph_keep_their_order() -> None:
    boxes = [boxed(paragraph(run("one")) + paragraph(run("two"))), boxed(paragraph(run("three")))]
    assert read(paragraph(*boxes)).split() == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        (f"<m:f><m:num>{math('a+b')}</m:num><m:den>{math('c')}</m:den></m:f>", "(a+b)/(c)"),
        (f"<m:sSup><m:e>{math('x')}</m:e><m:sup>{math('2')}</m:sup></m:sSup>", "x^(2)"),
        (f"<m:d><m:dPr/><m:e>{math('y')}</m:e></m:d>", "(y)"),
        (f"<m:d><m:dPr><m:begChr m:val='|'/><m:endChr m:val='|'/></m:dPr><m:e>{math('y')}</m:e></m:d>", "|y|"),
        (
            f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{math('i')}</m:sub><m:sup/>"
            f"<m:e>{math('i')}</m:e></m:nary>",
            "∑_(i)i",
        ),
        (f"<m:rad><m:radPr/><m:deg/><m:e>{math('2')}</m:e></m:rad>", "√(2)"),
    ],
)
def test_equations_are_read(equation: str, text: str) -> None:
    inline = paragraph(run("So "), f"<m:oMath>{equation}</m:oMath>", run("."))
    alone = paragraph(f"<m:oMathPara><m:oMath>{equation}</m:oMath></m:oMathPara>")

    assert read(inline) == f"So {text}."
    assert read(alone) == text


def test_merged_cells_are_repeated_and_move_no_other() -> None:
    wide = cell("wide", "<w:gridSpan w:val='2'/>")
    high = cell("high", "<w:vMerge w:val='restart'/>")
    rows = (
        f"<w:tr>{wide}{cell('c')}</w:tr><w:tr>{high}{cell('2')}{cell('3')}</w:tr>"
        f"<w:tr>{cell('', '<w:vMerge/>')}{cell('5')}{cell('6')}</w:tr>"
        f"<w:tr><w:trPr><w:gridBefore w:val='1'/></w:trPr>{cell('8')}{cell('9')}</w:tr>"
    )
    assert read(f"<w:tbl>{rows}</w:tbl>").splitlines() == [
        "| wide | wide | c |",
        "| --- | --- | --- |",
        "| high | 2 | 3 |",
        "| high | 5 | 6 |",
        "|  | 8 | 9 |",
    ]


def test_tables_in_cells_are_read_however_deep() -> None:
    table = paragraph(run("deepest"))
    for level in range(12):
        table = f"<w:tbl><w:tr><w:tc>{paragraph(run(f'level{level}'))}{table}</w:tc></w:tr></w:tbl>"
    assert "deepest" in read(table)


def test_a_large_table_takes_linear_time() -> None:
    narrow = f"<w:tr>{cell('x')}{cell('y')}</w:tr>"
    merged = f"<w:tr>{cell('', '<w:vMerge/>')}{cell('y')}</w:tr>"
    body = f"<w:tbl>{narrow}{merged * 3_000}<w:tr>{cell('z') * 3_000}</w:tr></w:tbl>"
    began = time.process_time()
    assert read(body).count("z") == 3_000
    assert time.process_time() - began < 5


def test_a_cell_that_claims_to_be_very_wide_takes_no_room() -> None:
    claim = "<w:gridSpan w:val='1000000000'/>"
    assert read(f"<w:tbl><w:tr>{cell('a', claim)}{cell('b')}</w:tr></w:tbl>").count("|") < 200


def test_a_long_pattern_of_a_list_is_not_repeated_in_full() -> None:
    item = "<w:p><w:pPr><w:numPr><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>x</w:t></w:r></w:p>"
    level = f"<w:lvl w:ilvl='0'><w:numFmt w:val='decimal'/><w:lvlText w:val='{'%1' * 30_000}'/></w:lvl>"
    kind = f"<w:abstractNum w:abstractNumId='0'>{level}</w:abstractNum>"
    lists = f"<w:numbering {NAMESPACES}>{kind}<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num></w:numbering>"
    made = made_files.with_part(word(item * 100), "word/numbering.xml", lists.encode())
    assert len(read_docx(made, ParseLimits()).pages[0].text) < 100_000
