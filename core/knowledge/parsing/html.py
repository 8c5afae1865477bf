"""Reads HTML files: text with headings, lists and tables, without scripts and styles."""

import re
from collections.abc import Mapping
from typing import Any

import lxml.etree as untyped

from core.knowledge.document import Document, ParseLimits
from core.knowledge.parsing.plain import split_at_headings
from core.knowledge.parsing.shared import decode_text, markdown_table

_DECLARED = re.compile(rb"""(?i)charset\s*=\s*+["']?\s*+(?!utf|uni|raw|puny|idna)([\w-]{2,40})""")
_COLUMNS_MAX = 100
_NUMBER = re.compile("[0-9]{1,6}")
_UNSEEN = frozenset(("script", "style", "noscript", "template", "svg", "head", "iframe", "object"))
_OTHERS = ("blockquote", "figure", "figcaption", "form", "fieldset", "address")
_LAYOUT = "p div section article header footer main aside nav hr pre ul ol dl dt dd details summary"
_BLOCKS = frozenset((*_LAYOUT.split(), *_OTHERS))
_BEGINNINGS = {"li": "- "} | {f"h{level}": "#" * level + " " for level in range(1, 7)}
_ETREE: Any = untyped


def read_html(content: bytes, limits: ParseLimits) -> Document:
    declared = _DECLARED.search(content[:4096])
    text = decode_text(content, declared[1].decode("ascii") if declared else "")
    reader = _Reader()
    # lxml instead of html.parser, because html.parser needs a minute for 80 KB of "<a <a <a"
    parser = _ETREE.HTMLParser(target=reader, huge_tree=True)
    parser.feed(text)
    parser.close()
    return Document(title=reader.title(), kind="html", pages=split_at_headings(reader.text()))


class _Reader:
    """Collects text from lxml's tag events without building a tree, so deeply nested pages need no extra memory."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._line: list[str] = []
        self._title: list[str] = []
        self._unseen: str | None = None
        self._unseen_depth = 0
        self._is_in_title = False
        self._rows: list[list[str]] | None = None
        self._table_depth = 0
        self._covered: dict[int, int] = {}

    def title(self) -> str:
        return " ".join("".join(self._title).split())

    def text(self) -> str:
        self._end_table()
        self._end_block()
        return "\n\n".join(self._blocks)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "title":
            self._is_in_title = True
        elif tag == "body":
            self._unseen = None
        elif self._unseen is not None:
            self._unseen_depth += tag == self._unseen
        elif tag in _UNSEEN:
            self._unseen, self._unseen_depth = tag, 1
        elif tag == "img":
            self._line.append(f" {attributes.get('alt', '')} ")
        else:
            self._open(tag, attributes)

    def end(self, tag: str) -> None:
        if tag == "title":
            self._is_in_title = False
        elif self._unseen is not None:
            self._unseen_depth -= tag == self._unseen
            if self._unseen_depth <= 0:
                self._unseen = None
        elif tag == "table":
            self._table_depth -= 1
            if self._table_depth <= 0:
                self._end_table()
        elif tag in _BLOCKS or tag in _BEGINNINGS:
            self._end_block()

    def data(self, data: str) -> None:
        if self._is_in_title:
            self._title.append(data)
        elif self._unseen is None:
            self._line.append(data)

    def close(self) -> None:
        """Does nothing. lxml requires the method; `text` closes open elements."""

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "br":
            self._line.append("\n")
        elif tag == "table":
            self._table_depth += 1
            if self._rows is None:
                self._end_block()
                self._rows, self._covered = [], {}
        elif tag in ("tr", "td", "th"):
            self._begin_cell(attributes, is_row=tag == "tr")
        elif tag in _BLOCKS or tag in _BEGINNINGS:
            self._end_block()
            self._line.append(_BEGINNINGS.get(tag, ""))

    def _begin_cell(self, attributes: Mapping[str, str], *, is_row: bool) -> None:
        """Begins a row or a cell, to the right of the columns that a wide cell or one from above covers."""
        if self._rows is None:
            return
        self._end_cell()
        if is_row or not self._rows:
            self._rows.append([])
        if is_row:
            return
        number, row = len(self._rows), self._rows[-1]
        while self._covered.get(len(row), 0) >= number:
            row.append("")
        written = (attributes.get(f"{what}span", "") for what in ("col", "row"))
        columns, rows = (int(one) if _NUMBER.fullmatch(one) else 1 for one in written)
        for column in range(len(row), len(row) + min(columns, _COLUMNS_MAX)):
            self._covered[column] = number + rows - 1
        row.append("")

    def _end_cell(self) -> None:
        """Ends the current table cell with the text collected so far. Text before the first cell becomes a block."""
        text = " ".join("".join(self._line).split())
        self._line.clear()
        if not text or self._rows is None:
            return
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] = f"{self._rows[-1][-1]} {text}".strip()
        else:
            self._blocks.append(text)

    def _end_table(self) -> None:
        if self._rows is None:
            return
        self._end_cell()
        table = markdown_table(self._rows)
        self._rows, self._table_depth = None, 0
        if table:
            self._blocks.append(table)

    def _end_block(self) -> None:
        if self._rows is not None:
            self._line.append(" ")
            return
        lines = (" ".join(line.split()) for line in "".join(self._line).split("\n"))
        text = "\n".join(line for line in lines if line)
        self._line.clear()
        if text.strip("#- \n"):
            self._blocks.append(text)
