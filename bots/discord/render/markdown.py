"""Converts Markdown for Discord: aligns tables, turns images into links, neutralizes mass mentions; pure functions."""

import re
import unicodedata
from collections.abc import Callable

from bots.discord.limits import remove_unsendable, utf16_length

RenderTable = Callable[[list[str]], list[str]]
TABLE_WIDTH_MAX = 64
"""The widest table, in columns, that is shown in a code block. This width mostly fits on a phone."""

_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
_CODE = re.compile(r"(`+)(?:.|\n)*?\1")
_CROWD = re.compile(r"@(?=everyone|here)")
_ROLE = re.compile(r"<@(?=&\d)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(")
_DEEP_HEADING = re.compile(r"^#{4,6}\s+(.+?)\s*#*$")
_RULE = re.compile(r"^\s{0,3}([-*_])(?:\s*\1){2,}\s*$")
_DELIMITER = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
"""A table's delimiter row. Expects a stripped line, because surrounding spaces would cause backtracking."""
_CHECK = re.compile(r"^(\s*[-*+]\s+)\[([ xX])\]\s")


def neutralize_mentions(text: str) -> str:
    """Breaks mentions of everyone, here and roles with a zero-width joiner, outside inline code."""
    pieces: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        pieces += [_unping(text[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*pieces, _unping(text[end:])])


def to_discord_markdown(markdown: str, *, length_max: int) -> str:
    """Converts Markdown for Discord. Leaves tables unchanged if the converted ones would be too long."""
    source = remove_unsendable(markdown)
    for table in (_aligned, _fenced, _raw):
        text = _rewritten(source, table)
        if utf16_length(text) <= length_max:
            return text
    return source


def _unping(text: str) -> str:
    return _ROLE.sub("<@\u200d", _CROWD.sub("@\u200d", text))


def _rewritten(source: str, table: RenderTable) -> str:
    out: list[str] = []
    prose: list[str] = []
    fence = ""
    for line in source.split("\n"):
        found = _FENCE.match(line)
        if fence:
            out.append(line)
            if found and found.group(1).startswith(fence):
                fence = ""
            continue
        if found:
            out += _prose(prose, table)
            prose = []
            fence = found.group(1)
            out.append(line)
            continue
        prose.append(line)
    return "\n".join([*out, *_prose(prose, table)])


def _prose(lines: list[str], table: RenderTable) -> list[str]:
    out: list[str] = []
    index = 0
    while index < len(lines):
        end = _table_end(lines, index)
        if end:
            out += table(lines[index:end])
            index = end
        else:
            out.append(_line(lines[index]))
            index += 1
    return neutralize_mentions("\n".join(out)).split("\n") if out else []


def _line(line: str) -> str:
    if heading := _DEEP_HEADING.match(line):
        return f"**{heading.group(1)}**"
    if _RULE.match(line):
        return "⎯" * 12
    line = _CHECK.sub(lambda m: f"{m.group(1)}{'☐' if m.group(2) == ' ' else '☑'} ", line)
    return _PICTURE.sub(lambda m: f"[{m.group(1) or 'picture'}](", line)


def _table_end(lines: list[str], start: int) -> int:
    """Returns the index after the table that begins at line `start`, or 0 if none does."""
    if (
        start + 1 >= len(lines)
        or "|" not in lines[start]
        or not _DELIMITER.match(lines[start + 1].strip())
    ):
        return 0
    if len(_cells(lines[start])) != len(_cells(lines[start + 1])):
        return 0
    end = start + 2
    while end < len(lines) and "|" in lines[end] and lines[end].strip():
        end += 1
    return end


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _aligned(lines: list[str]) -> list[str]:
    head = _cells(lines[0])
    rows = [(_cells(line) + [""] * len(head))[: len(head)] for line in lines[2:]]
    widths = [max(display_width(_plain(row[i])) for row in [head, *rows]) for i in range(len(head))]
    if sum(widths) + 2 * (len(widths) - 1) > TABLE_WIDTH_MAX:
        return _listed(head, rows)
    rights = [_is_right(cell) for cell in _cells(lines[1])]
    ruled = [_row(head, widths, rights), "  ".join("─" * width for width in widths)]
    return ["```", *ruled, *(_row(row, widths, rights) for row in rows), "```"]


def _listed(head: list[str], rows: list[list[str]]) -> list[str]:
    """Renders a table that is too wide for a code block as a list, one item per row, with column names."""
    out: list[str] = []
    for row in rows:
        rest = [f"{name}: {value}" for name, value in zip(head[1:], row[1:], strict=True) if value]
        out.append(f"- **{row[0] or '–'}**" + (f" · {' · '.join(rest)}" if rest else ""))
    return out


def _fenced(lines: list[str]) -> list[str]:
    return ["```", *(line.replace("```", "'''") for line in lines), "```"]


def _raw(lines: list[str]) -> list[str]:
    return lines


def _plain(cell: str) -> str:
    return cell.replace("**", "").replace("`", "")


def _is_right(delimiter: str) -> bool:
    return delimiter.endswith(":") and not delimiter.startswith(":")


def _row(cells: list[str], widths: list[int], rights: list[bool]) -> str:
    padded: list[str] = []
    for cell, width, is_right in zip(cells, widths, rights, strict=True):
        text = _plain(cell)
        space = " " * (width - display_width(text))
        padded.append(space + text if is_right else text + space)
    return "  ".join(padded).rstrip()


def display_width(text: str) -> int:
    """Returns the text's width in fixed-width columns. Wide characters count as two, combining characters as zero."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
