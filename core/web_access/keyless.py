"""Searching the web without a key: the results page for browsers without scripts, as DuckDuckGo serves it."""

import html
import re
import time
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from core.domain.errors import ToolError
from core.web_access.client import Api, Request, ask
from core.web_access.search import Findings, Hit

_CHARACTERS_MAX = 2_000_000
_TEXT_CHARACTERS_MAX = 4_000
_TAG = re.compile(r"<(?:a|div|td|span)\b([^<>]{0,4000})>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^<>]*>")
_END = re.compile(r"</(?:a|div|td)\b", re.IGNORECASE)
_CLASS = re.compile(r"""\bclass=["']([^"']*)["']""", re.IGNORECASE)
_HREF = re.compile(r"""\bhref=["']([^"']*)["']""", re.IGNORECASE)
_NOT_LET_IN = re.compile(r"anomaly[-_.]|bots use DuckDuckGo", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeylessSearch:
    """The search port over a results page. It gives no answer and no images; scores follow the order."""

    api: Api

    async def search(self, query: str, *, results_max: int) -> Findings:
        started = time.monotonic()
        request = Request(method="GET", path="/", query={"q": query})
        page = (await ask(self.api, request)).decode("utf-8", "replace")[:_CHARACTERS_MAX]
        found = _found(page)
        if not found and _NOT_LET_IN.search(page):
            raise ToolError(
                "The search without a key takes no more requests from here just now. Open a page that you know with"
                " scrape_webpage, try it later, or tell the people that the operator can set a key for a search."
            )
        hits = (
            Hit(
                title=one.title,
                url=one.url,
                content=one.content,
                score=round(1 / (1 + place), 4),
            )
            for place, one in enumerate(found[:results_max])
        )
        seconds = time.monotonic() - started
        return Findings(
            query=query, answer="", images=(), hits=tuple(hits), response_seconds=seconds
        )


@dataclass
class _Found:
    url: str
    title: str
    content: str = ""


def _found(page: str) -> list[_Found]:
    """The links of class `result__a` with the texts of class `result__snippet`; advertisements are left out. Looks for
    these marks alone, in time that grows with the page's length whatever it holds."""
    found: list[_Found] = []
    is_advertisement = False
    for tag in _TAG.finditer(page):
        kinds = _attribute(_CLASS, tag[1]).split()
        if "result" in kinds:
            is_advertisement = "result--ad" in kinds
        if is_advertisement:
            continue
        if "result__a" in kinds:
            target = _target(_attribute(_HREF, tag[1]))
            found.append(_Found(target, _text(page, tag.end())))
        elif "result__snippet" in kinds and found:
            found[-1].content = found[-1].content or _text(page, tag.end())
    return [one for one in found if one.url]


def _attribute(pattern: re.Pattern[str], attributes: str) -> str:
    match = pattern.search(attributes)
    return html.unescape(match[1]) if match else ""


def _text(page: str, start: int) -> str:
    """What stands between here and the end of the element."""
    inside = page[start : start + _TEXT_CHARACTERS_MAX]
    end = _END.search(inside)
    shown = inside[: end.start()] if end else inside
    return " ".join(html.unescape(_ANY_TAG.sub("", shown)).split())


def _target(href: str) -> str:
    """Where a result leads: the links go through a counter that names the target as `uddg`."""
    try:
        parts = urlsplit(href, scheme="https")
        through = parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    url = through or href
    return url if url.startswith(("https://", "http://")) else ""
