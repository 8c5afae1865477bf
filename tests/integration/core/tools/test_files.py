"""The file tools on real sandboxes: create_file, full_file_rewrite, str_replace, delete_file, list_files."""

import asyncio
import base64
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import JsonValue

from core.context.tokens import count_text
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.loop.calls import RESULT_TOKENS_MAX
from core.tools.tool import ThreadMessages
from core.tools.workspace.paths import workspace_path
from tests.integration.core.tools.conftest import Bench
from tests.integration.core.tools.shared_bench import IN_MODULE_LOOP
from tests.integration.core.tools.shared_bench import bench as bench
from tests.integration.core.tools.shared_bench import shared_sandbox as shared_sandbox
from tests.support.conversations import message
from tests.support.made_files import pdf, scanned_pdf, zipped

pytestmark = IN_MODULE_LOOP


async def mode_of(bench: Bench, path: str) -> str:
    return (await bench.output("execute_command", command=f"stat -c %a {path}", blocking=True)).split("\n")[0]


async def test_contents_are_kept_to_the_letter(bench: Bench) -> None:
    whole = "\n    indented\r\n\ttab  \n\n 007 <x> &amp; ]]> \u202e emoji 🎉 no end of line"
    await bench.output("create_file", file_path="a", file_contents=whole)
    assert await bench.get("a") == whole.encode()
    await bench.output("full_file_rewrite", file_path="a", file_contents=whole + whole)
    assert await bench.get("a") == (whole + whole).encode()


async def test_edits_of_one_file_at_once_all_survive_also_beside_a_program(bench: Bench) -> None:
    await bench.put("a.txt", b"".join(b"line %d\n" % number for number in range(8)))
    await bench.output("create_file", file_path="go.sh", file_contents=APPENDING)
    edits = [
        bench.output("str_replace", file_path="a.txt", old_str=f"line {one}", new_str=f"done {one}") for one in range(8)
    ]
    program = bench.output("execute_command", command="sh go.sh", blocking=True)
    await asyncio.gather(*edits, program)
    kept = (await bench.get("a.txt")).decode().splitlines()
    assert kept[:8] == [f"done {number}" for number in range(8)]
    assert set(kept[8:]) <= {"more"}


APPENDING = "for i in 1 2 3 4 5 6 7 8 9; do echo more >>a.txt; sleep 0.001; done"


async def test_a_rewrite_does_not_undo_what_something_else_has_done(bench: Bench) -> None:
    await bench.output("create_file", file_path="a.txt", file_contents="one")
    await bench.output("execute_command", command="printf two >a.txt", blocking=True)
    refused = await bench.error("full_file_rewrite", file_path="a.txt", file_contents="three")
    assert "it has changed since you read or wrote it" in refused
    assert "Your text is in a.txt.new." in refused
    again = await bench.error("full_file_rewrite", file_path="a.txt", file_contents="three")
    assert (again, await bench.get("a.txt")) == (refused, b"two")
    assert await bench.get("a.txt.new") == b"three"
    other = await bench.error("full_file_rewrite", file_path="a.txt", file_contents="3")
    assert "Your text is in a.txt.new2." in other
    await bench.output("read_file", file_path="a.txt")
    await bench.output("full_file_rewrite", file_path="a.txt", file_contents="three")
    await bench.output("execute_command", command="rm a.txt", blocking=True)
    await bench.output("full_file_rewrite", file_path="a.txt", file_contents="four")
    assert await bench.get("a.txt") == b"four"


@pytest.mark.parametrize("name", ["a.txt", "link"])
async def test_a_file_that_was_not_read_is_not_rewritten(bench: Bench, name: str) -> None:
    """As in the run after the one that read it, or through a link to a file that was read."""
    await bench.put("a.txt", b"theirs")
    await bench.output("execute_command", command="ln -s a.txt link", blocking=True)
    if name == "link":
        await bench.output("read_file", file_path="a.txt")
    for _ in range(2):
        refused = await bench.error("full_file_rewrite", file_path=name, file_contents="mine")
        assert "you have not read it yet" in refused
    assert await bench.get("a.txt") == b"theirs"
    await bench.output("full_file_rewrite", file_path=name, file_contents="theirs")
    await bench.put("a.txt", b"theirs, too")
    await bench.output("delete_file", file_path=name)
    await bench.output("full_file_rewrite", file_path=name, file_contents="mine")
    assert await bench.get(name) == b"mine"


def result_of(name: str, **arguments: JsonValue) -> tuple[Message, Message]:
    """The stored messages of a turn with one call."""
    execution: JsonValue = {
        "function_name": name,
        "arguments": arguments,
        "result": {"success": True, "output": "", "error": None},
    }
    content: JsonObject = {"content": json.dumps({"tool_execution": execution})}
    return (message("assistant", {}), message("tool", content, metadata={"parsing_details": {"function_name": name}}))


def in_next_run(bench: Bench, history: Sequence[Message]) -> Bench:
    async def find(_message_id: str) -> Message | None:
        return None

    async def read_all() -> Sequence[Message]:
        return history

    messages = ThreadMessages(find=find, read_all=read_all)
    return Bench(bench.sandbox, replace(bench.context, messages=messages, known_versions={}))


REQUEST = Message(type="user", content={}, is_llm_message=True, thread_id="thread")


async def test_the_next_run_rewrites_what_the_agent_has_made(bench: Bench) -> None:
    history = [replace(REQUEST, created_at=datetime.now(UTC))]
    written: dict[str, JsonValue] = {"file_path": "todo.md", "file_contents": "- [ ] a"}
    await bench.output("create_file", **written)
    history += result_of("create_file", **written)
    await asyncio.sleep(0.02)  # file systems count in ticks
    await bench.output("execute_command", command="echo one >by-shell", blocking=True)
    history += result_of("execute_command", command="echo one >by-shell")
    later = in_next_run(bench, history)
    await later.output("full_file_rewrite", file_path="todo.md", file_contents="- [x] a")
    await later.output("full_file_rewrite", file_path="by-shell", file_contents="two")
    assert (await bench.get("todo.md"), await bench.get("by-shell")) == (b"- [x] a", b"two")


async def test_the_next_run_does_not_rewrite_what_people_have_changed(bench: Bench) -> None:
    """One file is uploaded before the request, the other is changed after the last run."""
    await bench.put("report.md", b"uploaded")
    await bench.output("create_file", file_path="notes.md", file_contents="mine")
    history = [
        replace(REQUEST, created_at=datetime.now(UTC)),
        *result_of("create_file", file_path="notes.md", file_contents="mine"),
        *result_of("execute_command", command="true"),
    ]
    await bench.output("execute_command", command="echo theirs >notes.md; touch -d '+1 hour' notes.md", timeout=30)
    later = in_next_run(bench, history)
    for path in ("report.md", "notes.md"):
        error = await later.error("full_file_rewrite", file_path=path, file_contents="new")
        assert f"Your text is in {path}.new." in error
    assert await bench.get("notes.md") == b"theirs\n"


@pytest.mark.parametrize(
    ("before", "old", "words"),
    [
        (
            b"x = 1\ny\nx = 1\n",
            "x = 1",
            "is in a 2 times, at the lines 1, 3. Nothing was changed. Take more of the text",
        ),
        (b"aaa", "aa", "2 times"),
        (b"a\n" * 3000, "a", "is in a 1000 or more times, at the lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more"),
        (b"top\n\tif x:\n\t\ty()\n", "if x:\n    y()", "Line 2 differs from it in its spaces only."),
        (b"x", "nowhere", "old_str is not in a. Nothing was changed. Read the file and copy the text exactly"),
        (None, "x", "a: There is no such file or folder. list_files shows what there is."),
        (b"\x89PNG\x00\x01", "P", "binary file"),
        (b"x" * 5_000_001, "y", "larger than 5000000 bytes; edit it with a command such as sed"),
        ("caf\xe9 one".encode("latin-1"), "one", "cp1252 text, which cannot hold the character '\\u2192', '\\u2211'"),
    ],
    ids=["twice", "overlapping", "many", "spaces", "nowhere", "no file", "binary", "huge", "encoding"],
)
async def test_what_cannot_be_replaced_is_told_and_left(
    bench: Bench, before: bytes | None, old: str, words: str
) -> None:
    if before is not None:
        await bench.put("a", before)
    assert words in await bench.error("str_replace", file_path="a", old_str=old, new_str="→ ∑")
    if before is not None:
        assert await bench.get("a") == before


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_an_edit_matches_either_line_end_and_keeps_the_own(bench: Bench, end: str) -> None:
    """The last line ends otherwise, and stays so."""
    await bench.put("a", f"zero{end}one{end}two{end}three\r\n".encode())
    await bench.output("str_replace", file_path="a", old_str="one\ntwo", new_str="1\n2")
    await bench.output("str_replace", file_path="a", old_str="2\r\nthree", new_str="2\r\n3")
    assert await bench.get("a") == f"zero{end}1{end}2{end}3\r\n".encode()
    await bench.output("str_replace_editor", command="str_replace", path="a", old_str="zero", new_str="0\n0")
    await bench.output("str_replace_editor", command="insert", path="a", insert_line=0, new_str="top")
    assert await bench.get("a") == f"top{end}0{end}0{end}1{end}2{end}3\r\n".encode()


@pytest.mark.parametrize(
    ("before", "old"),
    [("It’s “here”.", """It's "here"."""), ("a – b", "a - b"), ("10\u00a0km", "10 km"), ('x = "y"', "x = “y”")],
)
async def test_a_piece_with_other_quotes_dashes_or_spaces_is_shown(bench: Bench, before: str, old: str) -> None:
    await bench.put("a", f"top\n{before}\n".encode())
    error = await bench.error("str_replace", file_path="a", old_str=old, new_str="z")
    assert "line 2 has it with other quotes, dashes or spaces" in error
    assert error.endswith(f"which is:\n{before}")
    await bench.output("str_replace", file_path="a", old_str=error.split("\n")[-1], new_str="z")
    assert await bench.get("a") == b"top\nz\n"


CHINESE = "他 的 工作 是 看 中 文 \n" * 20
JAPANESE = "これは日本語の文章です。今日は天気がいいですね。\n" * 20


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("caf\xe9 one\n".encode("latin-1"), "caf\xe9 two\n".encode("latin-1")),
        ("\ufeffé one\n".encode(), "\ufeffé two\n".encode()),
        ("é one\n".encode("utf-16"), "é two\n".encode("utf-16")),
        (b"\xfe\xff" + "é one\n".encode("utf-16-be"), b"\xfe\xff" + "é two\n".encode("utf-16-be")),
        ("Price “5 €” one\n".encode("cp1252"), "Price “5 €” two\n".encode("cp1252")),
        (f"{CHINESE}one\n".encode("gb18030"), f"{CHINESE}two\n".encode("gb18030")),
        (f"{CHINESE}one\n".encode("big5"), f"{CHINESE}two\n".encode("big5")),
        (f"{JAPANESE}one\n".encode("shift_jis"), f"{JAPANESE}two\n".encode("shift_jis")),
    ],
)
async def test_an_edit_keeps_the_encoding(bench: Bench, before: bytes, after: bytes) -> None:
    await bench.put("a", before)
    await bench.output("str_replace", file_path="a", old_str="one", new_str="two")
    assert await bench.get("a") == after


@pytest.mark.parametrize("permissions", ["755", "600", "644"])
async def test_a_change_keeps_the_permissions(bench: Bench, permissions: str) -> None:
    await bench.output("create_file", file_path="s", file_contents="#!old\n", permissions=permissions)
    await bench.output("str_replace", file_path="s", old_str="old", new_str="new")
    assert await mode_of(bench, "s") == permissions
    await bench.output("full_file_rewrite", file_path="s", file_contents="#!/bin/sh")
    assert await mode_of(bench, "s") == permissions


@pytest.mark.parametrize("path", [".", "/workspace", "/workspace/", "./."])
async def test_the_workspace_itself_stays(bench: Bench, path: str) -> None:
    await bench.put("a", b"x")
    assert "itself" in await bench.error("delete_file", file_path=path)
    assert await bench.get("a") == b"x"


async def test_a_folder_is_listed(bench: Bench) -> None:
    await bench.put("b/c.txt", b"12345")
    await bench.put("a b\u202e.txt", b"")
    await bench.output("execute_command", command="ln -s b/c.txt zlink", blocking=True)
    assert await bench.output("list_files") == "a b\u202e.txt (0 bytes)\nb/\nzlink (link)"
    assert await bench.output("list_files", path="/workspace/b") == "b/c.txt (5 bytes)"
    assert await bench.output("list_files", path="b/c.txt") == "b/c.txt (5 bytes)"
    error = await bench.error("list_files", path="none")
    assert error == "none: There is no such file or folder. list_files shows what there is."


BAD_PATHS = [
    ("/etc/passwd", "is outside /workspace; give a path relative to /workspace"),
    ("/workspacex/a", "is outside /workspace"),
    ("../a", "climbs with '..'"),
    ("a/../../b", "climbs with '..'"),
    ("/workspace/../etc/passwd", "climbs with '..'"),
    ("//etc/passwd", "is outside /workspace"),
    ("/workspace//etc/../../x", "climbs with '..'"),
    ("a\nb", "control characters"),
    ("a\x00b", "control characters"),
    ("a\x7fb", "control characters"),
    ("a\x9bb", "control characters"),
    ("a\ud800b", "valid string"),
    ("", "at least 1 character"),
    ("x" * 5000, "at most 4096 characters"),
]


async def test_a_path_that_leads_out_is_refused(bench: Bench) -> None:
    await bench.put("a/b", b"x")
    for tool in ("create_file", "full_file_rewrite", "read_file", "delete_file"):
        contents = {"file_contents": "x"} if tool in ("create_file", "full_file_rewrite") else {}
        for path, reason in BAD_PATHS:
            error = await bench.error(tool, file_path=path, **contents)
            assert reason in error, (tool, path)
            assert "Nothing was run" in error
            assert "Value error" not in error
    assert await bench.output("list_files") == "a/"


@given(st.text(max_size=60))
async def test_no_path_leads_out_whatever_is_written(path: str) -> None:
    try:
        inside = workspace_path(path)
    except ToolError:
        return
    assert not inside.startswith("/")
    assert ".." not in inside.split("/")
    assert workspace_path(inside) == inside
    assert workspace_path(f"/workspace/{inside}") == inside


async def test_html_comes_with_a_preview(bench: Bench) -> None:
    address = "https://agent.example/preview/site/index.html"
    assert address in await bench.output("create_file", file_path="site/index.html", file_contents="<p>one</p>")
    assert address in await bench.output("str_replace", file_path="site/index.html", old_str="one", new_str="two")
    assert "preview" not in await bench.output("create_file", file_path="a.css", file_contents="")


async def test_a_name_adds_no_line_to_a_list(bench: Bench) -> None:
    command = "touch $'a.txt\\npaid.txt (9 bytes)' 'é ü.txt'"
    await bench.output("execute_command", command=command, blocking=True)
    listed = (await bench.output("list_files")).split("\n")
    assert listed == ["a.txt\\npaid.txt (9 bytes) (0 bytes)", "é ü.txt (0 bytes)"]
    viewed = await bench.output("str_replace_editor", command="view", path=".")
    assert viewed.split("\n") == ["a.txt\\npaid.txt (9 bytes)", "é ü.txt"]


async def test_a_long_listing_is_cut_and_says_so(bench: Bench) -> None:
    await bench.output("execute_command", command="touch f{1..700}", blocking=True)
    shown = (await bench.output("list_files")).splitlines()
    assert len(shown) == 501
    assert shown[-1] == "[and 200 more; list them with a command]"


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
