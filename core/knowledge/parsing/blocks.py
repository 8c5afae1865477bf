"""The parts from which every reader builds a document (blocks, tables, runs with marks), and their conversion to pages
of Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from core.knowledge.document import Page, ParseLimits

Mark = Literal["struck", "superscript", "subscript", "hidden", "code"]
_COLUMNS_MAX = 1_000
REPEATED_CHARACTERS_MAX = 200
_HEADING_LEVEL_MAX = 6
_DEPTH_MAX = 8


class TextRun(NamedTuple):
    """A piece of a line. `link` is the address that it links to."""

    text: str
    marks: frozenset[Mark] = frozenset()
    link: str = ""


class Block(NamedTuple):
    """A paragraph, heading, list item, code or table. `text` is Markdown except in code.

    `level` is 1 to 6 for a heading, and the depth of an item from 0. `marker` is the number or bullet of either."""

    text: str
    kind: Literal["paragraph", "heading", "item", "code", "table"] = "paragraph"
    level: int = 0
    marker: str = ""


class Cell(NamedTuple):
    """A cell of a table. `columns` and `rows` are the numbers of columns and rows that it spans."""

    text: str
    columns: int = 1
    rows: int = 1


def change_marks(marks: frozenset[Mark], switched: Mapping[Mark, bool]) -> frozenset[Mark]:
    """Returns the marks after some of them are switched on or off."""
    return frozenset(mark for mark in (*marks, *switched) if switched.get(mark, True))


def note_block(kind: str, text: str, author: str = "") -> Block:
    """Returns a note, such as a comment, or an empty paragraph if the note has no text."""
    return Block(f"[{kind}{f' by {author}' if author else ''}: {text.strip()}]" if text.strip() else "")


def render_runs(runs: Iterable[TextRun]) -> str:
    """Renders a line as Markdown. Neighbours with the same marks and link become one."""
    rendered = list[str]()
    for (marks, link), group in groupby(runs, key=attrgetter("marks", "link")):
        whole = "".join([run.text for run in group])
        if (marks or link) and (text := whole.strip()):
            before, _, after = whole.partition(text)
            if "code" in marks:
                text = f"`{text}`"
            for mark, sign in (("superscript", "^"), ("subscript", "_")):
                if mark in marks:
                    text = f"{sign}{text}" if text.isalnum() else f"{sign}({text})"
            if "struck" in marks:
                text = f"~~{text}~~"
            if link and not link.startswith("#"):
                text = f"<{link}>" if link in (text, f"mailto:{text}") else f"[{text}]({link})"
            whole = f"{before}[hidden: {text}]{after}" if "hidden" in marks else f"{before}{text}{after}"
        rendered.append(whole)
    return "".join(rendered)


def render_block(block: Block) -> str:
    text = " ".join(filter(None, (block.marker, block.text.strip())))
    match block.kind:
        case "heading":
            return f"{'#' * min(max(block.level, 1), _HEADING_LEVEL_MAX)} {' '.join(text.split())}"
        case "item":
            indentation = "  " * min(block.level, _DEPTH_MAX)
            return "\n".join(indentation + line for line in text.split("\n"))
        case "code":
            fence = "````" if "```" in block.text else "```"
            return f"{fence}\n{block.text.rstrip()}\n{fence}"
        case _:
            return text


def render_blocks(blocks: Iterable[Block]) -> str:
    """Renders blocks as Markdown. Neighbouring list items follow each other without an empty line."""
    rendered, before = list[str](), ""
    for block in blocks:
        if block.text.strip():
            if rendered:
                rendered.append("\n" if block.kind == before == "item" else "\n\n")
            rendered.append(render_block(block))
            before = block.kind
    return "".join(rendered)


def pages_at_headings(blocks: Iterable[Block]) -> tuple[Page, ...]:
    """Divides a document without pages before each heading. A page's place is its heading."""
    sections: list[list[Block]] = [[]]
    for block in blocks:
        if block.kind == "heading" and block.text.strip():
            sections.append([])
        sections[-1].append(block)
    pages = list[Page]()
    for section in filter(None, sections):
        if text := render_blocks(section):
            place = render_block(section[0]).lstrip("# ") if section[0].kind == "heading" else ""
            pages.append(Page(None, place, text))
    return tuple(pages)


def build_slide_page(number: int, title: str, blocks: Iterable[Block], *, is_hidden: bool) -> Page:
    head = (Block("[hidden slide]" if is_hidden else ""), Block(title, "heading", 1))
    return Page(number, title, render_blocks((*head, *blocks)))


def repeat_merged_cells(rows: Iterable[Sequence[Cell]]) -> Iterator[list[str]]:
    """Yields the rows of a table. The text of a merged cell is repeated in each place that the cell spans, so that
    every row can be read without the others. The only cell of a row, such as a title above the table, and long texts
    appear once."""
    above: dict[int, tuple[Cell, int]] = {}
    """For each column, the cell that spans into it from above, and how many more rows it spans."""
    for row in rows:
        if not above and all(cell.columns == cell.rows == 1 for cell in row):
            yield [cell.text for cell in row]
            continue
        placed, starts, column = dict[int, tuple[Cell, int]](), set[int](), 0
        for cell in row:
            while column in above:
                column += 1
            starts.add(column)
            for _ in range(max(1, min(cell.columns, _COLUMNS_MAX - column))):
                placed[column] = (cell, cell.rows)
                column += 1
        covered: dict[int, tuple[Cell, int]] = above | placed
        texts = [""] * (max(covered, default=-1) + 1)
        for column, (cell, _) in covered.items():
            if column in starts or len(cell.text) <= REPEATED_CHARACTERS_MAX:
                texts[column] = cell.text
        yield texts[:1] if starts == {0} and not above else texts
        above = {at: (cell, left - 1) for at, (cell, left) in covered.items() if left > 1}


def render_table(rows: Iterable[Sequence[str]], limits: ParseLimits | None = None) -> str:
    """Renders rows as a Markdown table with the first row as header. Skips empty rows and trailing empty columns.
    Raises Unreadable if the table is too large. Padding at most doubles a row, so that one wide row does not multiply
    the size of the table."""
    limits = limits or ParseLimits()
    kept, cells, characters = list[list[str]](), 0, 0
    for row in rows:
        cells += len(row) + 1
        trimmed = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        while trimmed and not trimmed[-1]:
            trimmed.pop()
        if trimmed:
            kept.append(trimmed)
            characters += sum(map(len, trimmed))
        limits.check(cells=cells, characters=characters)
    if not kept:
        return ""
    width = max(map(len, kept))
    kept[0] += [""] * (width - len(kept[0]))
    lines = [f"| {' | '.join(row + [''] * min(width - len(row), len(row)))} |" for row in kept]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def left_out_page(counts: Mapping[str, int]) -> tuple[Page, ...]:
    """Returns a page that lists what is left out of the file, or an empty tuple if nothing is. `counts` has singular
    names."""
    named = [f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in sorted(counts.items()) if count]
    verb = "is" if sum(counts.values()) == 1 else "are"
    listed = ", ".join(named[:-1]) + " and " * (len(named) > 1) + "".join(named[-1:])
    return (Page(None, "Left out", f"[{listed} of this file {verb} not shown]"),) if named else ()
