"""Rows of cells as Markdown tables."""

from collections.abc import Iterable, Iterator, Sequence

from core.knowledge.formats.unreadable import Unreadable


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """The first row is the header. Empty rows, and empty columns at the right, are left out."""
    kept = [row for row in map(_trimmed, rows) if row]
    width = max(map(len, kept), default=0)
    if width == 0:
        return ""
    lines = [_line(row, width) for row in kept]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def counted(rows: Iterable[Sequence[str]], cells_max: int) -> Iterator[Sequence[str]]:
    """The rows as they are. Raises Unreadable when their cells become too many."""
    cells = 0
    for row in rows:
        cells += len(row) + 1
        if cells > cells_max:
            raise Unreadable("cells", str(cells_max))
        yield row


def _trimmed(row: Sequence[str]) -> list[str]:
    cells = [_cell(cell) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: list[str], width: int) -> str:
    return "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"
