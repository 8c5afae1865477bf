"""Reads rich text (rtf) and the binary files of old Word and PowerPoint (doc, ppt)."""

from collections.abc import Iterable, Iterator
from typing import Any

import anydoc

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.model import (
    Block,
    Cell,
    Run,
    pages_at_headings,
    render_block,
    render_blocks,
    render_runs,
    render_table,
    repeat_merged_cells,
    spell_number,
)

_NUMBERS = {
    "lower_alpha": "lowerLetter",
    "upper_alpha": "upperLetter",
    "lower_roman": "lowerRoman",
    "upper_roman": "upperRoman",
}


def read_old_format(content: bytes, limits: ParseLimits, kind: DocumentKind) -> Document:
    """Reads the file, one page per heading or slide. The library knows neither hidden nor raised text in it."""
    try:
        document = anydoc.to_document(content)
    except anydoc.EncryptedError as error:
        raise Unreadable("protected") from error
    except anydoc.ResourceLimitError as error:
        raise Unreadable("unpacked") from error
    except anydoc.ConvertError as error:
        raise Unreadable("broken") from error
    notes = {note.id: f"[{note.kind}: {_one_line(note.blocks)}]" for note in document.notes}
    pages = pages_at_headings(_blocks(document.blocks, notes, limits))
    if kind == "ppt":
        pages = tuple(Page(at, page.place, page.text) for at, page in enumerate(pages, start=1))
    return Document(title="", kind=kind, pages=pages)


def _blocks(blocks: Iterable[Any], notes: dict[str, str], limits: ParseLimits, depth: int = 0) -> Iterator[Block]:
    for block in blocks:
        match block.kind:
            case "heading":
                yield Block(_line(block.content, notes), "heading", block.level)
            case "list":
                for at, item in enumerate(block.list.items, start=block.list.start):
                    inner = list(_blocks(item.blocks, notes, limits, depth + 1))
                    kind = block.list.marker
                    marker = (
                        "-"
                        if kind == "bullet"
                        else item.marker_label or f"{spell_number(at, _NUMBERS.get(kind, kind))}."
                    )
                    if inner and inner[0].kind == "paragraph":
                        inner[0] = Block(inner[0].text, "item", depth, marker)
                    yield from inner
            case "table":
                rows = (
                    [_cell(slot, notes, limits) for slot in row if slot.kind == "origin"] for row in block.table.grid
                )
                yield Block(render_table(repeat_merged_cells(rows), limits), "table")
            case "block_quote":
                yield Block(f"[speaker notes: {render_blocks(_blocks(block.blocks, notes, limits))}]")
            case "code_block" | "math":
                yield Block(block.text or "", "code" if block.kind == "code_block" else "paragraph")
            case _:
                yield Block(_line(block.content or (), notes))


def _cell(slot: Any, notes: dict[str, str], limits: ParseLimits) -> Cell:
    blocks = _blocks(slot.cell.blocks, notes, limits)
    return Cell("\n".join(map(render_block, blocks)), slot.cell.col_span, slot.cell.row_span)


def _one_line(blocks: Iterable[Any]) -> str:
    return " ".join(render_blocks(_blocks(blocks, {}, ParseLimits())).split())


def _line(content: Iterable[Any], notes: dict[str, str]) -> str:
    return render_runs(_runs(content, notes, ""))


def _runs(content: Iterable[Any], notes: dict[str, str], link: str) -> Iterator[Run]:
    for inline in content:
        match inline.kind:
            case "text":
                yield Run(
                    inline.text or "", frozenset(("struck",) if inline.style and inline.style.strike else ()), link
                )
            case "link":
                yield from _runs(inline.content or (), notes, inline.target.value)
            case "image":
                yield Run(f" [picture: {inline.alt}] " if inline.alt else " [picture] ")
            case "note_ref":
                yield Run(f" {notes.pop(inline.note_id or '', '')}")
            case "line_break":
                yield Run("\n")
            case "checkbox":
                yield Run("☑" if inline.checked else "☐")
            case _:
                yield Run(inline.text or "", frozenset(), link)
