"""Builds the files of tasks, and reads the text of files that the agent hands over."""

import io
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from liteparse.parser import LiteParse
from PIL import Image
from pydantic import JsonValue

_TOP, _LEFT, _LEADING = 760, 72, 24


def build_file(content: JsonValue) -> bytes:
    """Returns the bytes of a file: its text, or an object with one key that says how to make it.

    `{"pdf": [[line, ...], ...]}` with the lines of each page, `{"docx": [paragraph, ...]}`, `{"xlsx": {sheet: [[cell,
    ...], ...]}}`, `{"pptx": [[title, text], ...]}`, `{"png": [width, height]}`, `{"repeat": [line, times]}`,
    `{"base64": text}`. Raises ValueError for anything else.
    """
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, dict) and len(content) == 1:
        kind, value = next(iter(content.items()))
        if kind in _BUILDERS:
            return _BUILDERS[kind](value)
    raise ValueError("a file is a text, or an object with one of " + ", ".join(_BUILDERS))


def read_text(name: str, content: bytes) -> str:
    """Returns the text of a file, whatever its format; of a picture, nothing. Damaged files have no text."""
    try:
        return _READERS.get(Path(name).suffix.lower(), _plain_text)(content)
    except Exception:  # parsers raise anything for a damaged file, which then lacks what is looked for
        return ""


def picture_size(content: bytes) -> tuple[int, int]:
    """Returns width and height of a picture, or zeros if it is none."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.load()
            return picture.size
    except (OSError, ValueError):
        return 0, 0


def build_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Returns a PDF file with a page for each sequence of lines. The first line of a page is its heading.

    Raises UnicodeEncodeError if a line contains characters outside Latin-1.
    """
    first_page = 4
    kids = " ".join(f"{first_page + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for at, lines in enumerate(pages):
        drawn = _drawn(lines)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            b"/Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (first_page + 2 * at + 1)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    return _pdf_file(objects)


def _drawn(lines: Sequence[str]) -> bytes:
    shown: list[str] = []
    for at, line in enumerate(lines):
        text = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        size, height = (20, _TOP) if at == 0 else (12, _TOP - 16 - _LEADING * at)
        shown.append(f"BT /F1 {size} Tf {_LEFT} {height} Td ({text}) Tj ET")
    return "\n".join(shown).encode("latin-1")


def _pdf_file(objects: Sequence[bytes]) -> bytes:
    """Returns the bytes of a PDF file: the objects and the cross-reference table with their offsets."""
    made = bytearray(b"%PDF-1.4\n")
    begins: list[int] = []
    for number, one in enumerate(objects, start=1):
        begins.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for begin in begins:
        made += b"%010d 00000 n \n" % begin
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    made += b"startxref\n%d\n%%%%EOF\n" % table
    return bytes(made)


def _pdf(value: JsonValue) -> bytes:
    return build_pdf(cast(list[list[str]], value))


# the demo builds PDF files alone, so the libraries for the others are imported where they are used
def _docx(value: JsonValue) -> bytes:
    from docx import Document

    document = Document()
    for paragraph in cast(list[str], value):
        document.add_paragraph(paragraph)
    return _saved(document.save)


def _xlsx(value: JsonValue) -> bytes:
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.worksheets[0])
    for title, rows in cast(dict[str, list[list[str | float]]], value).items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return _saved(book.save)


def _pptx(value: JsonValue) -> bytes:
    from pptx import Presentation
    from pptx.shapes.placeholder import SlidePlaceholder

    slides = Presentation()
    for title, text in cast(list[list[str]], value):
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        for shape, words in zip(slide.placeholders, (title, text), strict=False):
            cast(SlidePlaceholder, shape).text_frame.text = words
    return _saved(slides.save)


def _png(value: JsonValue) -> bytes:
    width, height = cast(list[int], value)
    return _saved(lambda file: Image.new("RGB", (width, height), "navy").save(file, "PNG"))


def _repeat(value: JsonValue) -> bytes:
    line, times = cast(tuple[str, int], value)
    return "".join(f"{line}\n" for _ in range(times)).encode()


def _base64(value: JsonValue) -> bytes:
    return b64decode(cast(str, value), validate=True)


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _plain_text(content: bytes) -> str:
    return content.decode("utf-8-sig", "ignore")


def _pdf_text(content: bytes) -> str:
    return LiteParse(ocr_enabled=False, quiet=True).parse(content).text


def _docx_text(content: bytes) -> str:
    from docx import Document

    document = Document(io.BytesIO(content))
    cells = (cell.text for table in document.tables for row in table.rows for cell in row.cells)
    return "\n".join((*(one.text for one in document.paragraphs), *cells))


def _xlsx_text(content: bytes) -> str:
    from openpyxl import load_workbook

    def lines() -> Iterator[str]:
        for sheet in load_workbook(io.BytesIO(content), data_only=True).worksheets:
            for row in sheet.iter_rows(values_only=True):
                yield ",".join("" if cell is None else str(cell) for cell in row)

    return "\n".join(lines())


_BUILDERS: dict[str, Callable[[JsonValue], bytes]] = {
    "pdf": _pdf,
    "docx": _docx,
    "xlsx": _xlsx,
    "pptx": _pptx,
    "png": _png,
    "repeat": _repeat,
    "base64": _base64,
}
_READERS: dict[str, Callable[[bytes], str]] = {".pdf": _pdf_text, ".docx": _docx_text, ".xlsx": _xlsx_text}
