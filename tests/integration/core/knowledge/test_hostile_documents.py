"""Broken, locked, empty, enormous and hostile documents: a sentence for people, in bounded time and memory."""

import asyncio
import io
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from core.domain.errors import DocumentError
from core.knowledge.document import ParseLimits
from core.knowledge.parsing.parser_process import spool_to_file
from core.ports import Sandbox
from core.tools.tool import ToolContext
from core.tools.workspace.reading import ReadParams, run_read
from tests.fakes.cpu_seconds import seconds_of
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.paths import REPOSITORY
from tests.support import made_files
from tests.support.made_files import parsed

BOMB_ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol" * 10}">' for n in range(12))
BILLION_LAUGHS = f"<?xml version='1.0'?><!DOCTYPE x [{BOMB_ENTITIES}]><x>&e11;</x>".encode()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pdf", b"", "no text"),
        ("a.txt", b" \n\t ", "no text"),
        ("a.pdf", b"this is no pdf", "damaged"),
        ("a.pdf", made_files.pdf(["x"])[:200], "damaged"),
        ("a.pdf", made_files.pdf([""]), "no text"),
        ("a.pdf", made_files.locked_pdf("secret", password="sesame"), "password"),
        ("a.docx", made_files.word()[:3000], "damaged"),
        ("a.docx", made_files.zipped({"x.txt": b"x"}), "cannot be read"),
        ("a.docx", made_files.zipped({"word/document.xml": b"<x"}), "damaged"),
        ("a.docx", made_files.container("EncryptedPackage", b"x"), "password"),
        ("a.doc", made_files.container("WordDocument", b"x"), "damaged"),
        ("a.xls", made_files.container("Book", b"x"), "damaged"),
        ("a.xlsb", made_files.zipped({"xl/workbook.bin": b"x"}), "Binary Excel"),
        ("a.txt", b"\x7fELF\0\0\0\0" * 100, "cannot be read"),
        ("a.csv", b"a,b\n", None),
    ],
)
async def test_what_cannot_be_read_is_told_in_a_sentence(name: str, content: bytes, sentence: str | None) -> None:
    if sentence is None:
        assert (await parsed(content, name)).pages
        return
    with pytest.raises(DocumentError, match=sentence):
        await parsed(content, name)


@pytest.mark.parametrize("part", ["word/document.xml", "docProps/core.xml", "word/_rels/document.xml.rels"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_xml_entities_are_not_expanded(part: str, encoding: str) -> None:
    bomb = made_files.with_part(made_files.word(), part, BILLION_LAUGHS.decode().encode(encoding))
    with pytest.raises(DocumentError, match="entities"):
        await parsed(bomb, "a.docx")


async def test_a_zip_bomb_is_not_unpacked() -> None:
    bomb = made_files.with_part(made_files.word(), "word/media/x.bin", bytes(400_000_000))
    assert len(bomb) < 1_000_000
    began = time.monotonic()
    with pytest.raises(DocumentError, match="unpacks to far more"):
        await parsed(bomb, "a.docx")
    assert time.monotonic() - began < 30


async def test_a_part_that_lies_about_its_size_unpacks_to_no_more_than_it_says() -> None:
    bomb = bytearray(made_files.with_part(made_files.word(), "word/document.xml", bytes(90_000_000)))
    true_size, false_size = struct.pack("<I", 90_000_000), struct.pack("<I", 100)
    assert bomb.count(true_size) == 2
    with pytest.raises(DocumentError, match="damaged"):
        await parsed(bytes(bomb.replace(true_size, false_size)), "a.docx")


async def test_a_package_of_very_many_parts_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        package.writestr("word/document.xml", "<x/>")
        for number in range(200):
            package.writestr(f"word/{number}", b"")
    with pytest.raises(DocumentError, match="unpacks"):
        await parsed(out.getvalue(), "a.docx", zip_parts_max=100)


async def test_ten_thousand_pages_are_refused_with_their_number() -> None:
    with pytest.raises(DocumentError, match="10000 pages"):
        await parsed(made_files.pdf(["x"] * 10_000), "a.pdf")


async def test_a_table_of_too_many_cells_is_read_as_far_as_it_fits() -> None:
    left_out, table = (await parsed(b"a,b,c\n" * 1000, "a.csv", cells_max=2000)).pages
    assert left_out.text.startswith("[Only the first 664 rows are read; the file goes on.")
    assert table.text.count("\n") == 664
    with pytest.raises(DocumentError, match="more than 2000 cells"):
        await parsed(b"," * 3000, "a.csv", cells_max=2000)


async def test_too_much_text_is_refused() -> None:
    with pytest.raises(DocumentError, match="more than 1000 characters"):
        await parsed(b"word " * 1000, "a.txt", text_characters_max=1000)


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


async def test_deep_nesting_ends_in_a_sentence() -> None:
    with pytest.raises(DocumentError, match="nested too deeply"):
        await parsed(b"<div>" * 200_000 + b"deep", "a.html")

    body = b"<w:tbl><w:tr><w:tc>" * 20_000
    word = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>' + body
    with pytest.raises(DocumentError):
        await parsed(made_files.with_part(made_files.word(), "word/document.xml", word), "a.docx")


async def test_a_reader_that_takes_more_memory_than_allowed_is_stopped_alone() -> None:
    """A few kilobytes that become hundreds of megabytes of elements."""
    word = (
        b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
        + b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 400_000
        + b"</w:body></w:document>"
    )
    bomb = made_files.with_part(made_files.word(), "word/document.xml", word)
    assert len(bomb) < 200_000
    with pytest.raises(DocumentError, match="more memory"):
        await parsed(bomb, "a.docx", memory_bytes_max=200_000_000)


@pytest.mark.parametrize("unit", [b"<!--", b"<a ", b"<a href='", b"<![CDATA[", b"</", b"<p><b>"])
async def test_a_page_of_things_that_never_end_takes_no_time(unit: bytes) -> None:
    """A reader that looks for the end of each from its beginning would take minutes for a megabyte."""
    page = b"<p>before</p>" + unit * (1_000_000 // len(unit))
    assert (await parsed(page, "a.html", cpu_seconds_max=10)).pages[0].text.startswith("before")


@pytest.mark.parametrize("unit", [b"<msup><mi>x</mi>", b"<mfrac><mrow></mrow><mrow>", b"<q>"])
async def test_parts_of_formulas_in_each_other_take_no_time(unit: bytes) -> None:
    page = b"<p>before</p><math>" + unit * 600 + b"word " * 600_000
    assert (await parsed(page, "a.html", cpu_seconds_max=10)).pages[0].text.startswith("before")


async def test_cells_that_claim_to_cover_very_many_are_refused() -> None:
    page = b"<table><tr>" + b"<td rowspan=9999 colspan=999>a" * 1_000 + b"<tr><td>b" * 100_000
    with pytest.raises(DocumentError, match="2000000 cells"):
        await parsed(page, "a.html", memory_bytes_max=400_000_000)


async def test_a_reader_that_takes_too_long_is_stopped() -> None:
    began = time.monotonic()
    with pytest.raises(DocumentError, match="too long"):
        await parsed(made_files.pdf(["many words. " * 50] * 4_000), "a.pdf", wall_seconds_max=1.0)
    assert time.monotonic() - began < 30


async def test_a_reader_that_burns_its_processor_time_is_stopped() -> None:
    with pytest.raises(DocumentError, match="too long"):
        await parsed(made_files.pdf(["many words. " * 50] * 4_000), "a.pdf", cpu_seconds_max=1)


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


def test_a_long_document_is_shown_while_other_runs_go_on() -> None:
    async def opened() -> Sandbox:
        sandboxes = MemorySandboxes()
        sandbox = await sandboxes.open("thread", fence=1)
        sandboxes.machines["thread"].content["a"] = "é\n".encode("latin-1") * 3_000_000
        return sandbox

    async def read() -> None:
        context = ToolContext(thread_id="thread", run_id="run", sandbox=opened)
        assert "cut before line" in str(await run_read(ReadParams(file_path="a"), context))

    assert seconds_of(lambda: asyncio.run(read()), seconds_max=0.2) <= 0.2


def test_readers_may_start_threads() -> None:
    """Native readers need some, and a limit on processes counts threads, too. The jail refuses processes."""
    code = (
        "import resource; from core.knowledge.document import ParseLimits; from core.knowledge.parsing import child;"
        " before = resource.getrlimit(resource.RLIMIT_NPROC); child.limit_this_process(ParseLimits());"
        " assert resource.getrlimit(resource.RLIMIT_NPROC) == before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
