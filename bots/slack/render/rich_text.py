"""Converts Markdown to Slack's rich text, in which all text is literal; pure functions.

Rich text notifies no one, so code in it stays exactly as the model wrote it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

from bots.delivery.markdown import choose_parser, token_text
from bots.delivery.tables import tables_as_text
from core.domain.json import JsonObject

_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}
_INDENT_MAX = 8
_OFFSET_MAX = 10_000
_LINK_SCHEMES = ("https://", "http://", "mailto:")
_RULE = "⎯" * 12


def find_code_blocks(markdown: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yields the line ranges of the top-level blocks with fenced or inline code that `is_wanted` accepts."""
    start, end, is_found = 0, 0, False
    for token in choose_parser(markdown).parse(markdown):
        if token.level == 0 and token.nesting >= 0 and token.map:
            if is_found:
                yield start, end
            start, end = token.map
            is_found = False
        codes = [child.content for child in token.children or () if child.type == "code_inline"]
        if token.type in ("fence", "code_block"):
            codes.append(token.content)
        is_found = is_found or any(map(is_wanted, codes))
    if is_found:
        yield start, end


def markdown_to_rich_text(markdown: str) -> JsonObject:
    """Builds a rich text block. Tables become preformatted text or lists."""
    markdown, writer = tables_as_text(markdown), _Writer()
    for token in choose_parser(markdown).parse(markdown):
        writer.add(token)
    return {"type": "rich_text", "elements": list(writer.elements or [_section([_text("…")])])}


def inline_rich_text(markdown: str) -> list[JsonObject]:
    """Returns the elements of one line, such as a table cell."""
    return [
        element
        for token in choose_parser(markdown).parseInline(markdown)
        for element in _inline_elements(token.children or (), is_bold=False)
    ]


@dataclass
class _Writer:
    elements: list[JsonObject] = field(default_factory=list[JsonObject])
    lists: list[str] = field(default_factory=list[str])
    numbers: list[int] = field(default_factory=list[int])
    is_heading: bool = False
    is_item_open: bool = False
    quotes: int = 0

    def add(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                self.lists.append("bullet" if token.type == "bullet_list_open" else "ordered")
                self.numbers.append(int(token.attrGet("start") or 1) - 1)
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
                self.numbers.pop()
            case "list_item_open":
                self.numbers[-1] += 1
                self.is_item_open = True
            case "heading_open" | "heading_close":
                self.is_heading = token.nesting == 1
            case "blockquote_open" | "blockquote_close":
                self.quotes += token.nesting
            case "fence" | "code_block":
                code = _text(token.content.removesuffix("\n") or " ")
                self.elements.append({"type": "rich_text_preformatted", "elements": [code]})
            case "hr":
                self.elements.append(_section([_text(_RULE)]))
            case "inline":
                self._inline(list(_inline_elements(token.children or (), is_bold=self.is_heading)))
            case _:
                pass

    def _inline(self, parts: list[JsonObject]) -> None:
        if not parts:
            return
        if self.quotes:
            self._append_or_extend("rich_text_quote", parts)
        elif self.lists and self.is_item_open:
            self.is_item_open = False
            item = _section(parts)
            indent = min(len(self.lists) - 1, _INDENT_MAX)
            style = self.lists[-1]
            last = self.elements[-1] if self.elements else {}
            held = last.get("elements")
            is_same = (last.get("type"), last.get("style"), last.get("indent")) == (*("rich_text_list", style), indent)
            if is_same and isinstance(held, list):
                held.append(item)
            else:
                # after a nested list or other content, Slack counts from 1 again unless `offset` is given
                before = min(self.numbers[-1] - 1, _OFFSET_MAX) if style == "ordered" else 0
                offset: JsonObject = {"offset": before} if before > 0 else {}
                self.elements.append(
                    {"type": "rich_text_list", "style": style, "indent": indent, **offset, "elements": [item]}
                )
        else:
            self._append_or_extend("rich_text_section", parts)

    def _append_or_extend(self, kind: str, parts: list[JsonObject]) -> None:
        last = self.elements[-1] if self.elements else {}
        held = last.get("elements")
        if last.get("type") == kind and isinstance(held, list):
            held += [_text("\n\n"), *parts]
        else:
            self.elements.append({"type": kind, "elements": list(parts)})


def _inline_elements(children: Sequence[Token], *, is_bold: bool) -> Iterator[JsonObject]:
    styles = {"bold": True} if is_bold else {}
    url = ""
    for child in children:
        kind = child.type.removesuffix("_open").removesuffix("_close")
        if kind in _STYLES:
            styles = {**styles, _STYLES[kind]: child.nesting == 1}
        elif kind == "link":
            url = str(child.attrGet("href") or "") if child.nesting == 1 else ""
        elif words := token_text(child):
            is_code = child.type == "code_inline"
            shown = {name: True for name, is_on in styles.items() if is_on}
            target = str(child.attrGet("src") or "") if child.type == "image" else url
            is_link = target.startswith(_LINK_SCHEMES) and not is_code
            element: JsonObject = {"type": "link", "url": target, "text": words} if is_link else _text(words)
            style = {**shown, "code": True} if is_code else shown
            yield {**element, "style": dict(style)} if style else element


def _text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def _section(parts: Sequence[JsonObject]) -> JsonObject:
    return {"type": "rich_text_section", "elements": list(parts)}
