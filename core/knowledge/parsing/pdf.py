"""Reads PDF files, and draws their pages: `python -m core.knowledge.parsing.pdf <arguments as JSON> <limits as JSON>`.

The program draws `count` pages without text, the first of them at or after page `first`."""

import base64
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liteparse.parser import LiteParse
from liteparse.types import DocumentAnnotation, FormField, LayoutBlock, ParsedPage, ParseError, ParseResult

from core.knowledge.document import PICTURE_PAGE, UNREADABLE_PAGE, Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import Block, left_out_page, render_blocks, render_table
from core.knowledge.parsing.child import run_as_child, write_line

_BATCH_PAGES = 50
_OCR_SECONDS_MAX = 20
_OCR_LANGUAGES_MAX = 3
_TESSDATA = ("usr/share/tesseract-ocr/*/tessdata", "usr/share/tessdata", "usr/local/share/tessdata")
_RECOGNISED = "[text recognised in the picture, which may have mistakes:]"
_ESCAPED = re.compile(r"\\([^\w\s])")
_EMBEDDED = re.compile(rb"/Type\s{0,9}/EmbeddedFile\b")
_XFA_FORMS = (2, 3)  # PDFium's FORMTYPE_XFA_FULL and FORMTYPE_XFA_FOREGROUND
_SIDE_PIXELS = 1920
_POINTS_PER_INCH = 72
_PREVIEW_DPI = 20
_DPI_MAX = 200
_EVERYTHING: dict[str, Any] = {
    "extract_blocks": True,
    "extract_annotations": True,
    "extract_form_fields": True,
    "emit_word_boxes": True,
    "include_complexity": True,
}


def read_pdf(content: bytes, limits: ParseLimits) -> Document:
    """Reads a PDF file page by page: text in reading order, tables, form values, annotations and links.

    A page that cannot be read becomes a note if any other page can be read. Text in scanned pages is recognised for a
    limited time if Tesseract's data is installed."""
    pages, characters = list[Page](), 0
    left_out = Counter({"embedded file": len(_EMBEDDED.findall(content))})
    for result in _parse_batches(content, limits, **_EVERYTHING):
        _turn_pages(content, result.pages)
        left_out["XFA form"] = int(result.form_type in _XFA_FORMS)
        for page in result.pages:
            # a value may appear in several places of the page
            values = {
                (field.name, field.value, field.export_value, field.checked): field for field in page.form_fields or ()
            }
            notes = (*map(_field_text, values.values()), *_annotation_texts(page))
            blocks = [*map(_convert_block, page.blocks or ()), *(Block(note, "item", marker="-") for note in notes)]
            text = render_blocks(blocks) or page.text.strip()
            # a page without text is an image, is blank, or cannot be drawn
            is_picture = not page.text.strip() and bool(_draw_page(content, page.page_num, dpi=_PREVIEW_DPI))
            if is_picture:
                text = f"{PICTURE_PAGE}\n{_recognise_text(content, page.page_num)}{text}".strip()
            elif page.complexity is not None:
                left_out["picture"] += page.complexity.image_block_count
            pages.append(Page(page.page_num, "", text or UNREADABLE_PAGE, is_picture))
            characters += len(text)
        pages += (Page(error.page_num, "", UNREADABLE_PAGE) for error in result.page_errors)
        limits.check(characters=characters)
    texts = {page.text for page in pages}
    if texts <= {PICTURE_PAGE, UNREADABLE_PAGE}:
        raise Unreadable("scanned" if PICTURE_PAGE in texts else "empty" if texts else "broken")
    pages.sort(key=lambda page: page.number or 0)
    return Document(title="", kind="pdf", pages=(*left_out_page(left_out), *pages))


def _parse_batches(content: bytes, limits: ParseLimits, **options: Any) -> Iterator[ParseResult]:
    parser = _build_parser(keep_headers_footers=True, max_pages=limits.pages_max, **options)
    try:
        for batch in parser.parse_batches(content[max(content.find(b"%PDF"), 0) :], _BATCH_PAGES):
            limits.check(pages=batch.total_pages)
            yield batch.result
    except ParseError as error:
        raise Unreadable("protected" if "password" in str(error).lower() else "broken") from error


def _build_parser(*, ocr_enabled: bool = False, **options: Any) -> LiteParse:
    fixed: dict[str, Any] = {"quiet": True, "num_workers": 1, "continue_on_page_error": True, "extract_links": False}
    return LiteParse(ocr_enabled=ocr_enabled, ocr_failure_fatal=False, **fixed, **options)


def _turn_pages(content: bytes, pages: list[ParsedPage]) -> None:
    """Replaces the pages whose text runs sideways or upside down by rotated pages."""
    angles = ((at, Counter(round(item.rotation) % 360 for item in page.text_items)) for at, page in enumerate(pages))
    for at, turned in angles:
        angle = max(turned, key=turned.__getitem__, default=0)
        if angle in (90, 180, 270):
            number = pages[at].page_num
            parser = _build_parser(
                target_pages=str(number), page_orientation_corrections=[(number, angle)], **_EVERYTHING
            )
            pages[at : at + 1] = parser.parse(content).pages[:1] or [pages[at]]


def _convert_block(block: LayoutBlock) -> Block:
    text = _ESCAPED.sub(r"\1", block.text or "")
    match block.kind:
        case "heading":
            return Block(text, "heading", level=block.level or 1)
        case "list_item":
            marker = block.marker or "-"
            return Block(text, "item", level=block.level or 0, marker=marker if block.ordered else "-")
        case "table":
            rows = (
                [_ESCAPED.sub(r"\1", cell.text) for cell in row] for row in (block.header or [], *(block.rows or ()))
            )
            return Block(render_table(rows), "table")
        case "code" | "grid_fallback":
            return Block("\n".join(block.lines or ()), "code")
        case _:
            return Block(text)


def _field_text(field: FormField) -> str:
    name = field.alternate_name or field.name or field.id
    if field.type == "radio" and not field.checked:
        return ""  # the file does not contain a name for this choice
    if field.checked is not None:
        value = field.export_value if field.checked and field.export_value not in ("Yes", "On", "Off") else ""
        return f"[form field] {'☒' if field.checked else '☐'} {name}{f': {value}' if value else ''}"
    value = ", ".join(field.selected_options) or field.value
    return "" if field.type == "pushbutton" else f"[form field] {name}: {value or '(empty)'}"


def _annotation_texts(page: ParsedPage) -> Iterator[str]:
    for one in page.annotations or ():
        words = " ".join((one.contents or "").split())
        match one.subtype:
            case "link":
                yield f"[link] {_words_under(one, page) or words}: {one.uri}" if one.uri else ""
            case "widget" | "popup":
                continue
            case "freetext":
                yield f"[typed on the page] {words}" if words else ""
            case kind:
                marked = f' on "{under}"' if one.quadpoint_rects and (under := _words_under(one, page)) else ""
                yield f"[{kind} note{f' by {one.title}' if one.title else ''}{marked}] {words}" if words else ""


def _words_under(annotation: DocumentAnnotation, page: ParsedPage) -> str:
    """Returns the words whose centre is inside the annotation's rectangle."""
    place = annotation.rect
    if place is None:
        return ""
    return " ".join(
        word.text
        for item in page.text_items
        if item.y < place.y + place.height and item.y + item.height > place.y
        for word in item.words
        if 0 <= word.x + word.width / 2 - place.x <= place.width
        and 0 <= word.y + word.height / 2 - place.y <= place.height
    )


def _draw_page(content: bytes, number: int, dpi: float) -> bytes:
    """Returns a page as PNG, or empty bytes if the page is blank or cannot be drawn."""
    try:
        drawn = _build_parser(extract_screenshots=True, target_pages=str(number), dpi=dpi).parse(content).screenshots
    except ParseError:
        return b""
    return b"".join(page.image_bytes for page in drawn if not page.is_solid_fill)


def find_tesseract_data() -> Path | None:
    return next((path for pattern in _TESSDATA for path in Path("/").glob(pattern)), None)


def _recognise_text(content: bytes, number: int) -> str:
    """Returns a note with the text of a scanned page, or "" if Tesseract's data is missing or too much time has
    passed."""
    folder = find_tesseract_data()
    if folder is None or time.process_time() > _OCR_SECONDS_MAX:
        return ""
    installed = {path.stem for path in folder.glob("*.traineddata")} - {"osd", "equ"}
    language = "+".join(sorted(installed, key=lambda name: (name != "eng", name))[:_OCR_LANGUAGES_MAX])
    options: dict[str, Any] = {"tessdata_path": str(folder), "ocr_language": language, "target_pages": str(number)}
    try:
        (page,) = _build_parser(ocr_enabled=True, **options).parse(content).pages
    except (ParseError, ValueError):
        return ""
    return f"{_RECOGNISED}\n{page.text.strip()}\n" if page.text.strip() else ""


def write_textless_pages(content: bytes, limits: ParseLimits, *, first: int, count: int) -> None:
    """Writes a line with the number and the image of each page without text, and then a line with the number of all
    pages."""
    last = 0
    for result in _parse_batches(content, limits):
        for page in result.pages:
            last = page.page_num
            if last < first or not count or page.text.strip():
                continue
            dpi = min(_DPI_MAX, _SIDE_PIXELS * _POINTS_PER_INCH / max(page.width, page.height, 1))
            if drawn := _draw_page(content, last, dpi):
                count -= 1
                write_line({"page": last, "picture": base64.b64encode(drawn).decode()})
    write_line({"pages": last})


if __name__ == "__main__":
    run_as_child(write_textless_pages)
