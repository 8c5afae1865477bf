"""Renders Markdown tables for platforms without tables, aligned in a code block or as a list. Pure."""

import unicodedata
from collections.abc import Sequence

from bots.delivery.markdown import scan_blocks, split_table_row

TABLE_WIDTH_MAX = 64
"""The widest table, in columns, that is shown in a code block. This width mostly fits on a phone."""


def tables_as_text(markdown: str) -> str:
    """Returns the Markdown with its tables as code blocks or lists."""
    blocks = scan_blocks(markdown)
    return "".join(one.gap + ("\n".join(align_table(one.lines)) if one.kind == "table" else one.text) for one in blocks)


def align_table(lines: Sequence[str]) -> list[str]:
    """Returns the lines of a code block with the aligned table, or of a list if the table is too wide for one."""
    head = split_table_row(lines[0])
    cells = [split_table_row(line)[: len(head)] for line in lines[2:]]
    if 2 * (len(head) - 1) > TABLE_WIDTH_MAX:
        return _listed(head, cells)
    rows = [row + [""] * (len(head) - len(row)) for row in cells]
    widths = [max(display_width(_plain(row[i])) for row in [head, *rows]) for i in range(len(head))]
    if sum(widths) + 2 * (len(widths) - 1) > TABLE_WIDTH_MAX:
        return _listed(head, rows)
    rights = [cell.endswith(":") and not cell.startswith(":") for cell in split_table_row(lines[1])]
    ruled = [_row(head, widths, rights), "  ".join("─" * width for width in widths)]
    return ["```", *ruled, *(_row(row, widths, rights) for row in rows), "```"]


def _listed(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns a list with one item for each row, with the names of the columns."""
    out: list[str] = []
    names = head[1:]
    for row in rows:
        rest = [f"{name}: {value}" for value, name in zip(row[1:], names, strict=False) if value]
        out.append(f"- **{row[0] or '–'}**" + (f" · {' · '.join(rest)}" if rest else ""))
    return out


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
