"""Parses the checklist in todo.md, and tracks the file's content through the tool calls that write it."""

import asyncio
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from core.context.message_text import stored_call
from core.domain.errors import RunError, ToolError
from core.domain.events import AgentEvent, ChecklistChanged, ChecklistItem
from core.domain.json import JsonObject
from core.domain.messages import Message, ToolCall
from core.ports import Sandbox

TODO_KEY = "todo"
TODO_PATH = "todo.md"
TODO_BYTES_MAX = 64 * 1024
ITEMS_MAX = 200
ITEM_CHARACTERS_MAX = 300
_MARKUP_CHARACTERS_MAX = 2 * ITEM_CHARACTERS_MAX
"""At most this many characters of a line are parsed, because matching pairs of markup takes quadratic time."""

DEFAULT_TITLE = "todo.md"
_WRITERS = frozenset(("create_file", "full_file_rewrite", "str_replace", "delete_file"))
RUNS_COMMANDS = frozenset(("execute_command", "check_command_output", "python_execute"))
_MAY_WRITE = RUNS_COMMANDS | {"str_replace_editor"}
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[([ xX~/>!-])\]\s+(.*)")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_STATES: Mapping[str, Literal["active", "done", "blocked"]] = {
    "x": "done", "X": "done", "~": "active", "/": "active", ">": "active", "!": "blocked",
}  # fmt: skip


def writes_todo(name: str, arguments: JsonObject) -> bool:
    """Returns whether a tool call with this name and these arguments changes /workspace/todo.md."""
    path = arguments.get("file_path")
    if name not in _WRITERS or not isinstance(path, str):
        return False
    return posixpath.normpath(path.strip().removeprefix("/workspace/").lstrip("/")) == TODO_PATH


def parse_checklist(text: str) -> ChecklistChanged:
    """Returns the checklist items of a Markdown text in order.

    If there are several sections, each item starts with its section's name. If no item is marked as active, the first
    open item counts as active, because items are done in order."""
    title, section, fence, found = "", "", "", list[tuple[str, str, str]]()
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif fence:
            continue
        elif heading := _HEADING.fullmatch(line):
            words = _plain_item(heading[2])
            if not title and not found and len(heading[1]) == 1:
                title = words
            else:
                section = words
        elif (item := _ITEM.fullmatch(line)) and len(found) < ITEMS_MAX:
            found.append((section, item[1], _plain_item(item[2])))
    has_sections = len({one[0] for one in found}) > 1
    has_active = any(_STATES.get(sign) == "active" for _, sign, _ in found)
    items: list[ChecklistItem] = []
    for section, sign, words in found:
        shown = f"{section}: {words}" if has_sections and section else words
        is_next = not has_active and sign not in _STATES
        has_active = has_active or is_next
        items.append(ChecklistItem(text=shown, state="active" if is_next else _STATES.get(sign, "pending")))
    return ChecklistChanged(title=title or DEFAULT_TITLE, items=tuple(items))


def _plain_item(words: str) -> str:
    read = words.strip()[:_MARKUP_CHARACTERS_MAX]
    return re.sub(r"[*_`]{1,3}(\S(?:.*?\S)?)[*_`]{1,3}", r"\1", read)[:ITEM_CHARACTERS_MAX]


def apply_call_to_todo(text: str | None, name: str, arguments: JsonObject) -> str | None:
    """Returns the text of todo.md after a successful call, or None if the file is gone or its text is unknown.

    `text` is the text before the call, or None if it is unknown."""
    contents = arguments.get("file_contents")
    if name in ("create_file", "full_file_rewrite"):
        return contents if isinstance(contents, str) else None
    old, new = arguments.get("old_str"), arguments.get("new_str")
    if name == "delete_file" or text is None:
        return None
    if isinstance(old, str) and isinstance(new, str) and text.count(old) == 1:
        return text.replace(old, new)
    return None


def todo_text_in_history(messages: Sequence[Message]) -> str | None:
    """Returns the text of todo.md after all file tool calls in the messages, or None if it is unknown.

    Changes that shell commands made to the file are not included."""
    text: str | None = None
    for message in messages:
        if message.type == "summary":
            kept = message.metadata.get(TODO_KEY)
            text = kept if isinstance(kept, str) else None
        elif call := todo_call(message):
            text = apply_call_to_todo(text, *call)
    return text


def todo_call(message: Message) -> tuple[str, JsonObject] | None:
    """Returns the name and arguments of the call if the message is the result of a successful write to todo.md."""
    call = successful_call(message, _WRITERS)
    return call if call is not None and writes_todo(*call) else None


def successful_call(message: Message, names: frozenset[str]) -> tuple[str, JsonObject] | None:
    """Returns the name and arguments of the call if the message is the result of a successful call of these tools."""
    match stored_call(message):
        case (name, arguments, result) if name in names and result.get("success") is True:
            return name, arguments
        case _:
            return None


log = logging.getLogger(__name__)
READ_SECONDS = 5.0


class TodoTracker:
    """Emits the checklist for all calls of a run that write todo.md, in their order, so that the newest checklist comes
    last."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._text: str | None = None  # as last read in this run

    async def track_call(
        self, call: ToolCall, sandbox: Callable[[], Awaitable[Sandbox]], emit: Callable[[AgentEvent], None]
    ) -> None:
        """Emits the checklist if the call changed todo.md.

        A command may change the file and then fail. So the file is read after every command that names it, and after
        every command once the run has used the file. Errors are only logged, because the checklist is only for
        display."""
        is_write = writes_todo(call.name, call.arguments)
        is_near = self._text is not None or TODO_KEY in str(call.arguments).lower()
        if not is_write and not (call.name in _MAY_WRITE and is_near):
            return
        try:
            async with self._lock, asyncio.timeout(READ_SECONDS):
                files, before = (await sandbox()).files, self._text or ""
                try:
                    pieces = [one async for one in files.read(TODO_PATH, length=TODO_BYTES_MAX)]
                except ToolError:
                    pieces = []  # the file is missing
                self._text = text = b"".join(pieces)[:TODO_BYTES_MAX].decode(errors="replace")
                if text != before:
                    emit(await asyncio.to_thread(parse_checklist, text))
        except (RunError, TimeoutError) as error:
            log.warning("todo.md was not read: %s", type(error).__name__)
