"""The document of the demonstration is a real PDF, and the board is what a tool server writes to."""

from pathlib import Path

from pypdf import PdfReader

from bots.demo.handbook_story import BONUS, BONUS_PLACE, PAGES, handbook_file
from bots.demo.mcp_notice_board import board_server_settings, read_notices
from core.knowledge.parsing.parser_process import parse_document
from core.mcp.settings import parse_servers
from simulator.threadbench.files import build_pdf


async def test_the_handbook_is_read_page_by_page(tmp_path: Path) -> None:
    file = tmp_path / handbook_file().name
    file.write_bytes(handbook_file().content)
    with file.open("rb") as opened:
        document = await parse_document(opened, name=file.name)
    assert [page.number for page in document.pages] == [1, 2, 3, 4, 5]
    held = [f"page {page.number}" for page in document.pages if BONUS in page.text]
    assert held == [BONUS_PLACE]


def test_a_strict_reader_finds_nothing_wrong_with_the_handbook(tmp_path: Path) -> None:
    file = tmp_path / "some.pdf"
    file.write_bytes(build_pdf([*PAGES, ("A (bracket) and a \\ backslash", "Größe")]))
    pages = [page.extract_text().splitlines() for page in PdfReader(file, strict=True).pages]
    assert pages[:5] == [list(lines) for lines in PAGES]
    assert pages[5] == ["A (bracket) and a \\ backslash", "Größe"]


def test_every_tool_of_the_board_needs_a_yes(tmp_path: Path) -> None:
    (server,) = parse_servers(board_server_settings(tmp_path / "board"), {})
    assert (server.name, server.needs_approval) == ("board", ("*",))
    assert read_notices(tmp_path / "board") == []
