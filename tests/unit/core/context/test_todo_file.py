"""The checklist in todo.md."""

import time

from core.context.todo_file import (
    ITEM_CHARACTERS_MAX,
    apply_call_to_todo,
    parse_checklist,
    todo_text_in_history,
    writes_todo,
)
from core.dialects.native import NativeDialect
from core.domain.events import ChecklistItem
from core.domain.json import JsonObject
from core.domain.messages import Message, ToolCall
from tests.support.conversations import message

TEXT = """\
# Trip report

## Research
- [x] Find **three** sources
- [ ] Read them

## Writing
1. [ ] Draft
- [!] Photos

```
- [ ] not an item
```
"""


def states(text: str) -> list[tuple[str, str]]:
    return [(item.text, item.state) for item in parse_checklist(text).items]


def test_sections_items_and_the_one_that_is_next() -> None:
    assert parse_checklist(TEXT).title == "Trip report"
    assert states(TEXT) == [
        ("Research: Find three sources", "done"),
        ("Research: Read them", "active"),
        ("Writing: Draft", "pending"),
        ("Writing: Photos", "blocked"),
    ]


def test_a_line_full_of_marks_is_read_in_linear_time() -> None:
    began = time.process_time()
    assert len(states("- [ ] " + "*a " * 20_000)[0][0]) == ITEM_CHARACTERS_MAX
    # pairs were looked for from every mark to the end of the line: ten seconds in which nothing else was done
    assert time.process_time() - began < 2


def test_an_item_that_says_it_is_under_way_is_the_active_one_and_one_section_is_not_repeated() -> None:
    assert states("- [ ] a\n- [~] b") == [("a", "pending"), ("b", "active")]
    assert states("## Steps\n- [ ] a\n* [X] b") == [("a", "active"), ("b", "done")]


def test_a_file_without_items_is_an_empty_list() -> None:
    assert parse_checklist("just notes\n- a point\n[ ] no list").items == ()
    assert parse_checklist("").title == "todo.md"


def test_an_enormous_file_stays_bounded() -> None:
    items = parse_checklist(("- [ ] " + "x" * 5000 + "\n") * 1000).items
    assert len(items) == 200
    assert items[0] == ChecklistItem(text="x" * 300, state="active")


def test_the_file_is_recognised_however_its_path_is_written() -> None:
    for path in ("todo.md", "/workspace/todo.md", "./todo.md", "a/../todo.md"):
        assert writes_todo("create_file", {"file_path": path}), path
    for path in ("notes/todo.md", "todo.md.bak", 7, None):
        assert not writes_todo("create_file", {"file_path": path}), path
    assert not writes_todo("read_file", {"file_path": "todo.md"})


def test_the_text_is_followed_through_the_calls() -> None:
    text = apply_call_to_todo(None, "create_file", {"file_contents": "- [ ] a"})
    text = apply_call_to_todo(text, "str_replace", {"old_str": "[ ] a", "new_str": "[x] a"})
    assert text == "- [x] a"
    assert apply_call_to_todo(text, "str_replace", {"old_str": "b", "new_str": "c"}) is None
    assert apply_call_to_todo(text, "delete_file", {}) is None


def wrote(arguments: JsonObject, *, success: bool = True) -> Message:
    call = ToolCall(name="full_file_rewrite", arguments=arguments, call_id="1")
    result: JsonObject = {"success": success, "output": "ok", "error": None}
    made = message("tool", NativeDialect().result_content(call, result))
    made.metadata["parsing_details"] = {"function_name": call.name}
    return made


def test_a_conversation_tells_what_the_file_holds() -> None:
    first = wrote({"file_path": "todo.md", "file_contents": "one"})
    failed = wrote({"file_path": "todo.md", "file_contents": "two"}, success=False)
    other = wrote({"file_path": "notes.md", "file_contents": "three"})
    assert todo_text_in_history([first, failed, other]) == "one"
    assert todo_text_in_history([]) is None
