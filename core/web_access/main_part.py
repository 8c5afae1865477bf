"""Finds the main part of a web page: its text without menus, banners and footers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lxml.etree as untyped

_ETREE: Any = untyped
_MAIN_SHARE_MIN = 0.25
_BOILERPLATE_SHARE_MAX = 0.4
_LINKED_SHARE = 0.8
_LINKS_MIN = 4
_NAMED_LINKED_SHARE = 0.3
_BOILERPLATE_ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search", "dialog"))
_BOILERPLATE_NAMES = re.compile(
    r"(?i)(?:^|[\s_-])(?:cookies?|consent|newsletter|breadcrumbs?|navbar|sidebar|footer|social|popup|modal"
    r"|(share|related|promo|advert|ads?|menu|nav))(?:$|[\s_-])"
)
"""Ids and classes of elements that are not part of the text. Those in the inner group also occur in the text, so they
count only for elements that consist of links to a large part."""
_NAME_CHARACTERS_MAX = 300
_EDGES = frozenset(("header", "footer", "aside"))
_PARTS = frozenset(("body", "main", "article"))
_CODE = frozenset(("script", "style", "template", "noscript"))
_LISTS = frozenset(("ul", "ol", "div", "section"))


@dataclass(slots=True)
class _Text:
    """How many characters an element shows, how many of these are in links, and how many links it has."""

    characters: int = 0
    linked: int = 0
    links: int = 0


def find_main_part(page: Any) -> tuple[Any, frozenset[Any]]:
    """Returns the element with the main text of a page, and the elements in it that are not part of this text."""
    texts, opened, links_open = dict[Any, _Text](), [_Text()], 0
    for event, element in _ETREE.iterwalk(page, events=("start", "end")):
        is_link = element.tag == "a"
        if event == "start":
            links_open += is_link
            opened.append(_Text(links=int(is_link)))
            written = element.text if element.tag not in _CODE else ""
        else:
            links_open -= is_link
            text = texts[element] = opened.pop()
            opened[-1].characters += text.characters
            opened[-1].linked += text.linked
            opened[-1].links += text.links
            written = element.tail
        count = len(written.strip()) if written else 0
        opened[-1].characters += count
        opened[-1].linked += count if links_open else 0
    body = page.find("body")
    root = page if body is None else body
    least = texts[root].characters * _MAIN_SHARE_MIN
    for found in ([*page.iter("main")], page.findall(".//*[@role='main']"), [*page.iter("article")]):
        has_heading = len(found) == 1 and (found[0].find(".//h1") is not None or root.find(".//h1") is None)
        if has_heading and texts[found[0]].characters >= least:
            return found[0], _find_boilerplate(found[0], texts, is_whole_page=False)
    return root, _find_boilerplate(root, texts, is_whole_page=True)


def _find_boilerplate(root: Any, texts: Mapping[Any, _Text], *, is_whole_page: bool) -> frozenset[Any]:
    found, whole, left = set[Any](), texts[root].characters, texts[root].characters
    walker = _ETREE.iterwalk(root, events=("start",))
    for _, element in walker:
        text = texts[element]
        if element is root:
            continue
        is_apart = element.tag == "nav" or element.get("role") in _BOILERPLATE_ROLES
        if not is_apart and text.characters > whole * _BOILERPLATE_SHARE_MAX:
            continue
        is_menu = element.tag in _LISTS and text.links >= _LINKS_MIN and text.linked > text.characters * _LINKED_SHARE
        # the header, footer or sidebar of the page, not of an article on it
        is_edge = is_whole_page and element.tag in _EDGES and element.find(".//h1") is None
        is_edge = is_edge and next(element.iterancestors("article", "main"), None) is None
        if is_apart or _is_named(element, text) or (is_whole_page and is_menu) or is_edge:
            found.add(element)
            left -= text.characters
            walker.skip_subtree()
    # a page of links consists of what is boilerplate on other pages
    return frozenset(found if left >= whole * _MAIN_SHARE_MIN else ())


def _is_named(element: Any, text: _Text) -> bool:
    """Returns whether the id or a class of the element means that it is not part of the text."""
    names = f"{element.get('id', '')} {element.get('class', '')}"[:_NAME_CHARACTERS_MAX]
    found = _BOILERPLATE_NAMES.search(names) if element.tag not in _PARTS else None
    return found is not None and (not found[1] or text.linked > text.characters * _NAMED_LINKED_SHARE)
