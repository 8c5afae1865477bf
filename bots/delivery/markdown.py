"""Splits long Markdown into messages, preferably between paragraphs, without breaking code fences and tables.

Slack and Discord give their limits in characters. Lengths here are in UTF-16 units, of which a text has at least as
many, so a text that fits by this count always fits."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

from core.domain.outside_text import utf16_length

_FENCE_OPENING = re.compile(r"([ \t]*)(`{3,}+(?=[^`]*$)|~{3,}+)")
_TABLE_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
"""Matches the line under a table header. Strip the line first, because surrounding spaces cause backtracking."""
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_SENTENCE_END = re.compile(r"[.!?:]['\")\]*_”’]{0,4}(?=\s)|[。！？]")
_ITEM = re.compile(r"(?=\n[ \t]{0,8}(?:[-*+>#]|\d{1,9}[.)])[ \t])")
"""Matches before the line break that precedes a list item, a quotation or a heading."""
_LINE_END, _SPACE = re.compile(r"(?=\n)"), re.compile("(?= )")
_LOOK_AHEAD = 400
"""How many characters after a limit are searched for the end of a link or styled word that should not be split."""
_QUOTE = re.compile(r"[ \t]{0,3}(?:>[ \t]?)+")
_WHOLE = re.compile(r"\[[^\[\]\n]*\]\([^()\s]*\)|<https?://[^<>\s]*>|https?://[^\s<>]+|(\*\*|~~)(?=\S)[^*~\n]+?\1")
"""Matches links and styled words, which are not split. Takes linear time, because no part of the pattern scans text
twice."""
_BACKTICKS = re.compile("`+")
_URL = re.compile(r"https?://[^\s<>*()\[\]]+(?:\*\*)?")
_LABELLED_URL = re.compile(r"<(https?://[^\s<>|]+)\|([^<>|\n]*)>")
_HALF_BOLD_URL = re.compile(r"<(https?://[^\s<>*]+)\*\*>")
_CROWD_IN_URL = re.compile(r"@(?=channel|here|everyone|group)", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w\\])__([A-Za-z0-9]+(?:_[A-Za-z0-9]+)*)__(?!\w)")
_BREAK = re.compile(r"<br[ ]?/?>", re.IGNORECASE)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_WITHOUT_LINKS = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_WITHOUT_LINKS.disable(["link", "image"])
"""For text without links. Looking for the end of a link at each bracket takes long if many brackets are open."""
_ZERO_WIDTH_JOINER = "\u200d"
_CLUSTER_MAX = 32
"""How many code points a cut may move back to keep one visible character whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownBlock:
    """A paragraph, code fence or table.

    `gap` holds the line breaks before the block. The lines of a fence include its opening and closing lines."""

    kind: Literal["text", "fence", "table"]
    lines: tuple[str, ...]
    gap: str

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def split_markdown(markdown: str, limit: int) -> list[str]:
    """Splits the Markdown into parts of at most `limit` UTF-16 units. Returns [] for blank text.

    Text that fits is returned unchanged. A code fence that is too long is closed at the end of one part and reopened,
    with its info string, in the next part. A table that is too long is split between rows, and every part repeats the
    header. A line that is too long is split after a sentence if possible, else after a word, else at the limit. Raises
    ValueError if `limit` is less than 2."""
    if limit < 2:
        raise ValueError("a part holds at least one character, which may take two units")
    if not markdown.strip():
        return []
    if utf16_length(markdown) <= limit:
        return [markdown]
    parts: list[str] = []
    current = ""
    for block in scan_blocks(markdown.replace("\r\n", "\n")):
        gap = block.gap if current else ""
        length = utf16_length(block.text)
        room = limit - utf16_length(current) - len(gap)
        if length <= room:
            current += gap + block.text
            continue
        if current and (length <= limit or room < max(2, limit // 3)):
            parts.append(current)
            current, gap, room = "", "", limit
        pieces = list(_cut(block, room, limit))
        pieces[0] = current + gap + pieces[0]
        *full, current = pieces
        parts.extend(full)
    parts.append(current)
    return [part for part in parts if part.strip()]


def normalize_model_markdown(markdown: str) -> str:
    """Rewrites what models write and chat platforms do not show: Slack's own links, HTML line breaks, bold text that
    ends in an address, and names such as `__init__`. Leaves code unchanged."""
    return "".join(
        block.gap + (block.text if block.kind == "fence" else map_outside_code(block.text, partial(_tidy, block.kind)))
        for block in scan_blocks(markdown)
    )


def _tidy(kind: Literal["text", "table"], words: str) -> str:
    words = _LABELLED_URL.sub(lambda m: f"[{m[2].strip() or m[1]}]({m[1]})", words)
    words = _URL.sub(_tidy_url, _HALF_BOLD_URL.sub(r"<\1>**", words))
    words = _NAME.sub(r"\_\_\1\_\_", words)
    return _BREAK.sub(" / " if kind == "table" else "\n", words).replace("&nbsp;", " ")


def _tidy_url(found: re.Match[str]) -> str:
    url = _CROWD_IN_URL.sub("%40", found[0])
    is_bare = found.string[found.start() - 1 : found.start()] not in ("<", "(", "[")
    return f"<{url[:-2]}>**" if is_bare and url.endswith("**") else url


def map_outside_code(text: str, change: Callable[[str], str]) -> str:
    """Returns the text with `change` applied to everything except inline code. The text must not contain fences."""
    pieces: list[str] = []
    end = 0
    for start, code_end in _code_spans(text):
        pieces += [change(text[end:start]), text[start:code_end]]
        end = code_end
    return "".join([*pieces, change(text[end:])])


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each inline code span, in linear time. A span is enclosed by runs of backticks of
    equal length, which is as long as possible."""
    runs = [found.span() for found in _BACKTICKS.finditer(text)]
    lengths = [end - start for start, end in runs]
    longest_later = [*accumulate(reversed(lengths[1:]), max, initial=0)][::-1]
    done = 0
    for (start, end), later in zip(runs, longest_later, strict=False):
        while (rest := end - max(start, done)) > 0:
            marks = max(min(rest, later), rest // 2)
            if not marks:
                break
            start = end - rest
            done = text.index("`" * marks, start + marks) + marks
            yield start, done


def scan_blocks(markdown: str) -> Iterator[MarkdownBlock]:
    """Yields the paragraphs, fences and tables in order. Closes a fence that was left open."""
    lines = markdown.split("\n")
    at, gap = 0, ""
    while at < len(lines):
        if not lines[at].strip():
            gap += "\n"
            at += 1
            continue
        kind, end = _block_end(lines, at)
        block = tuple(lines[at:end])
        if opening := _FENCE_OPENING.match(block[0]) if kind == "fence" else None:
            is_closed = len(block) > 1 and _closes(block[-1], opening[2])
            block = block if is_closed else (*block, opening[0])
        yield MarkdownBlock(kind=kind, lines=block, gap=gap)
        at, gap = end, "\n"


def _block_end(lines: Sequence[str], start: int) -> tuple[Literal["text", "fence", "table"], int]:
    if opening := _FENCE_OPENING.match(lines[start]):
        inside = range(start + 1, len(lines))
        ends = (at + 1 for at in inside if _closes(lines[at], opening[2]))
        return "fence", next(ends, len(lines))
    end = start + 1
    if _is_table(lines, start):
        while end < len(lines) and "|" in lines[end]:
            end += 1
        return "table", end
    while end < len(lines) and lines[end].strip():
        if _FENCE_OPENING.match(lines[end]) or _is_table(lines, end):
            break
        end += 1
    return "text", end


def _closes(line: str, opening_marks: str) -> bool:
    marks = line.strip()
    return set(marks) == {opening_marks[0]} and len(marks) >= len(opening_marks)


def _is_table(lines: Sequence[str], at: int) -> bool:
    return (
        "|" in lines[at]
        and at + 1 < len(lines)
        and "|" in lines[at + 1]
        and _TABLE_RULE.match(lines[at + 1].strip()) is not None
        and len(split_table_row(lines[at])) == len(split_table_row(lines[at + 1]))
    )


def split_table_row(line: str) -> list[str]:
    """Returns the cells of one line of a table, without surrounding spaces."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.replace("\\|", "|").strip() for cell in _CELL_BORDER.split(inner)]


def _cut(block: MarkdownBlock, room: int, limit: int) -> Iterator[str]:
    """Yields at least one piece of the block: the first has at most `room` units, the others at most `limit`."""
    if utf16_length(block.text) <= room:
        yield block.text
    elif block.kind == "fence":
        opening, *body, closing = block.lines
        yield from _cut_framed(block.text, body, (f"{opening}\n", f"\n{closing}"), room, limit)
    elif block.kind == "table":
        header, rule, *rows = block.lines
        yield from _cut_framed(block.text, rows, (f"{header}\n{rule}\n", ""), room, limit)
    else:
        yield from _cut_text(block.text, room, limit)


def _cut_framed(text: str, lines: Sequence[str], frame: tuple[str, str], room: int, limit: int) -> Iterator[str]:
    """Yields groups of lines, each between the two strings of `frame`, such as the opening and closing of a fence.

    Splits `text` as plain text instead if the frame leaves too little room."""
    before, after = frame
    space = limit - utf16_length(before) - utf16_length(after)
    is_table = not after
    is_too_wide = is_table and any(utf16_length(line) > space for line in lines)
    if space < limit // 3 or space < 2 or is_too_wide:
        yield from _cut_text(text, room, limit)
        return
    held: list[str] = []
    length = -1
    room -= limit - space
    for line in (piece for whole in lines for piece in _cut_line(whole, space)):
        added = 1 + utf16_length(line)
        if length + added > room and (held or room < space):
            yield before + "\n".join(held) + after if held else ""
            held, length, room = [], -1, space
        held.append(line)
        length += added
    yield before + "\n".join(held) + after


def _cut_line(line: str, limit: int) -> Iterator[str]:
    """Yields the line in pieces of at most `limit` units. Joined, the pieces give the line."""
    end = fitting_prefix_length(line, limit)
    yield line[:end]
    while end < len(line):
        start, end = end, end + fitting_prefix_length(line[end : end + limit + 1], limit)
        yield line[start:end]


def _cut_text(text: str, room: int, limit: int) -> Iterator[str]:
    """Yields the text in pieces. If a quoted line is split, its rest is quoted, too."""
    while utf16_length(text) > room:
        at = _cut_position(text[: room + _LOOK_AHEAD], fitting_prefix_length(text[: room + 1], room))
        yield text[:at].rstrip()
        line = text[text.rfind("\n", 0, at) + 1 : at]
        quote = _QUOTE.match(line) if text[at : at + 1] != "\n" else None
        rest = text[at:].lstrip("\n ")
        is_quoted = quote and utf16_length(quote[0]) < limit // 3
        text, room = (quote[0] + rest if quote and is_quoted else rest), limit
    yield text


def _cut_position(text: str, room: int) -> int:
    """Returns the best index for a split at or before `room`: the end of an item or sentence, then of a line or word,
    or else `room`. Links, styled words and inline code are split only if there is no other place."""
    whole = [found.span() for found in _WHOLE.finditer(text)] + [*_code_spans(text)]
    inside = {at for start, end in whole for at in range(start + 1, end)}

    for pattern, least in ((_ITEM, room // 4), (_SENTENCE_END, room // 2), (_LINE_END, room // 4), (_SPACE, room // 4)):
        places = [found.end() for found in pattern.finditer(text) if least < found.end() <= room]
        if at := next((place for place in reversed(places) if place not in inside), 0):
            return at
    return room


def fitting_prefix_length(text: str, length_max: int) -> int:
    """Returns the length of the longest prefix that has at most `length_max` UTF-16 units. Keeps an emoji with its
    modifiers whole if possible."""
    index = min(len(text), length_max)
    while (excess := utf16_length(text[:index]) - length_max) > 0:
        index -= (excess + 1) // 2
    if index == len(text):
        return index
    whole = index
    while whole > max(0, index - _CLUSTER_MAX) and _continues(text, whole):
        whole -= 1
    return index if whole == 0 or _continues(text, whole) else whole


def truncate(text: str, length_max: int) -> str:
    """Returns the text, truncated with an ellipsis if it is longer than `length_max` UTF-16 units."""
    if utf16_length(text) <= length_max:
        return text
    return text[: fitting_prefix_length(text, max(0, length_max - 1))] + "…"


def choose_parser(markdown: str) -> MarkdownIt:
    """Returns a parser for the text. It looks for links only if the text may have some."""
    return _MARKDOWN if "](" in markdown or "]:" in markdown else _WITHOUT_LINKS


def markdown_to_words(markdown: str) -> str:
    """Returns the text without Markdown's marks, as a screen reader or push notification should present it."""
    lines: list[str] = []
    for token in choose_parser(markdown).parse(markdown):
        if token.type == "inline":
            lines.append("".join(token_text(child) for child in token.children or ()))
        elif token.type in ("fence", "code_block"):
            lines.append(token.content.rstrip("\n"))
    return "\n".join(lines)


def token_text(token: Token) -> str:
    """Returns the text of an inline token."""
    return "\n" if token.type in ("softbreak", "hardbreak") else token.content


def _continues(text: str, index: int) -> bool:
    """Returns whether the character at the index belongs to the visible character before it."""
    this, before = text[index], text[index - 1]
    return (
        this == _ZERO_WIDTH_JOINER
        or before == _ZERO_WIDTH_JOINER
        or unicodedata.combining(this) > 0
        or "\ufe00" <= this <= "\ufe0f"
        or "\U0001f3fb" <= this <= "\U0001f3ff"
    )
