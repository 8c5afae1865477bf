"""A parsed document (pages of text, with tables as Markdown), parsing limits, and reasons for failure."""

from dataclasses import dataclass
from typing import Literal

DocumentKind = Literal[
    "pdf", "docx", "pptx", "xlsx", "doc", "ppt", "xls", "odt", "odp", "ods", "rtf", "epub", "csv", "tsv", "html",
    "md", "txt", "eml", "zip",
]  # fmt: skip


PICTURE_PAGE = "[this page is a picture without text]"
"""The text of a page that contains only images, in a document that has other pages with text."""
UNREADABLE_PAGE = "[this page is blank, or cannot be read]"
"""The text of an empty page, in a document that has other pages with text."""


@dataclass(frozen=True, slots=True)
class Page:
    """A section of a document. `number` counts from 1 in formats with pages or slides, else None.

    `place` is the heading above the section, the sheet's name, or the slide's title. `is_picture` is set for the pages
    of a PDF file that have no text of their own."""

    number: int | None
    place: str
    text: str
    is_picture: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed document with text on at least one page. `title` is empty if the file has none."""

    title: str
    kind: DocumentKind
    pages: tuple[Page, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseLimits:
    """Limits for parsing one document. `zip_bytes_max` bounds the total unpacked size of an office file."""

    file_bytes_max: int = 50_000_000
    text_characters_max: int = 12_000_000
    pages_max: int = 5_000
    cells_max: int = 2_000_000
    zip_bytes_max: int = 300_000_000
    zip_parts_max: int = 10_000
    memory_bytes_max: int = 1_000_000_000
    cpu_seconds_max: int = 60
    wall_seconds_max: float = 120

    def check(self, *, pages: int = 0, cells: int = 0, characters: int = 0) -> None:
        """Raises Unreadable for a document that holds more than these limits."""
        if pages > self.pages_max:
            raise Unreadable("pages", str(pages))
        if cells > self.cells_max:
            raise Unreadable("cells", str(self.cells_max))
        if characters > self.text_characters_max:
            raise Unreadable("text", str(self.text_characters_max))


Reason = Literal[
    "broken", "protected", "empty", "scanned", "unsupported", "binary_workbook", "apple", "outlook", "winmail",
    "pages", "cells", "unpacked", "hostile", "nested", "text", "memory", "pixels",
]  # fmt: skip


class Unreadable(Exception):
    """Raised if a file cannot be read. `fact` is a number for the message, such as the count of pages."""

    def __init__(self, reason: Reason, fact: str = "") -> None:
        super().__init__(reason, fact)
        self.reason: Reason = reason
        self.fact = fact
