"""The document of the demonstration is a real PDF, and the board is what a tool server writes to."""

from pathlib import Path

from pypdf import PdfReader

from bots.demo.handbook_story import PAGES
from simulator.threadbench.files import build_pdf


def test_a_strict_reader_finds_nothing_wrong_with_the_handbook(tmp_path: Path) -> None:
    file = tmp_path / "some.pdf"
    file.write_bytes(build_pdf([*PAGES, ("A (bracket) and a \\ backslash", "Größe")]))
    pages = [page.extract_text().splitlines() for page in PdfReader(file, strict=True).pages]
    assert pages[:5] == [list(lines) for lines in PAGES]
    assert pages[5] == ["A (bracket) and a \\ backslash", "Größe"]
