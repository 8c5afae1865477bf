"""Reads PDF files."""

import io

from pypdf import PageObject, PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

from core.knowledge.document import PICTURE_PAGE, UNREADABLE_PAGE, Document, Page, ParseLimits, Unreadable


def read_pdf(content: bytes, limits: ParseLimits) -> Document:
    """Reads a PDF file page by page. A page that cannot be read says so if any other page can."""
    try:
        reader = PdfReader(io.BytesIO(content))
        # many PDF files are encrypted only against editing, and open without a password
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("protected")
        count = len(reader.pages)
    except (FileNotDecryptedError, DependencyError) as error:
        raise Unreadable("protected") from error
    if count > limits.pages_max:
        raise Unreadable("pages", str(count))
    pages, failed = _pages(reader, count, limits.text_characters_max)
    if not pages:
        raise Unreadable("broken" if failed else "scanned" if count else "empty")
    return Document(title=_title(reader), kind="pdf", pages=tuple(pages))


def _pages(reader: PdfReader, count: int, characters_max: int) -> tuple[list[Page], int]:
    pages, failed, characters, has_text = list[Page](), 0, 0, False
    for index in range(count):
        try:
            text = reader.pages[index].extract_text()
        except (MemoryError, RecursionError):
            raise
        except Exception:
            # pypdf may raise anything for a broken page; the other pages may be intact
            failed += 1
            pages.append(Page(index + 1, "", UNREADABLE_PAGE))
            continue
        characters += len(text)
        if characters > characters_max:
            raise Unreadable("text", str(characters_max))
        if text.strip():
            has_text = True
            pages.append(Page(index + 1, "", text))
        elif has_pictures(reader.pages[index]):
            pages.append(Page(index + 1, "", PICTURE_PAGE))
    return (pages if has_text else []), failed


def has_pictures(page: PageObject) -> bool:
    try:
        return len(page.images) > 0
    except (PyPdfError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError):
        return False


def _title(reader: PdfReader) -> str:
    try:
        found = reader.metadata
        return str(found.title or "") if found else ""
    except (PyPdfError, ValueError, TypeError, KeyError, AttributeError):
        return ""
