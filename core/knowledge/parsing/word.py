"""Reads Word files: documents and templates, with or without macros, which are never run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.blocks import (
    REPEATED_CHARACTERS_MAX,
    Block,
    Cell,
    Mark,
    change_marks,
    note_block,
    pages_at_headings,
    render_block,
    render_table,
    repeat_merged_cells,
)
from core.knowledge.parsing.lists import ListLevel, ListNumbers
from core.knowledge.parsing.office import DELETED, OfficePackage, PartText, attribute_value, child_value, marks_of

_COLUMNS_MAX = 64  # Word's own maximum width of tables
_STYLES_MAX = 20
_MARGINS = ("headerReference", "footerReference")
_HEADING = re.compile("heading ([1-9])")


def read_docx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a Word file, one page per heading, because a Word file has no pages before layout.

    Headers and footers come first. Footnotes and comments are shown where they are referred to. Tracked changes are
    accepted, and the number of deletions is stated."""
    package = OfficePackage(content, limits)
    return package.build_document("docx", pages_at_headings(_WordReader(package, limits).blocks()))


class _WordReader:
    def __init__(self, package: OfficePackage, limits: ParseLimits) -> None:
        self._package, self._limits, self._part = package, limits, package.main_part()
        parts = {relation.kind: relation.target for relation in package.relations(self._part).values()}
        self._styles = _read_styles(package.read_cleaned_root(parts.get("styles", "")))
        self._lists = dict(_read_lists(package.read_cleaned_root(parts.get("numbering", ""))))
        self._marks = {name: style.marks for name, style in self._styles.items()}
        self._notes = dict[str, str]()
        for kind in ("footnotes", "endnotes", "comments"):
            text = PartText(package, parts.get(kind, f"word/{kind}.xml"), None, self._marks)
            for element in self._open_boxes(package.read_cleaned_root(parts.get(kind, f"word/{kind}.xml"))):
                shown = note_block(kind[:-1], self._one_line(element, text), attribute_value(element, "author"))
                self._notes[f"{kind[:-1]} {attribute_value(element, 'id')}"] = shown.text

    def blocks(self) -> Iterator[Block]:
        text = PartText(self._package, self._part, self._notes, self._marks)
        root = self._open_boxes(self._package.read_cleaned_root(self._part, is_needed=True))
        margins = {text.relation_target(reference): reference.tag[:6] for reference in root.iter(*_MARGINS)}
        for part, kind in margins.items():
            margin = PartText(self._package, part, None, self._marks)
            margins[part] = note_block(
                kind, self._one_line(self._open_boxes(self._package.read_cleaned_root(part)), margin)
            ).text
        yield from map(Block, dict.fromkeys(margins.values()))
        for body in root.iterchildren("body"):
            yield from self._blocks(body, text)
        yield from map(Block, self._notes.values())  # notes that nothing refers to

    def _open_boxes(self, root: Any) -> Any:
        """Moves the content of text boxes behind the paragraphs that contain the boxes."""
        for box in reversed(list(root.iter("txbxContent"))):
            for around in [*box.iterancestors("p")][:1]:
                for block in box[::-1]:
                    around.addnext(block)
        return root

    def _one_line(self, container: Any, text: PartText) -> str:
        return " ".join(" ".join(map(render_block, self._blocks(container, text, in_table=True))).split())

    def _blocks(self, container: Any, text: PartText, *, in_table: bool = False) -> Iterator[Block]:
        for element in container:
            if element.tag == "p":
                yield self._paragraph(element, text)
            elif element.tag == "tbl" and in_table:
                yield from map(Block, ("; ".join(filter(None, row)) for row in self._rows(element, text)))
            elif element.tag == "tbl":
                yield Block(render_table(self._rows(element, text), self._limits), "table")
            elif element.tag == "oMathPara":
                yield Block(text.line(element))
            elif element.tag == "altChunk":
                self._package.left_out["embedded document"] += 1

    def _paragraph(self, element: Any, text: PartText) -> Block:
        properties = element.find("pPr")
        name = child_value(properties, "pStyle") if properties is not None else ""
        style = self._styles.get(name, _Style())
        line = text.line(element, change_marks(frozenset(), style.marks))
        if properties is None or (element.get(DELETED) and not line):
            return Block(line)
        number = child_value(properties, "numPr/numId") or style.number
        numbers, depths = self._lists.get(number, (ListNumbers({}), {}))
        depth = int(child_value(properties, "numPr/ilvl") or style.depth or depths.get(name, 0))
        marker = numbers.next_marker(depth) if number not in ("", "0") else ""
        if not line:  # but the deletion is counted
            return Block("")
        if level := style.level or _outline_level(element):
            return Block(line, "heading", level, "" if marker == "-" else marker)
        return Block(line, "item", depth, marker) if marker else Block(line)

    def _rows(self, table: Any, text: PartText) -> Iterator[list[str]]:
        """Yields the rows of a table. Nested tables become text."""
        above = dict[int, str]()
        for row in table.iterchildren("tr"):
            column = min(int(child_value(row, "trPr/gridBefore") or 0), _COLUMNS_MAX)
            cells = [Cell("")] * column
            for element in row.iterchildren("tc"):
                merged = element.find("tcPr/vMerge")
                if merged is not None and attribute_value(merged, "val") != "restart":
                    words = above.get(column, "")
                else:
                    words = "\n".join(map(render_block, self._blocks(element, text, in_table=True)))
                above[column] = words if merged is not None and len(words) <= REPEATED_CHARACTERS_MAX else ""
                cells.append(Cell(words, min(int(child_value(element, "tcPr/gridSpan") or 1), _COLUMNS_MAX)))
                column += cells[-1].columns
            yield from repeat_merged_cells([cells])


@dataclass(frozen=True, slots=True)
class _Style:
    """The properties that a style gives to its paragraphs: the level of a heading or 0, and the list and depth of an
    item."""

    level: int = 0
    number: str = ""
    depth: str = ""
    marks: Mapping[Mark, bool] = field(default_factory=dict[Mark, bool])


def _read_styles(root: Any) -> dict[str, _Style]:
    elements = {attribute_value(element, "styleId"): element for element in root.iter("style")}
    styles = dict[str, _Style]()
    for name in elements:
        level, number, depth, marks, parent = 0, "", "", dict[Mark, bool](), name
        for _ in range(_STYLES_MAX):
            if (element := elements.get(parent)) is None:
                break
            known = child_value(element, "name").lower()
            heading = _HEADING.fullmatch(known)
            level = level or (int(heading[1]) if heading else int(known == "title"))
            level = level or _outline_level(element)
            number = number or child_value(element, "pPr/numPr/numId")
            depth = depth or child_value(element, "pPr/numPr/ilvl")
            marks = marks_of(element.find("rPr")) | marks
            parent = child_value(element, "basedOn")
        styles[name] = _Style(level, number, depth, marks)
    return styles


def _outline_level(element: Any) -> int:
    level = int(child_value(element, "pPr/outlineLvl") or 9) + 1
    return level if level <= 9 else 0


def _read_lists(root: Any) -> Iterator[tuple[str, tuple[ListNumbers, dict[str, int]]]]:
    """Yields the lists by name, each with its numbers and with the depths of the paragraphs of certain styles."""
    kinds = {attribute_value(kind, "abstractNumId"): kind for kind in root.iter("abstractNum")}
    linked = {link: kind for kind in kinds.values() if (link := child_value(kind, "styleLink"))}
    counts = {kind: dict[int, int]() for kind in kinds.values()}
    for number in root.iter("num"):
        if (kind := kinds.get(child_value(number, "abstractNumId"))) is None:
            continue
        kind = linked.get(child_value(kind, "numStyleLink"), kind)
        overrides = {int(attribute_value(held, "ilvl") or 0): held for held in number.iterchildren("lvlOverride")}
        defined = (level for held in (kind, *overrides.values()) for level in held.iterchildren("lvl"))
        elements = {int(attribute_value(level, "ilvl") or 0): level for level in defined}
        levels = dict[int, ListLevel]()
        for depth, level in elements.items():
            form, pattern, start = (child_value(level, name) for name in ("numFmt", "lvlText", "start"))
            has_decimals, restarts = level.find("isLgl") is not None, child_value(level, "lvlRestart") != "0"
            levels[depth] = ListLevel(form, pattern, int(start or 0), has_decimals, restarts)
        starts = {depth: int(child_value(held, "startOverride") or -1) for depth, held in overrides.items()}
        numbers = ListNumbers(levels, counts[kind], {depth: start for depth, start in starts.items() if start >= 0})
        depths = {child_value(level, "pStyle"): depth for depth, level in reversed(elements.items())}
        yield attribute_value(number, "numId"), (numbers, depths)
