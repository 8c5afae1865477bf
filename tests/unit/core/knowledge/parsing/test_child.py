"""The kind of a document, by its content."""

import pytest

from core.knowledge.document import ParseLimits, Unreadable
from core.knowledge.parsing.child import detect_kind, read_document
from tests.support import made_files

PDF = b"%PDF-1.4\n1 0 obj\nstartxref\n9\n%%EOF\n"


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (PDF, "a", "pdf"),
        (b"\r\n" + PDF, "a", "pdf"),
        (b"junk %PDF-1.4 damaged", "a.pdf", "pdf"),
        (b"A PDF begins with %PDF- and a version.", "notes.md", "md"),
        (b"A PDF begins with %PDF- and a version.", "notes", "txt"),
        (b"<table><tr><td>See", "notes.md", "md"),
        (b"<table><tr><td>See", "a.xls", "html"),
        (b"<html><body>Not found", "a.pdf", "html"),
    ],
)
def test_the_content_decides_and_the_name_only_between_texts(content: bytes, name: str, kind: str) -> None:
    assert detect_kind(content, name) == kind


OFFICE = {
    "docm": "vnd.ms-word.document.macroEnabled.main+xml",
    "dotx": "vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
    "dotm": "vnd.ms-word.template.macroEnabledTemplate.main+xml",
    "pptm": "vnd.ms-powerpoint.presentation.macroEnabled.main+xml",
    "ppsx": "vnd.openxmlformats-officedocument.presentationml.slideshow.main+xml",
    "ppsm": "vnd.ms-powerpoint.slideshow.macroEnabled.main+xml",
    "potx": "vnd.openxmlformats-officedocument.presentationml.template.main+xml",
    "potm": "vnd.ms-powerpoint.template.macroEnabled.main+xml",
    "xlsm": "vnd.ms-excel.sheet.macroEnabled.main+xml",
    "xltx": "vnd.openxmlformats-officedocument.spreadsheetml.template.main+xml",
    "xltm": "vnd.ms-excel.template.macroEnabled.main+xml",
}
PLAIN = {
    "w": (made_files.word(), "vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"),
    "p": (made_files.slides(), "vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"),
    "x": (made_files.sheets(), "vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"),
}


@pytest.mark.parametrize("ending", OFFICE)
def test_templates_slide_shows_and_files_with_macros_are_read(ending: str) -> None:
    content, plain = PLAIN[{"d": "w"}.get(ending[0], ending[0])]
    types = made_files.part_of(content, "[Content_Types].xml")
    kind = OFFICE[ending].encode()
    assert plain.encode() in types
    changed = made_files.with_part(content, "[Content_Types].xml", types.replace(plain.encode(), kind))

    read = read_document(changed, f"a.{ending}", ParseLimits())
    assert read.pages == read_document(content, "a", ParseLimits()).pages


def test_a_binary_workbook_is_named_as_what_it_is() -> None:
    with pytest.raises(Unreadable, match="binary_workbook"):
        detect_kind(made_files.zipped({"xl/workbook.bin": b"x"}), "a.xlsb")


@pytest.mark.parametrize("ending", ["docm", "dotx", "ppsx", "xlsm", "xlsb", "docx"])
def test_a_text_with_the_name_of_an_office_file_is_broken(ending: str) -> None:
    with pytest.raises(Unreadable, match="broken"):
        detect_kind(b"words", f"a.{ending.upper()}")
