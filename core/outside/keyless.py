"""Searching the web without a key: the results page for browsers without scripts, as DuckDuckGo serves it."""

import re
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

from core.errors import ToolError
from core.outside.client import Request, Service, ask
from core.outside.search import Findings, Hit

_CHARACTERS_MAX = 2_000_000
_NOT_LET_IN = re.compile(r"anomaly[-_.]|bots use DuckDuckGo", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeylessSearch:
    """The search port over a results page. It gives no answer and no images; scores follow the order."""

    service: Service

    async def search(self, query: str, *, results_max: int) -> Findings:
        started = time.monotonic()
        request = Request(method="GET", path="/", query={"q": query})
        page = (await ask(self.service, request)).decode("utf-8", "replace")[:_CHARACTERS_MAX]
        reader = _Reader()
        reader.feed(page)
        reader.close()
        if not reader.hits and _NOT_LET_IN.search(page):
            raise ToolError(
                "The search without a key takes no more requests from here just now. Open a page that you know with"
                " scrape_webpage, try it later, or tell the people that the operator can set a key for a search."
            )
        found = [one for one in reader.hits if one.url][:results_max]
        hits = (
            Hit(
                title=" ".join("".join(one.title).split()),
                url=one.url,
                content=" ".join("".join(one.content).split()),
                score=round(1 / (1 + place), 4),
            )
            for place, one in enumerate(found)
        )
        seconds = time.monotonic() - started
        return Findings(
            query=query, answer="", images=(), hits=tuple(hits), response_seconds=seconds
        )


@dataclass
class _Found:
    url: str
    title: list[str] = field(default_factory=list[str])
    content: list[str] = field(default_factory=list[str])


class _Reader(HTMLParser):
    """Takes the links of class `result__a` and the texts of class `result__snippet`; advertisements are left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[_Found] = []
        self._into: list[str] | None = None
        self._is_advertisement = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        kinds = (named.get("class") or "").split()
        if "result" in kinds:
            self._is_advertisement = "result--ad" in kinds
        if self._is_advertisement:
            return
        if tag == "a" and "result__a" in kinds:
            self.hits.append(_Found(_target(named.get("href") or "")))
            self._into = self.hits[-1].title
        elif "result__snippet" in kinds and self.hits:
            self._into = self.hits[-1].content

    def handle_endtag(self, tag: str) -> None:
        if tag in ("a", "div", "td"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into.append(data)


def _target(href: str) -> str:
    """Where a result leads: the links go through a counter that names the target as `uddg`."""
    try:
        parts = urlsplit(href, scheme="https")
        through = parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    url = through or href
    return url if url.startswith(("https://", "http://")) else ""
