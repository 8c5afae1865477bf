"""Converts Markdown for Discord: aligns tables, turns images into links, neutralizes mass mentions; pure functions."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from bots.delivery.markdown import MarkdownBlock, scan_blocks, table_cells, utf16_length
from bots.discord.limits import remove_unsendable

RenderTable = Callable[[Sequence[str]], Sequence[str]]
TABLE_WIDTH_MAX = 64
"""The widest table, in columns, that is shown in a code block. This width mostly fits on a phone."""

_BACKTICKS = re.compile("`+")
_CROWD = re.compile(r"@(?=everyone|here)")
_ROLE = re.compile(r"<@(?=&\d)")
_PICTURE = re.compile(r"!\[([^\]]*)(?:(\]\()|\]|\Z)")
"""Also matches brackets that belong to no picture, so that no text is scanned twice."""
_DEEP_HEADING = re.compile(r"^#{4,6}\s+(?=\S)(.*)$")
_RULE = re.compile(r"^\s{0,3}([-*_])(?:\s*\1){2,}\s*$")
_CHECK = re.compile(r"^(\s*[-*+]\s+)\[([ xX])\]\s")


def neutralize_mentions(text: str) -> str:
    """Breaks mentions of everyone, here and roles with a zero-width joiner, outside inline code."""
    pieces: list[str] = []
    end = 0
    for start, code_end in _code_spans(text):
        pieces += [_unping(text[end:start]), text[start:code_end]]
        end = code_end
    return "".join([*pieces, _unping(text[end:])])


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each text between equal runs of backticks, as long as possible, in linear time."""
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


def to_discord_markdown(markdown: str, *, length_max: int) -> str:
    """Converts Markdown for Discord. Leaves tables unchanged if the converted ones would be too long."""
    source = remove_unsendable(markdown)
    for table in (_aligned, _fenced, _raw):
        blocks = (one.gap + "\n".join(_block_lines(one, table)) for one in scan_blocks(source))
        text = "".join(blocks)
        if utf16_length(text) <= length_max:
            return text
    return source


def _unping(text: str) -> str:
    return _ROLE.sub("<@\u200d", _CROWD.sub("@\u200d", text))


def _block_lines(block: MarkdownBlock, table: RenderTable) -> Sequence[str]:
    if block.kind == "fence":
        return block.lines
    lines = table(block.lines) if block.kind == "table" else [_line(line) for line in block.lines]
    return [neutralize_mentions("\n".join(lines))]


def _line(line: str) -> str:
    if heading := _DEEP_HEADING.match(line):
        return f"**{heading.group(1).rstrip('#').rstrip() or '#'}**"
    if _RULE.match(line):
        return "⎯" * 12
    line = _CHECK.sub(lambda m: f"{m.group(1)}{'☐' if m.group(2) == ' ' else '☑'} ", line)
    return _PICTURE.sub(lambda m: f"[{m[1] or 'picture'}](" if m[2] else m[0], line)


def _aligned(lines: Sequence[str]) -> list[str]:
    head = table_cells(lines[0])
    cells = [table_cells(line)[: len(head)] for line in lines[2:]]
    if 2 * (len(head) - 1) > TABLE_WIDTH_MAX:
        return _listed(head, cells)
    rows = [row + [""] * (len(head) - len(row)) for row in cells]
    widths = [max(display_width(_plain(row[i])) for row in [head, *rows]) for i in range(len(head))]
    if sum(widths) + 2 * (len(widths) - 1) > TABLE_WIDTH_MAX:
        return _listed(head, rows)
    rights = [cell.endswith(":") and not cell.startswith(":") for cell in table_cells(lines[1])]
    ruled = [_row(head, widths, rights), "  ".join("─" * width for width in widths)]
    return ["```", *ruled, *(_row(row, widths, rights) for row in rows), "```"]


def _listed(head: list[str], rows: list[list[str]]) -> list[str]:
    """Renders a table that is too wide for a code block as a list, one item per row, with column names."""
    out: list[str] = []
    names = head[1:]
    for row in rows:
        rest = [f"{name}: {value}" for value, name in zip(row[1:], names, strict=False) if value]
        out.append(f"- **{row[0] or '–'}**" + (f" · {' · '.join(rest)}" if rest else ""))
    return out


def _fenced(lines: Sequence[str]) -> list[str]:
    return ["```", *(line.replace("```", "'''") for line in lines), "```"]


def _raw(lines: Sequence[str]) -> Sequence[str]:
    return lines


def _plain(cell: str) -> str:
    return cell.replace("**", "").replace("`", "")


def _row(cells: list[str], widths: list[int], rights: list[bool]) -> str:
    padded: list[str] = []
    for cell, width, is_right in zip(cells, widths, rights, strict=True):
        text = _plain(cell)
        space = " " * (width - display_width(text))
        padded.append(space + text if is_right else text + space)
    return "  ".join(padded).rstrip()


def display_width(text: str) -> int:
    """Returns the text's width in fixed-width columns. Wide characters count as two, combining characters as zero."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
