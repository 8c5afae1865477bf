"""read_file on real sandboxes: ranges, encodings, long and odd files."""

import tracemalloc

import pytest

from core.loop.calls import OUTPUT_CHARACTERS_MAX
from core.tools.workspace.files import READ_CHARACTERS_MAX
from tests.integration.core.tools.conftest import Bench

MEBIBYTE = 1 << 20


async def read(bench: Bench, path: str = "a", **lines: int) -> str:
    return await bench.output("read_file", file_path=path, **lines)


async def test_a_range_counts_from_one_and_includes_its_end(bench: Bench) -> None:
    await bench.put("a", b"1\n2\n3\n4")
    assert await read(bench) == "1\n2\n3\n4"
    assert await read(bench, start_line=2, end_line=3) == "2\n3\n"
    assert await read(bench, start_line=4) == "4"
    assert await read(bench, "/workspace/a", end_line=1) == "1\n"


async def test_a_range_outside_of_the_file_is_told(bench: Bench) -> None:
    await bench.put("a", b"1\n2\n")
    assert await read(bench, start_line=3) == "[a has only 2 lines]"
    error = await bench.error("read_file", file_path="a", start_line=3, end_line=2)
    assert "end_line 2 is before start_line 3" in error
    assert "greater than or equal to 1" in await bench.error(
        "read_file", file_path="a", start_line=0
    )


async def test_an_empty_file_is_told(bench: Bench) -> None:
    await bench.put("a", b"")
    assert await read(bench) == "[a is empty]"


@pytest.mark.slow
async def test_a_missing_file_is_told(bench: Bench) -> None:
    error = await bench.error("read_file", file_path="x/y")
    assert error == "x/y: There is no such file or folder. list_files shows what there is."


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
async def test_text_of_usual_encodings_is_read(bench: Bench, encoding: str) -> None:
    text = "first é\nsecond ü\n"
    await bench.put("a", text.encode(encoding))
    assert await read(bench) == text
    assert await read(bench, start_line=2) == "second ü\n"


async def test_a_character_over_the_edge_of_a_piece_is_whole(bench: Bench) -> None:
    await bench.put("a", ("x\n" * 40_000 + "é" * 200_000 + "\nlast\n").encode())
    shown = await read(bench, start_line=40_001)
    assert set(shown[:READ_CHARACTERS_MAX]) == {"é"}
    assert await read(bench, start_line=40_002) == "last\n"


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00", b"text\x00more", b"\x00" * 100])
async def test_a_binary_file_is_told(bench: Bench, content: bytes) -> None:
    await bench.put("a.png", content)
    error = await bench.error("read_file", file_path="a.png")
    assert error.startswith("a.png is a binary file, not text. Use a program that knows its format")


async def test_a_long_file_is_read_on_where_it_was_cut(bench: Bench) -> None:
    whole = "".join(f"line {n} {'x' * (n % 90)}\n" for n in range(1, 3001))
    await bench.put("a", whole.encode())
    parts, start = [], 1
    while True:
        shown = await read(bench, start_line=start)
        assert len(shown) < OUTPUT_CHARACTERS_MAX
        text, found, rest = shown.partition("[cut before line ")
        parts.append(text)
        if not found:
            break
        start = int(rest.split("start_line=")[1].rstrip("]"))
    assert "".join(parts) == whole
    assert len(parts) > 2


@pytest.mark.slow
async def test_a_line_that_is_too_long_is_passed_over(bench: Bench) -> None:
    await bench.put("a", b"one\n" + b"y" * 3_000_000 + b"\nthree\n")
    assert (await read(bench)).endswith("one\n[cut before line 2; read on with start_line=2]")
    shown = await read(bench, start_line=2)
    assert shown.startswith("yyyy")
    assert shown.endswith(
        "[line 2 is too long to be shown whole; take it apart with a command. The next line is start_line=3]"
    )
    assert await read(bench, start_line=3) == "three\n"


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"z" * 63 + b"\n", b"z" * 64])
async def test_a_huge_file_is_never_in_memory(bench: Bench, line: bytes) -> None:
    command = f"yes '{line.decode().strip()}' | head -c {100 * MEBIBYTE}"
    if not line.endswith(b"\n"):
        command += " | tr -d '\\n'"
    await bench.output("execute_command", command=f"{command} > big", blocking=True)
    tracemalloc.start()
    try:
        shown = await read(bench, "big")
        assert len(shown) < OUTPUT_CHARACTERS_MAX
        assert tracemalloc.get_traced_memory()[1] < 8 * MEBIBYTE
        tracemalloc.reset_peak()
        far = await read(bench, "big", start_line=10**9)
        assert far.startswith("[big has only ")
        assert tracemalloc.get_traced_memory()[1] < 8 * MEBIBYTE
    finally:
        tracemalloc.stop()


async def test_the_sandbox_is_usable_after_a_read_that_ended_early(bench: Bench) -> None:
    await bench.put("a", b"x\n" * 2_000_000)
    for _ in range(20):
        assert await read(bench, end_line=1) == "x\n"
    assert "2" in await bench.output("execute_command", command="echo 2", blocking=True)


async def test_a_device_is_not_read(bench: Bench) -> None:
    await bench.output("execute_command", command="mkfifo pipe", blocking=True)
    assert "not an ordinary file" in await bench.error("read_file", file_path="pipe")
