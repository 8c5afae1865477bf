"""Reads Word files: documents and templates, with or without macros, which are never run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.model import (
    REPEATED_CHARACTERS_MAX,
    Block,
    Cell,
    Mark,
    change_marks,
    note,
    pages_at_headings,
    render_block,
    render_table,
    repeat_merged_cells,
    spell_number,
)
from core.knowledge.parsing.office import DELETED, OfficeText, Package, attribute, marks_of, value_of

_COLUMNS_MAX = 64  # Word makes no table wider
_STYLES_MAX = 20
_HEADING = re.compile("heading ([1-9])")


def read_docx(content: bytes, limits: ParseLimits) -> Document:
    """Reads a Word file, one page per heading, because a Word file has no pages before layout.

    Headers and footers come first. Footnotes and comments are shown where they are referred to. Tracked changes are
    accepted, and the number of deletions is stated."""
    package = Package(content, limits)
    return package.document("docx", pages_at_headings(_WordReader(package, limits).blocks()))


class _WordReader:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self._package, self._limits, self._part = package, limits, package.main_part()
        parts = {relation.kind: relation.target for relation in package.relations(self._part).values()}
        self._styles = _read_styles(package.root(parts.get("styles", "")))
        self._numbering = _Numbering(package.root(parts.get("numbering", "")))
        self._marks = {name: style.marks for name, style in self._styles.items()}
        self._notes = dict[str, str]()
        for kind in ("footnotes", "endnotes", "comments"):
            text = OfficeText(package, parts.get(kind, f"word/{kind}.xml"), None, self._marks)
            for element in self._open_boxes(package.root(parts.get(kind, f"word/{kind}.xml"))):
                shown = note(kind[:-1], self._one_line(element, text), attribute(element, "author"))
                self._notes[f"{kind[:-1]} {attribute(element, 'id')}"] = shown.text

    def blocks(self) -> Iterator[Block]:
        text = OfficeText(self._package, self._part, self._notes, self._marks)
        root = self._open_boxes(self._package.root(self._part, is_needed=True))
        margins = dict[str, str]()
        for reference in root.iter("headerReference", "footerReference"):
            part = text.target(reference)
            margin = OfficeText(self._package, part, None, self._marks)
            if part not in margins and (words := self._one_line(self._open_boxes(self._package.root(part)), margin)):
                margins[part] = f"[{reference.tag[:6]}: {words}]"
        yield from map(Block, dict.fromkeys(margins.values()))
        for body in root.iterchildren("body"):
            yield from self._blocks(body, text)
        yield from map(Block, self._notes.values())  # that nothing refers to

    def _open_boxes(self, root: Any) -> Any:
        """Moves what is in text boxes behind the paragraphs that hold them."""
        for box in reversed(list(root.iter("txbxContent"))):
            for around in [*box.iterancestors("p")][:1]:
                for block in box[::-1]:
                    around.addnext(block)
        return root

    def _one_line(self, container: Any, text: OfficeText) -> str:
        return " ".join(" ".join(map(render_block, self._blocks(container, text, in_table=True))).split())

    def _blocks(self, container: Any, text: OfficeText, *, in_table: bool = False) -> Iterator[Block]:
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

    def _paragraph(self, element: Any, text: OfficeText) -> Block:
        properties = element.find("pPr")
        name = value_of(properties, "pStyle") if properties is not None else ""
        style = self._styles.get(name, _Style())
        line = text.line(element, change_marks(frozenset(), style.marks))
        if properties is None or (element.get(DELETED) and not line):
            return Block(line)
        number = value_of(properties, "numPr/numId") or style.number
        depth = int(value_of(properties, "numPr/ilvl") or style.depth or self._numbering.depth(number, name))
        marker = self._numbering.marker(number, depth) if number not in ("", "0") else ""
        if not line:  # but it is counted
            return Block("")
        if level := style.level or _outline_level(element):
            return Block(line, "heading", level, "" if marker == "-" else marker)
        return Block(line, "item", depth, marker) if marker else Block(line)

    def _rows(self, table: Any, text: OfficeText) -> Iterator[list[str]]:
        """Yields the rows. Tables in cells become text."""
        above = dict[int, str]()
        for row in table.iterchildren("tr"):
            column = min(int(value_of(row, "trPr/gridBefore") or 0), _COLUMNS_MAX)
            cells = [Cell("")] * column
            for element in row.iterchildren("tc"):
                merged = element.find("tcPr/vMerge")
                if merged is not None and attribute(merged, "val") != "restart":
                    words = above.get(column, "")
                else:
                    words = "\n".join(map(render_block, self._blocks(element, text, in_table=True)))
                above[column] = words if merged is not None and len(words) <= REPEATED_CHARACTERS_MAX else ""
                cells.append(Cell(words, min(int(value_of(element, "tcPr/gridSpan") or 1), _COLUMNS_MAX)))
                column += cells[-1].columns
            yield from repeat_merged_cells([cells])


@dataclass(frozen=True, slots=True)
class _Style:
    """What a style says of its paragraphs: the level of a heading or 0, and the list and depth of an item."""

    level: int = 0
    number: str = ""
    depth: str = ""
    marks: Mapping[Mark, bool] = field(default_factory=dict[Mark, bool])


def _read_styles(root: Any) -> dict[str, _Style]:
    elements = {attribute(element, "styleId"): element for element in root.iter("style")}
    styles = dict[str, _Style]()
    for name in elements:
        level, number, depth, marks, parent = 0, "", "", dict[Mark, bool](), name
        for _ in range(_STYLES_MAX):
            if (element := elements.get(parent)) is None:
                break
            known = value_of(element, "name").lower()
            heading = _HEADING.fullmatch(known)
            level = level or (int(heading[1]) if heading else int(known == "title"))
            level = level or _outline_level(element)
            number = number or value_of(element, "pPr/numPr/numId")
            depth = depth or value_of(element, "pPr/numPr/ilvl")
            marks = marks_of(element.find("rPr")) | marks
            parent = value_of(element, "basedOn")
        styles[name] = _Style(level, number, depth, marks)
    return styles


def _outline_level(element: Any) -> int:
    level = int(value_of(element, "pPr/outlineLvl") or 9) + 1
    return level if level <= 9 else 0


class _Numbering:
    """Counts the items of lists, as their definitions say."""

    def __init__(self, root: Any) -> None:
        kinds = {attribute(kind, "abstractNumId"): kind for kind in root.iter("abstractNum")}
        linked = {value_of(kind, "styleLink"): kind for kind in kinds.values()}
        linked.pop("", None)
        self._levels = dict[str, dict[str, Any]]()
        self._kinds = dict[str, str]()
        self._starts = dict[str, dict[int, int]]()
        self._counts = dict[str, dict[int, int]]()
        for number in root.iter("num"):
            name, kind = attribute(number, "numId"), kinds.get(value_of(number, "abstractNumId"))
            if kind is None:
                continue
            kind = linked.get(value_of(kind, "numStyleLink"), kind)
            overrides = [*number.iterchildren("lvlOverride")]
            levels = (level for held in (kind, *overrides) for level in held.iterchildren("lvl"))
            self._levels[name] = {attribute(level, "ilvl"): level for level in levels}
            self._kinds[name] = attribute(kind, "abstractNumId")
            starts = {int(attribute(held, "ilvl") or 0): value_of(held, "startOverride") for held in overrides}
            self._starts[name] = {depth: int(start) for depth, start in starts.items() if start}

    def depth(self, number: str, style: str) -> int:
        """Returns which level of a list has the paragraphs of a style; 0 if none is tied to it."""
        levels = self._levels.get(number, {})
        return next((int(at) for at, level in levels.items() if style and value_of(level, "pStyle") == style), 0)

    def marker(self, number: str, depth: int) -> str:
        """Counts the next item of a list and returns its number as the file spells it, or a hyphen."""
        levels = self._levels.get(number, {})
        if (level := levels.get(str(depth))) is None:
            return "-"
        counts = self._counts.setdefault(self._kinds[number], {})
        for at, start in self._starts.pop(number, {}).items():
            counts[at] = start - 1
        counts[depth] = counts.get(depth, _start(level) - 1) + 1
        for deeper in [at for at in counts if at > depth and value_of(levels.get(str(at), level), "lvlRestart") != "0"]:
            del counts[deeper]
        if value_of(level, "numFmt") == "bullet":
            return "-"

        def spell(place: re.Match[str]) -> str:
            at = int(place[1]) - 1
            named = levels.get(str(at), level)
            count = counts.setdefault(at, _start(named))
            return spell_number(count, "decimal" if level.find("isLgl") is not None else value_of(named, "numFmt"))

        return re.sub("%([1-9])", spell, value_of(level, "lvlText")).strip()


def _start(level: Any) -> int:
    return int(value_of(level, "start") or 0)
