"""Broken, locked, empty, enormous and hostile documents: a sentence for people, in bounded time and memory."""

import asyncio
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from core.domain.errors import DocumentError
from core.knowledge.document import ParseLimits
from core.knowledge.parsing.parser_process import spool_to_file
from tests.support import made_files
from tests.support.made_files import parsed

BOMB_ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol" * 10}">' for n in range(12))
BILLION_LAUGHS = f"<?xml version='1.0'?><!DOCTYPE x [{BOMB_ENTITIES}]><x>&e11;</x>".encode()
WIDE_CELLS = b"<table><tr>" + b"<td rowspan=9999 colspan=999>a" * 1_000 + b"<tr><td>b" * 100_000
PARTS = {f"word/{n}": b"" for n in range(200)}
PARAGRAPHS = b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 400_000


def word_with(body: bytes) -> bytes:
    namespace = b"http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    whole = b'<w:document xmlns:w="' + namespace + b'"><w:body>' + body + b"</w:body></w:document>"
    return made_files.with_part(made_files.word(), "word/document.xml", whole)


def word_that_lies_about_its_size() -> bytes:
    bomb = made_files.with_part(made_files.word(), "word/document.xml", bytes(90_000_000))
    return bomb.replace(struct.pack("<I", 90_000_000), struct.pack("<I", 100))


@pytest.mark.parametrize(
    ("name", "content", "limits", "sentence"),
    [
        ("a.pdf", b"", {}, "no text"),
        ("a.txt", b" \n\t ", {}, "no text"),
        ("a.pdf", b"this is no pdf", {}, "damaged"),
        ("a.pdf", made_files.pdf(["x"])[:200], {}, "damaged"),
        ("a.pdf", made_files.pdf([""]), {}, "no text"),
        ("a.pdf", made_files.locked_pdf("secret", password="sesame"), {}, "password"),
        ("a.docx", made_files.word()[:3000], {}, "damaged"),
        ("a.docx", made_files.zipped({"x.txt": b"x"}), {}, "cannot be read"),
        ("a.docx", made_files.container("EncryptedPackage", b"x"), {}, "password"),
        ("a.doc", made_files.container("WordDocument", b"x"), {}, "damaged"),
        ("a.xls", made_files.container("Book", b"x"), {}, "damaged"),
        ("a.xlsb", made_files.zipped({"xl/workbook.bin": b"x"}), {}, "Binary Excel"),
        ("a.txt", b"\x7fELF\0\0\0\0" * 100, {}, "cannot be read"),
        ("a.csv", b"," * 3000, {"cells_max": 2000}, "more than 2000 cells"),
        ("a.txt", b"word " * 1000, {"text_characters_max": 1000}, "more than 1000 characters"),
        ("a.html", b"<div>" * 200_000, {}, "nested too deeply"),
        ("a.html", WIDE_CELLS, {"memory_bytes_max": 400_000_000}, "2000000 cells"),
        ("a.pdf", lambda: made_files.pdf(["x"] * 10_000), {}, "10000 pages"),
        ("a.pdf", lambda: made_files.pdf(["many words. " * 50] * 4_000), {"wall_seconds_max": 1.0}, "too long"),
        ("a.pdf", lambda: made_files.pdf(["many words. " * 50] * 4_000), {"cpu_seconds_max": 1}, "too long"),
        ("a.docx", lambda: word_with(PARAGRAPHS), {"memory_bytes_max": 200_000_000}, "more memory"),
        ("a.docx", lambda: word_with(bytes(400_000_000)), {}, "unpacks to far more"),
        ("a.docx", word_that_lies_about_its_size, {}, "damaged"),
        ("a.docx", made_files.zipped(PARTS), {"zip_parts_max": 100}, "unpacks"),
    ],
    ids=range(24),
)
async def test_what_cannot_be_read_is_told_in_a_sentence(
    name: str, content: bytes | Callable[[], bytes], limits: dict[str, float], sentence: str
) -> None:
    with pytest.raises(DocumentError, match=sentence):
        await parsed(content if isinstance(content, bytes) else content(), name, **limits)


@pytest.mark.parametrize("part", ["word/document.xml", "docProps/core.xml", "word/_rels/document.xml.rels"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_xml_entities_are_not_expanded(part: str, encoding: str) -> None:
    bomb = made_files.with_part(made_files.word(), part, BILLION_LAUGHS.decode().encode(encoding))
    with pytest.raises(DocumentError, match="entities"):
        await parsed(bomb, "a.docx")


async def test_a_table_of_too_many_cells_is_read_as_far_as_it_fits() -> None:
    left_out, table = (await parsed(b"a,b,c\n" * 1000, "a.csv", cells_max=2000)).pages
    assert left_out.text.startswith("[Only the first 664 rows are read; the file goes on.")
    assert table.text.count("\n") == 664


async def test_an_endless_file_is_refused_while_it_comes_in() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(1_000_000)

    with pytest.raises(DocumentError, match="larger than 3 MB"):
        async with spool_to_file(endless(), ParseLimits(file_bytes_max=3_000_000)):
            pass
    assert taken == 4


@pytest.mark.parametrize("unit", [b"<!--", b"<a ", b"<a href='", b"<![CDATA[", b"</", b"<p><b>"])
async def test_a_page_of_things_that_never_end_takes_no_time(unit: bytes) -> None:
    """A reader that looks for the end of each from its beginning would take minutes for a megabyte."""
    page = b"<p>before</p>" + unit * (1_000_000 // len(unit))
    assert (await parsed(page, "a.html", cpu_seconds_max=10)).pages[0].text.startswith("before")


async def test_a_cancelled_reading_leaves_no_process() -> None:
    reading = asyncio.ensure_future(parsed(made_files.pdf(["word " * 500] * 4_000), "slow.pdf"))
    deadline = time.monotonic() + 30
    while not await asyncio.to_thread(_children) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert await asyncio.to_thread(_children)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not await asyncio.to_thread(_children)


def _children() -> list[str]:
    return [
        " ".join(one.cmdline())
        for one in psutil.Process().children()
        if "core.knowledge.parsing.child" in one.cmdline()
    ]


CONFINED = """
import os, socket, subprocess, sys
from core.knowledge.document import ParseLimits
from core.knowledge.parsing.child import limit_this_process
limit_this_process(ParseLimits())
for attempt in (
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
    os.fork,
    lambda: open(sys.argv[1], "w"),
):
    try:
        attempt()
    except PermissionError:
        print("refused")
    else:
        print("went through")
"""


async def test_the_reader_can_neither_connect_nor_start_programs_nor_write_files(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CONFINED, str(tmp_path / "written")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["refused"] * 5, done.stderr
    assert not list(tmp_path.iterdir())


async def test_a_reader_that_takes_too_long_is_stopped() -> None:
    began = time.monotonic()
    with pytest.raises(DocumentError, match="too long"):
        await parsed(made_files.pdf(["many words. " * 50] * 4_000), "a.pdf", wall_seconds_max=1.0)
    assert time.monotonic() - began < 30
