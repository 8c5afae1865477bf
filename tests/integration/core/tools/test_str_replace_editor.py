"""str_replace_editor in real sandboxes: every command, and the way back."""

from pydantic import JsonValue

from core.tools.workspace import str_replace_editor
from tests.integration.core.tools.conftest import Bench
from tests.integration.core.tools.shared_bench import IN_MODULE_LOOP
from tests.integration.core.tools.shared_bench import bench as bench
from tests.integration.core.tools.shared_bench import shared_sandbox as shared_sandbox

pytestmark = IN_MODULE_LOOP


class Editor:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def does(self, command: str, path: str, **more: JsonValue) -> str:
        return await self.bench.output("str_replace_editor", command=command, path=path, **more)

    async def refuses(self, command: str, path: str, **more: JsonValue) -> str:
        return await self.bench.error("str_replace_editor", command=command, path=path, **more)


async def test_of_a_large_file_ranges_are_viewed(bench: Bench) -> None:
    whole = "".join(f"line {number}\n" for number in range(1, 500_001)).encode()
    await bench.put("large.txt", whole + b"x" * 200_000 + b"\nlast\n")
    editor = Editor(bench)
    ranged = await editor.does("view", "large.txt", view_range=[400_000, 400_001])
    assert ranged == "400000\tline 400000\n400001\tline 400001"
    begun = await editor.does("view", "large.txt")
    assert begun.startswith("     1\tline 1\n")
    next_line = begun.rpartition("view_range=[")[2].partition(",")[0]
    assert f"cut before line {next_line}" in begun
    long = await editor.does("view", "large.txt", view_range=[500_001, -1])
    assert len(long) < 60_000
    assert "line 500001 is longer" in long
    assert "view_range=[500002, -1]" in long
    assert "500002\tlast" in await editor.does("view", "large.txt", view_range=[500_002, -1])
    assert "ends before" in await editor.refuses("view", "large.txt", view_range=[600_000, -1])
    assert "begins at 0" in await editor.refuses("view", "large.txt", view_range=[0, 5])
    assert "ends at 3" in await editor.refuses("view", "large.txt", view_range=[5, 3])
    assert "two numbers" in await editor.refuses("view", "large.txt", view_range=[1, 2, 3])


async def test_a_folder_is_viewed_two_levels_deep_without_what_is_hidden(bench: Bench) -> None:
    for path in ("src/a.py", "src/deep/b.py", "src/deep/deeper/c.py", ".hidden/x", "src/.y"):
        await bench.put(path, b"x")
    assert (await Editor(bench).does("view", ".")).split("\n") == ["src/", "src/a.py", "src/deep/"]
    assert (await Editor(bench).does("view", "src")).split("\n") == [
        "src/a.py",
        "src/deep/",
        "src/deep/b.py",
        "src/deep/deeper/",
    ]
    assert "without view_range" in await Editor(bench).refuses("view", "src", view_range=[1, 2])


async def test_text_is_put_after_a_line(bench: Bench) -> None:
    editor = Editor(bench)
    cases: list[tuple[bytes, int, str, bytes]] = [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\ny\n", b"a\nx\ny\nb\n"),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n"),
        (b"a\nb", 2, "x", b"a\nb\nx"),
        (b"", 0, "x", b"x\n"),
        (b"a\r\nb\r\n", 1, "x", b"a\r\nx\r\nb\r\n"),
        ("é\n".encode("latin-1") * 2, 1, "ü", "é\nü\né\n".encode("latin-1")),
        ("a\u2028b\nc\n".encode(), 1, "x", "a\u2028b\nx\nc\n".encode()),
    ]
    for before, line, text, after in cases:
        await bench.put("a.txt", before)
        await editor.does("view", "a.txt")
        await editor.does("insert", "a.txt", insert_line=line, new_str=text)
        assert await bench.get("a.txt") == after

    await bench.put("a.txt", b"a\nb\n")
    await editor.does("view", "a.txt")
    assert "has 2 lines" in await editor.refuses("insert", "a.txt", insert_line=3, new_str="x")


async def test_a_line_number_means_a_line_that_was_seen(bench: Bench) -> None:
    editor = Editor(bench)
    await bench.put("a.txt", b"one\ntwo\n")
    unseen = await editor.refuses("insert", "a.txt", insert_line=1, new_str="x")
    assert "View the file first" in unseen
    await editor.does("view", "a.txt")
    await bench.put("a.txt", b"zero\none\ntwo\n")
    assert "View it again" in await editor.refuses("insert", "a.txt", insert_line=1, new_str="x")
    await editor.does("insert", "a.txt", insert_line=0, new_str="first")
    await editor.does("insert", "a.txt", insert_line=2, new_str="x")
    assert await bench.get("a.txt") == b"first\nzero\nx\none\ntwo\n"


async def test_edits_are_taken_back_one_by_one(bench: Bench) -> None:
    editor = Editor(bench)
    await editor.does("create", "a.txt", file_text="one\n")
    await editor.does("str_replace", "a.txt", old_str="one", new_str="two")
    await editor.does("insert", "a.txt", insert_line=0, new_str="zero")
    assert await bench.get("a.txt") == b"zero\ntwo\n"
    await editor.does("undo_edit", "a.txt")
    assert await bench.get("a.txt") == b"two\n"
    await editor.does("undo_edit", "a.txt")
    assert await bench.get("a.txt") == b"one\n"
    assert "is gone" in await editor.does("undo_edit", "a.txt")
    assert "no such file" in await bench.error("read_file", file_path="a.txt")
    assert "no edit" in await editor.refuses("undo_edit", "a.txt")


async def test_what_something_else_wrote_since_is_not_taken_back(bench: Bench) -> None:
    editor = Editor(bench)
    await editor.does("create", "a.txt", file_text="one\n")
    await bench.put("a.txt", b"by hand\n")
    assert "changed by something else" in await editor.refuses("undo_edit", "a.txt")
    await editor.does("str_replace", "a.txt", old_str="hand", new_str="tool")
    await editor.does("undo_edit", "a.txt")
    said = await editor.refuses("undo_edit", "a.txt")
    assert "had made the file" in said
    assert await bench.get("a.txt") == b"by hand\n"

    await editor.does("str_replace", "a.txt", old_str="by", new_str="with")
    await bench.put("a.txt", b"over it\n")
    said = await editor.refuses("undo_edit", "a.txt")
    place = said.partition("is in ")[2].partition(",")[0]
    assert await bench.get(place) == b"by hand\n"


async def test_a_folder_in_the_place_of_a_created_file_is_kept(bench: Bench) -> None:
    editor = Editor(bench)
    await editor.does("create", "out", file_text="one\n")
    await bench.output("delete_file", file_path="out")
    await bench.put("out/kept.txt", b"kept\n")
    assert "changed by something else" in await editor.refuses("undo_edit", "out")
    assert await bench.get("out/kept.txt") == b"kept\n"


async def test_a_file_that_was_deleted_since_comes_back(bench: Bench) -> None:
    editor = Editor(bench)
    await bench.put("a.txt", b"one\n")
    await editor.does("str_replace", "a.txt", old_str="one", new_str="two")
    await bench.output("delete_file", file_path="a.txt")
    await editor.does("undo_edit", "a.txt")
    assert await bench.get("a.txt") == b"one\n"


async def test_an_edit_that_cannot_be_taken_back_is_made_and_says_so(bench: Bench) -> None:
    editor = Editor(bench)
    await bench.put(".undo", b"a file where the folder should be")
    for arguments in (
        {"command": "create", "file_text": "one\n"},
        {"command": "str_replace", "old_str": "one", "new_str": "two"},
        {"command": "insert", "insert_line": 0, "new_str": "zero"},
    ):
        assert "undo_edit cannot take this back: " in await bench.output("str_replace_editor", path="a", **arguments)
    assert await bench.get("a") == b"zero\ntwo\n"
    assert "no edit" in await editor.refuses("undo_edit", "a")


async def test_what_a_command_needs_is_asked_for(bench: Bench) -> None:
    await bench.put("a.txt", b"x")
    editor = Editor(bench)
    for command, said in (
        ("create", "needs file_text"),
        ("str_replace", "needs old_str"),
        ("insert", "needs new_str"),
        ("erase", "do not fit"),
    ):
        assert said in await editor.refuses(command, "a.txt")
    assert "needs insert_line" in await editor.refuses("insert", "a.txt", new_str="x")
    assert "old_str is empty" in await editor.refuses("str_replace", "a.txt", old_str="", new_str="x")


async def test_each_file_has_its_own_way_back_with_so_many_steps(bench: Bench) -> None:
    editor = Editor(bench)
    await bench.put("a.txt", b"0\n")
    await bench.put("b.txt", b"b\n")
    for number in range(13):
        await editor.does("str_replace", "a.txt", old_str=f"{number}\n", new_str=f"{number + 1}\n")
    for _ in range(str_replace_editor.UNDO_STEPS_MAX):
        await editor.does("undo_edit", "a.txt")
    assert await bench.get("a.txt") == b"3\n"
    assert "no edit" in await editor.refuses("undo_edit", "a.txt")
    assert "no edit" in await editor.refuses("undo_edit", "b.txt")
