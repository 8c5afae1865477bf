"""Splits long Markdown into messages, preferably between paragraphs, without breaking code fences and tables."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

_FENCE_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})(?P<words>.*)$")
_TABLE_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
"""Matches the line under a table header. Strip the line first, because surrounding spaces cause backtracking."""
_SENTENCE_END = re.compile(r"[.!?]\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A paragraph, code fence or table.

    `gap` holds the line breaks before the block. The lines of a fence include its opening and closing lines.
    """

    kind: Literal["text", "fence", "table"]
    lines: tuple[str, ...]
    gap: str

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def split_markdown(markdown: str, limit: int) -> list[str]:
    """Returns the Markdown in order, in parts of at most `limit` characters. Returns [] for blank text.

    Text that fits is returned unchanged. A code fence that is too long is closed at the end of one part and reopened,
    with its info string, in the next part. A table that is too long is split between rows, and every part repeats the
    header. A line that is too long is split after a sentence, otherwise after a word, otherwise at the limit.
    Raises ValueError if `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError("a part holds at least one character")
    if not markdown.strip():
        return []
    if len(markdown) <= limit:
        return [markdown]
    parts: list[str] = []
    current = ""
    for block in _blocks(markdown.replace("\r\n", "\n")):
        gap = block.gap if current else ""
        if len(current) + len(gap) + len(block.text) <= limit:
            current += gap + block.text
            continue
        room = limit - len(current) - len(gap)
        if current and (len(block.text) <= limit or room < max(1, limit // 3)):
            parts.append(current)
            current, gap, room = "", "", limit
        pieces = list(_cut(block, room, limit))
        pieces[0] = current + gap + pieces[0]
        *full, current = pieces
        parts.extend(full)
    parts.append(current)
    return [part for part in parts if part.strip()]


def _blocks(markdown: str) -> Iterator[_Block]:
    lines = markdown.split("\n")
    at, gap = 0, ""
    while at < len(lines):
        if not lines[at].strip():
            gap += "\n"
            at += 1
            continue
        kind, end = _block_end(lines, at)
        block = tuple(lines[at:end])
        if kind == "fence" and not _closes(block[-1], block[0], len(block)):
            block = (*block, _closing(block[0]))
        yield _Block(kind=kind, lines=block, gap=gap)
        at, gap = end, "\n"


def _block_end(lines: Sequence[str], start: int) -> tuple[Literal["text", "fence", "table"], int]:
    if _is_opening(lines[start]):
        end = start + 1
        while end < len(lines):
            end += 1
            if _closes(lines[end - 1], lines[start], end - start):
                break
        return "fence", end
    end = start + 1
    if _is_table(lines, start):
        while end < len(lines) and "|" in lines[end]:
            end += 1
        return "table", end
    while end < len(lines) and lines[end].strip():
        if _is_opening(lines[end]) or _is_table(lines, end):
            break
        end += 1
    return "text", end


def _is_opening(line: str) -> bool:
    match = _FENCE_OPENING.match(line)
    return match is not None and not (match["marks"][0] == "`" and "`" in match["words"])


def _closes(line: str, opening: str, line_count: int) -> bool:
    match = _FENCE_OPENING.match(opening)
    marks = line.strip()
    return (
        match is not None
        and line_count > 1
        and set(marks) == {match["marks"][0]}
        and len(marks) >= len(match["marks"])
    )


def _closing(opening: str) -> str:
    match = _FENCE_OPENING.match(opening)
    return match["indent"] + match["marks"] if match else ""


def _is_table(lines: Sequence[str], at: int) -> bool:
    return (
        "|" in lines[at]
        and at + 1 < len(lines)
        and "|" in lines[at + 1]
        and _TABLE_RULE.match(lines[at + 1].strip()) is not None
    )


def _cut(block: _Block, room: int, limit: int) -> Iterator[str]:
    """Yields at least one piece of the block: the first has at most `room` characters, the others at most `limit`."""
    if len(block.text) <= room:
        yield block.text
    elif block.kind == "fence":
        opening, *body, closing = block.lines
        yield from _cut_framed(block.text, body, (f"{opening}\n", f"\n{closing}"), room, limit)
    elif block.kind == "table":
        header, rule, *rows = block.lines
        yield from _cut_framed(block.text, rows, (f"{header}\n{rule}\n", ""), room, limit)
    else:
        yield from _cut_text(block.text, room, limit)


def _cut_framed(
    text: str, lines: Sequence[str], frame: tuple[str, str], room: int, limit: int
) -> Iterator[str]:
    """Yields groups of lines, each between the two strings of `frame`, such as the opening and closing of a fence.

    Splits `text` as plain text instead if the frame leaves too little room.
    """
    before, after = frame
    space = limit - len(before) - len(after)
    is_table = not after
    if space < limit // 3 or space < 1 or (is_table and any(len(line) > space for line in lines)):
        yield from _cut_text(text, room, limit)
        return
    held: list[str] = []
    length = -1
    room -= len(before) + len(after)
    for line in (piece for whole in lines for piece in _cut_line(whole, space)):
        if length + 1 + len(line) > room and (held or room < space):
            yield before + "\n".join(held) + after if held else ""
            held, length, room = [], -1, space
        held.append(line)
        length += 1 + len(line)
    yield before + "\n".join(held) + after


def _cut_line(line: str, limit: int) -> Iterator[str]:
    """Yields the line in pieces of at most `limit` characters. Joined, the pieces give the line."""
    yield line[:limit]
    for at in range(limit, len(line), limit):
        yield line[at : at + limit]


def _cut_text(text: str, room: int, limit: int) -> Iterator[str]:
    while len(text) > room:
        at = _cut_position(text, room)
        yield text[:at].rstrip()
        text = text[at:].lstrip("\n ")
        room = limit
    yield text


def _cut_position(text: str, room: int) -> int:
    """Returns the best index for a split at or before `room`: the end of a line, sentence or word, or else `room`."""
    window = text[: room + 1]
    least = room // 2
    if (line_end := window.rfind("\n")) > least // 2:
        return line_end
    sentences = [match.start() + 1 for match in _SENTENCE_END.finditer(window)]
    if sentences and sentences[-1] > least:
        return sentences[-1]
    if (word_end := window.rfind(" ")) > least // 2:
        return word_end
    return room
