"""Reads HTML: files and web pages."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin

import lxml.etree as untyped

from core.knowledge.document import Document, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import (
    Block,
    Cell,
    Mark,
    TextRun,
    left_out_page,
    pages_at_headings,
    render_runs,
    render_table,
    repeat_merged_cells,
)
from core.knowledge.parsing.encodings import decode_text
from core.knowledge.parsing.lists import ListLevel, ListNumbers

_ETREE: Any = untyped
_DECLARED = re.compile(rb"""(?i)charset\s*=\s*+["']?\s*+(?!utf|uni|raw|puny|idna)([\w-]{2,40})""")
_UNSEEN = frozenset(("script", "style", "noscript", "template", "svg", "head", "iframe", "object", "annotation"))
_HIDDEN_STYLE = re.compile(r"(?i)(?:display\s*+:\s*+none|visibility\s*+:\s*+hidden)")
_STRUCK_STYLE = re.compile(r"(?i)text-decoration[^;]{0,40}line-through")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LAYOUT = "body p div section article header footer main aside nav hr pre ul ol li dl dt dd details summary"
_OTHERS = "blockquote figure figcaption form fieldset address table caption tr td th"
_BLOCKS = frozenset((*_LAYOUT.split(), *_OTHERS.split(), *_HEADINGS))
_MARKS: dict[str, Mark] = {
    "s": "struck",
    "strike": "struck",
    "del": "struck",
    "sup": "superscript",
    "sub": "subscript",
    "code": "code",
    "kbd": "code",
    "samp": "code",
    "tt": "code",
}
_QUOTED = {"q": ("“", "”"), "msqrt": ("√(", ")")}
_MATH = {
    "mfrac": ("/",),
    "msup": ("^",),
    "msub": ("_",),
    "msubsup": ("_", "^"),
    "mroot": ("^1/",),
    "munder": ("_",),
    "mover": ("^",),
    "munderover": ("_", "^"),
    "mtable": ("; ",),
    "mtr": (", ",),
}
"""The characters written before the second and third element of a part of a formula."""
_SIGNS_MAX = 50
"""The maximum number of nested parts of formulas that get such characters. For each of them, the whole text inside is
read again."""
_BOXES = ("checkbox", "radio")
_FIELDS = ("text", "email", "tel", "url", "number", "date", "time", "search", "")
_ADDRESS = re.compile(r"(?i)(?:https?:|mailto:|tel:|(?![a-z][a-z0-9+.-]*+:))\S")
_ADDRESS_CHARACTERS_MAX = 2_000
_NUMBER = re.compile("-?[0-9]{1,6}")
_LISTS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_COLUMNS_MAX = 1_000
_Default = TypeVar("_Default")


def read_html(content: bytes, limits: ParseLimits) -> Document:
    tree = parse_html(content)
    # tables of a workbook that Excel 2003 or another program saved as XML
    for sheet in tree.iter("worksheet"):
        heading = _ETREE.Element("h1")
        heading.text = sheet.get("ss:name")
        sheet.insert(0, heading)
    for row in tree.iter("row"):
        row.tag, column = "tr", 0
        for cell in row.iterchildren("cell"):
            cell.tag, before = "td", column
            column = min(_whole_number(cell.get("ss:index"), column + 1), _COLUMNS_MAX)
            for _ in range(column - before - 1):
                cell.addprevious(_ETREE.Element("td"))
            cell.set("colspan", str(_whole_number(cell.get("ss:mergeacross"), 0) + 1))
    reader = HtmlReader(limits)
    pages = pages_at_headings(reader.read(tree))
    return Document(title=page_title(tree), kind="html", pages=(*left_out_page(reader.left_out), *pages))


def parse_html(content: bytes, charset: str = "") -> Any:
    """Returns the root element of a page, which may be empty. `charset` is the encoding that the server states. Raises
    Unreadable for more than 2,000 nested elements, because libxml2 stops there."""
    declared = _DECLARED.search(content[:4096])
    text = decode_text(content, charset or (declared[1].decode("ascii") if declared else ""))
    # lxml instead of html.parser, because html.parser needs a minute for 80 KB of "<a <a <a"
    parser = _ETREE.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    root = _ETREE.fromstring(text.encode("utf-8", "replace"), parser)
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log.filter_from_fatals()):
        raise Unreadable("nested")
    return _ETREE.Element("html") if root is None else root


def page_title(tree: Any) -> str:
    title = tree.find(".//title")
    return " ".join("".join(title.itertext()).split()) if title is not None else ""


class _Context(NamedTuple):
    """The properties that a text gets from the elements around it."""

    marks: frozenset[Mark] = frozenset()
    link: str = ""
    lists: tuple[ListNumbers, ...] = ()
    is_preformatted: bool = False
    signs: int = 0
    """The number of quotations and parts of formulas around the text."""


class HtmlReader:
    """Converts elements to blocks. `base` is the page's address, and `left_out` counts what is not shown."""

    def __init__(self, limits: ParseLimits, base: str = "") -> None:
        self.left_out = Counter[str]()
        self._limits = limits
        self._base = base
        self._blocks: list[Block] = []
        self._runs: list[TextRun] = []
        self._context: _Context = _Context()
        self._marker = ""
        self._rows: list[list[Cell]] | None = None
        """The rows of the table that is being read."""

    def read(self, root: Any, skipped: frozenset[Any] = frozenset()) -> list[Block]:
        """Returns the blocks of an element, without the elements in it that are skipped."""
        self._skipped = skipped
        # collected beforehand, because asking each element for its attributes takes longer than reading it
        self._special = {*skipped, *root.xpath("descendant-or-self::*[@style or @hidden or @aria-hidden]")}
        self._opened_by_buttons = {*" ".join(root.xpath("//@aria-controls")).split()}
        self._signs = {
            part: ("", *_MATH[whole.tag])[min(at, len(_MATH[whole.tag]))]
            for whole in root.iter(*_MATH)
            for at, part in enumerate(whole)
        }
        self._walk(root)
        self._end_block()
        return self._blocks

    def _walk(self, element: Any) -> None:
        tag, context, start = element.tag, self._context, len(self._runs)
        if tag in _UNSEEN or (element in self._special and self._is_hidden(element)):
            return
        if tag in _MARKS or (element in self._special and _STRUCK_STYLE.search(element.get("style", ""))):
            self._context = context._replace(marks=context.marks | {_MARKS.get(tag, "struck")})
        has_signs = (tag in _QUOTED or element in self._signs) and context.signs < _SIGNS_MAX
        if has_signs:
            self._context = self._context._replace(signs=context.signs + 1)
        if tag in _BLOCKS:
            self._start_block(element, tag)
        elif tag == "a":
            self._context = context._replace(link=self._address(element.get("href", "")))
        elif tag in _WITHOUT_TEXT:
            words = _WITHOUT_TEXT[tag](element)
            self._runs.append(TextRun(words, frozenset(), context.link))
            self.left_out["picture"] += tag == "img" and not words
        if text := element.text:
            self._add_text(text)
        for child in element:
            self._walk(child)
            if text := child.tail:
                self._add_text(text)
        if tag in _BLOCKS:
            self._end_block_element(element, tag)
        self._context = context
        if has_signs:
            # puts the marks of a quotation, or of a part of a formula, around its text
            opening, closing = _QUOTED.get(tag, ("", ""))
            text = f"{opening}{''.join(run.text for run in self._runs[start:])}{closing}"
            if element in self._signs:
                text = " ".join(text.split())
                text = self._signs[element] + (text if len(text) == 1 or text.isalnum() else f"({text})")
            self._runs[start:] = [TextRun(text, context.marks, context.link)]

    def _is_hidden(self, element: Any) -> bool:
        before = element.getprevious() if element.get("aria-hidden") == "true" else None
        is_drawn_twice = before is not None and next(before.iter("math"), None) is not None
        if is_drawn_twice or element in self._skipped:
            return True
        is_openable = element.get("hidden") == "until-found" or element.get("id") in self._opened_by_buttons
        if is_openable or (element.get("hidden") is None and not _HIDDEN_STYLE.search(element.get("style", ""))):
            return False
        if any(text.strip() for text in element.itertext()):
            self.left_out["hidden element"] += 1
        return True

    def _start_block(self, element: Any, tag: str) -> None:
        if self._rows is None:
            self._end_block()
            is_table = tag == "table" and element.get("role") != "presentation"
            if is_table and next(element.iterdescendants("table"), None) is None:  # other tables only lay out the page
                self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif self._runs:
            self._runs.append(TextRun(" "))
        if tag in ("ul", "ol"):
            kind = _LISTS.get(element.get("type", ""), "decimal") if tag == "ol" else "bullet"
            opened = ListNumbers({0: ListLevel(kind, "%1.", _whole_number(element.get("start"), 1))})
            self._context = self._context._replace(lists=(*self._context.lists, opened))
        elif tag == "li":
            lists = self._context.lists or (ListNumbers({}),)
            self._marker = lists[-1].next_marker(0, _whole_number(element.get("value"), None))
            if self._rows is not None:
                self._runs.append(TextRun(f"{self._marker} "))
        elif tag == "pre":
            self._context = self._context._replace(is_preformatted=True)

    def _end_block_element(self, element: Any, tag: str) -> None:
        if self._rows is None:
            self._end_block(tag)
        elif tag == "table":
            self._blocks.append(Block(render_table(repeat_merged_cells(self._rows), self._limits), "table"))
            self._rows = None
        elif tag in ("td", "th"):
            self._rows = self._rows or [[]]
            columns, rows = _whole_number(element.get("colspan"), 1), _whole_number(element.get("rowspan"), 1)
            self._rows[-1].append(Cell(self._take_text(), columns, rows))
        elif tag == "caption":
            self._blocks.append(Block(self._take_text()))
        if tag == "li":
            self._marker = ""

    def _add_text(self, text: str) -> None:
        if self._context.is_preformatted and self._rows is None:
            self._runs.append(TextRun(text))
        elif self._runs or not text.isspace():
            self._runs.append(TextRun(text.replace("\n", " "), self._context.marks, self._context.link))

    def _take_text(self) -> str:
        runs, self._runs = self._runs, []
        is_plain = len(runs) == 1 and not runs[0].marks and not runs[0].link
        text = runs[0].text if is_plain else render_runs(runs)
        lines = [" ".join(line.split()) for line in text.split("\n")]
        return "\n".join(filter(None, lines))

    def _end_block(self, tag: str = "") -> None:
        if not self._runs:
            return
        if self._context.is_preformatted:
            if tag == "pre":
                self._blocks.append(Block("".join(run.text for run in self._runs).strip("\n"), "code"))
                self._runs.clear()
            elif not self._runs[-1].text.endswith("\n"):
                self._runs.append(TextRun("\n"))
            return
        text = self._take_text()
        if not text:
            return
        if tag in _HEADINGS:
            number = self._marker.removeprefix("-")
            self._blocks.append(Block(text, "heading", _HEADINGS[tag], number))
            self._marker = self._marker.removesuffix(number)
        elif self._marker or self._context.lists:
            # further paragraphs of an item go below the text of the first paragraph
            level = max(len(self._context.lists) - 1, 0) + (not self._marker)
            self._blocks.append(Block(text, "item", level=level, marker=self._marker))
            self._marker = ""
        else:
            self._blocks.append(Block(text))

    def _address(self, written: str) -> str:
        if len(written) > _ADDRESS_CHARACTERS_MAX or not _ADDRESS.match(written.strip()):
            return ""
        with suppress(ValueError):
            return urljoin(self._base, written.strip()).replace(" ", "%20").replace(")", "%29")
        return ""


def _input_text(element: Any) -> str:
    kind = element.get("type", "").lower()
    if kind in _BOXES:
        return "☒ " if "checked" in element.attrib else "☐ "
    return f" {element.get('value', '')} " if kind in _FIELDS else ""


def _picture_text(element: Any) -> str:
    alternative = " ".join(element.get("alt", "").split())
    return f" [picture: {alternative}] " if alternative else ""


_WITHOUT_TEXT: dict[str, Callable[[Any], str]] = {
    "br": lambda element: "\n",
    "img": _picture_text,
    "time": lambda element: "" if element.text or len(element) else element.get("datetime", ""),
    "option": lambda element: " ☒ " if "selected" in element.attrib else " ☐ ",
    "input": _input_text,
}
"""Functions that return what is shown for an element besides its text, by the name of the element."""


def _whole_number(written: str | None, default: _Default) -> int | _Default:
    return int(written) if written and _NUMBER.fullmatch(written.strip()) else default
