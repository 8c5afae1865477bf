"""read_file on real sandboxes: ranges, encodings, long and odd files."""

import base64
import io
import re

import pytest
from PIL import Image

from core.context.tokens import count_text
from core.loop.calls import RESULT_TOKENS_MAX
from tests.integration.core.tools.conftest import Bench
from tests.integration.core.tools.shared_bench import IN_MODULE_LOOP
from tests.integration.core.tools.shared_bench import bench as bench
from tests.integration.core.tools.shared_bench import shared_sandbox as shared_sandbox
from tests.support.made_files import pdf, scanned_pdf, zipped

pytestmark = IN_MODULE_LOOP


async def read(bench: Bench, path: str = "a", **lines: int) -> str:
    """What read_file shows, without the numbers of the lines."""
    shown = await bench.output("read_file", file_path=path, **lines)
    return re.sub(r"(?m)^ *[0-9]+\t", "", shown)


async def test_lines_have_their_numbers(bench: Bench) -> None:
    await bench.put("a", b"one\ntwo\n\nfour")
    shown = await bench.output("read_file", file_path="a", start_line=2)
    assert shown == "     2\ttwo\n     3\t\n     4\tfour"


async def test_a_pdf_is_read_page_by_page(bench: Bench) -> None:
    await bench.put("a.pdf", pdf(["First page.", "Second page.", "Third page."]))
    assert await read(bench, "a.pdf", page=2) == ("[page 2 of 3]\nSecond page.\n\n[page 3 of 3]\nThird page.\n")
    assert "a.pdf has 3 pages" in await bench.error("read_file", file_path="a.pdf", page=4)


async def test_a_page_that_does_not_fit_is_named(bench: Bench) -> None:
    await bench.put("a.pdf", pdf(["short", "\n".join("word " * 200 for _ in range(50))]))
    assert (await read(bench, "a.pdf")).endswith("[cut before page 2; read on with page=2]")


async def test_a_long_file_of_an_archive_is_read_on_by_its_lines(bench: Bench) -> None:
    lines = "\n".join(f"line {n} of a log that is longer than a part of a page" for n in range(1, 2001))
    # the pages of a PDF file in an archive are not drawn
    await bench.put("a.zip", zipped({"b.txt": lines.encode(), "c.pdf": scanned_pdf(["Hello.", None])}))
    assert "2. b.txt (" in await read(bench, "a.zip")
    assert (await read(bench, "a.zip", page=3)).startswith("[page 3 of 3: c.pdf]\n[page 1]\nHello.")
    shown, start = list[str](), 1
    while True:
        heading, _, text = (await read(bench, "a.zip", page=2, start_line=start)).partition("\n")
        assert heading == "[page 2 of 2: b.txt]"
        more = re.search(r"\[cut before line .* read on with start_line=(\d+) and page=2\]$", text)
        shown += text[: more.start() if more else len(text)].splitlines()
        if more is None:
            break
        start = int(more[1])
    assert shown == lines.splitlines()


async def test_the_pages_of_a_scanned_pdf_are_shown(bench: Bench) -> None:
    await bench.put("scan.pdf", scanned_pdf([None] * 6))
    outcome = await bench.call("read_file", file_path="scan.pdf", page=2)

    assert outcome.outcome == "completed"
    assert [one.type for one in outcome.messages] == ["image_context"] * 4
    assert [one.content["file_path"] for one in outcome.messages] == [f"scan.pdf, page {page}" for page in (2, 3, 4, 5)]
    shown = Image.open(io.BytesIO(base64.b64decode(str(outcome.messages[0].content["base64"]))))
    assert shown.size == (1920, 640)
    text = str(outcome.result["output"])
    assert "Of 6 pages, 2, 3, 4, 5 are pictures" in text
    assert "tesseract" in text
    assert "Read on with page=6." in text
    assert "scan.pdf has 6 pages" in await bench.error("read_file", file_path="scan.pdf", page=7)


async def test_a_range_counts_from_one_and_includes_its_end(bench: Bench) -> None:
    await bench.put("a", b"1\n2\n3\n4")
    assert await read(bench) == "1\n2\n3\n4"
    assert await read(bench, start_line=2, end_line=3) == "2\n3\n"
    assert await read(bench, start_line=4) == "4"
    assert await read(bench, "/workspace/a", end_line=1) == "1\n"
    await bench.put("empty", b"")
    assert await read(bench, "empty") == "[empty is empty]"


async def test_a_range_outside_of_the_file_is_told(bench: Bench) -> None:
    await bench.put("a", b"1\n2\n")
    assert await read(bench, start_line=3) == "[a has only 2 lines]"
    error = await bench.error("read_file", file_path="a", start_line=3, end_line=2)
    assert "end_line 2 is before start_line 3" in error
    assert "greater than or equal to 1" in await bench.error("read_file", file_path="a", start_line=0)


async def test_a_character_over_the_edge_of_a_piece_is_whole(bench: Bench) -> None:
    await bench.put("a", ("x\n" * 40_000 + "é" * 200_000 + "\nlast\n").encode())
    shown = await read(bench, start_line=40_001)
    assert set(shown.partition("\n")[0]) == {"é"}
    assert await read(bench, start_line=40_002) == "last\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.dat", b"\x89PNG\r\n\x1a\n\x00\x00", "see_image"),
        ("a.dat", b"text\x00more", "Use a program that knows its format"),
        ("a.dat", b"\x00" * 100, "Use a program that knows its format"),
        ("a.pdf", b"%PDF-1.7 nothing more", "damaged"),
    ],
    ids=["picture", "text with a zero", "zeros", "broken"],
)
async def test_what_cannot_be_read_is_told(bench: Bench, name: str, content: bytes, words: str) -> None:
    await bench.put(name, content)
    error = await bench.error("read_file", file_path=name)
    assert error.startswith(f"{name}{':' if words == 'damaged' else ' is a '}")
    assert words in error


async def test_a_long_file_is_read_on_where_it_was_cut(bench: Bench) -> None:
    whole = "".join(f"line {n} {'x' * (n % 90)}\n" for n in range(1, 3001))
    await bench.put("a", whole.encode())
    parts, start = [], 1
    while True:
        shown = await read(bench, start_line=start)
        assert count_text(shown) < RESULT_TOKENS_MAX
        text, found, rest = shown.partition("[cut before line ")
        parts.append(text)
        if not found:
            break
        start = int(rest.split("start_line=")[1].rstrip("]"))
    assert "".join(parts) == whole
    assert len(parts) > 2


async def test_a_line_that_is_too_long_is_passed_over(bench: Bench) -> None:
    await bench.put("a", b"one\n" + b"y" * 3_000_000 + b"\nthree\n")
    assert (await read(bench)).endswith("one\n[cut before line 2; read on with start_line=2]")
    shown = await read(bench, start_line=2)
    assert shown.startswith("yyyy")
    assert shown.endswith(
        "[line 2 is too long to be shown whole; take it apart with a command. The next line is start_line=3]"
    )
    assert await read(bench, start_line=3) == "three\n"
