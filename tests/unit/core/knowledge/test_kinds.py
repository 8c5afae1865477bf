"""The kind of a document, by its content."""

import pytest

from core.knowledge.parsing.child import detect_kind

PDF = b"%PDF-1.4\n1 0 obj\nstartxref\n9\n%%EOF\n"


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (PDF, "a", "pdf"),
        (b"\r\n" + PDF, "a", "pdf"),
        (b"junk %PDF-1.4 damaged", "a.pdf", "pdf"),
        (b"A PDF begins with %PDF- and a version.", "notes.md", "md"),
        (b"A PDF begins with %PDF- and a version.", "notes", "txt"),
    ],
)
def test_a_text_that_mentions_the_start_of_a_pdf_is_a_text(
    content: bytes, name: str, kind: str
) -> None:
    assert detect_kind(content, name) == kind
