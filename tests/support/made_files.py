"""Small documents of each format, made here, by hand where no library writes them."""

import io
import struct
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import docx
import openpyxl
import pptx
from PIL import Image, ImageDraw, ImageFont
from pypdf import PdfReader, PdfWriter

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.parser_process import parse_document, spool_to_file


async def pieces(content: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


async def parsed(content: bytes, name: str, **limits: float) -> Document:
    within = ParseLimits(**limits)
    async with spool_to_file(pieces(content), within, name=name) as file:
        return await parse_document(file.file, name=name, limits=within)


def pdf(pages: Sequence[str]) -> bytes:
    """One line of Latin text a page line."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects.append(font)
    kids: list[str] = []
    for text in pages:
        lines = [line.replace("(", "\\(").replace(")", "\\)") for line in text.split("\n")]
        drawn = "BT /F1 12 Tf 14 TL 50 750 Td " + " T* ".join(f"({one}) Tj" for one in lines) + " ET"
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {len(objects)} 0 R >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(kids)}] >>"
    return _pdf_file(objects)


def _pdf_file(objects: Sequence[str]) -> bytes:
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def locked_pdf(text: str, *, password: str) -> bytes:
    """`password` empty: locked against editing alone."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf([text]))))
    writer.encrypt(password, owner_password="owner", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word(title: str = "Handbook") -> bytes:
    made = docx.Document()
    made.core_properties.title = title
    made.add_heading("Holidays", level=1)
    made.add_paragraph("Everybody has thirty days a year.")
    table = made.add_table(rows=2, cols=2)
    for cell, text in zip(table.rows[0].cells, ("Country", "Days"), strict=True):
        cell.text = text
    for cell, text in zip(table.rows[1].cells, ("Norway | Oslo", "25"), strict=True):
        cell.text = text
    made.add_heading("Travel", level=2)
    made.add_paragraph("Trains before planes.")
    return _saved(made)


def slides() -> bytes:
    made = pptx.Presentation()
    made.slides.add_slide(made.slide_layouts[5])
    second = made.slides.add_slide(made.slide_layouts[5])
    second.shapes.title.text = "Results"
    box = second.shapes.add_textbox(0, 0, 100, 100)
    box.text_frame.text = "Sales doubled."
    table = second.shapes.add_table(1, 2, 0, 0, 100, 100).table
    table.cell(0, 0).text, table.cell(0, 1).text = "Q1", "17"
    second.notes_slide.notes_text_frame.text = "Say it slowly."
    return _saved(made)


def sheets() -> bytes:
    made = openpyxl.Workbook()
    made.active.title = "Prices"
    made.active.append(["Item", "Price"])
    made.active.append(["Bolt", 2.5])
    made.active.append(["Nut", 3.0])
    made.create_sheet("Empty")
    made.create_sheet("数据").append(["苹果", True])
    return _saved(made)


def picture(text: str = "Invoice 4711") -> bytes:
    """A picture of the text in black on white."""
    made = Image.new("RGB", (900, 300), "white")
    draw = ImageDraw.Draw(made)
    draw.text((40, 100), text, fill="black", font=ImageFont.load_default(80))
    out = io.BytesIO()
    made.save(out, "JPEG")
    return out.getvalue()


def scanned_pdf(pages: Sequence[str | None]) -> bytes:
    """Pages with text, or with a picture of a page for None."""
    out = io.BytesIO()
    writer = PdfWriter()
    for number, text in enumerate(pages, start=1):
        made = io.BytesIO(pdf([text]) if text is not None else b"")
        if text is None:
            Image.open(io.BytesIO(picture(f"Invoice {number}"))).save(made, "PDF")
        writer.append(made)
    writer.write(out)
    return out.getvalue()


def _saved(made: Any) -> bytes:
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def zipped(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return out.getvalue()


def part_of(package: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        return opened.read(name)


def with_part(package: bytes, name: str, content: bytes) -> bytes:
    """An office file with one part exchanged or added."""
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        parts = {one.filename: opened.read(one) for one in opened.infolist()}
    return zipped(parts | {name: content})


def container(name: str, stream: bytes) -> bytes:
    """A compound file with one stream in its sectors of 512 bytes."""
    stream = stream.ljust(8192, b"\0")
    count = len(stream) // 512
    end, free = 0xFFFFFFFE, 0xFFFFFFFF
    chain = [*range(1, count), end, end, 0xFFFFFFFD]
    table = struct.pack("<128I", *chain, *[free] * (128 - len(chain)))
    entries = _entry("Root Entry", 5, child=1, start=end, size=0)
    entries += _entry(name, 2, child=free, start=0, size=len(stream))
    folder = entries.ljust(512, b"\0")
    header = bytes.fromhex("D0CF11E0A1B11AE1") + bytes(16)
    header += struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(10)
    header += struct.pack("<IIIIIIII", 1, count, 0, 4096, end, 0, end, 0)
    header += struct.pack("<109I", count + 1, *[free] * 108)
    return header + stream + folder + table


def _entry(name: str, kind: int, *, child: int, start: int, size: int) -> bytes:
    spelled = (name + "\0").encode("utf-16-le")
    none = 0xFFFFFFFF
    return (
        spelled.ljust(64, b"\0")
        + struct.pack("<HBBIII", len(spelled), kind, 1, none, none, child)
        + bytes(36)
        + struct.pack("<IQ", start, size)
    )
