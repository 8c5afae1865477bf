"""Web search, with Tavily if its key is configured, else with DuckDuckGo's results page."""

import html
import re
import time
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, ValidationError

from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.web_access.client import ServiceApi, ServiceRequest, request_json, send_request

TAVILY_RESULTS_MAX = 20
_IMAGES_MAX = 10
NO_DATES = "The search here takes no dates, so the results are of any time. Look at the date of each page."
ShapeT = TypeVar("ShapeT", bound=BaseModel)
Day = date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A search result. `score` is from 0 to 1, and higher is better."""

    title: str
    url: str
    content: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """The results of a search. `answer` and `images` are empty if the service gives none. `note` tells the model what
    the service could not do."""

    query: str
    answer: str
    images: tuple[str, ...]
    hits: tuple[SearchHit, ...]
    response_seconds: float
    note: str = ""


class Search(Protocol):
    """A search engine."""

    async def search(self, query: str, *, results_max: int, after: Day = None, before: Day = None) -> SearchResults:
        """Returns at most `results_max` results, of the days from `after` to `before` if the service can tell.

        Raises ToolError with a message for the model."""
        ...


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class _TavilyHit(BaseModel):
    title: Text = ""
    url: str
    content: Text = ""
    score: FiniteFloat = 0


class _TavilyImage(BaseModel):
    url: str


class _TavilyAnswer(BaseModel):
    answer: Text = ""
    images: list[str | _TavilyImage] = Field(default_factory=list[str | _TavilyImage])
    results: list[_TavilyHit]
    response_time: FiniteFloat | None = None


@dataclass(frozen=True, slots=True)
class Tavily:
    """Search with Tavily's API."""

    api: ServiceApi

    async def search(self, query: str, *, results_max: int, after: Day = None, before: Day = None) -> SearchResults:
        started = time.monotonic()
        days = {"start_date": after, "end_date": before}
        body: JsonObject = {
            "query": query,
            "max_results": min(results_max, TAVILY_RESULTS_MAX),
            "search_depth": "advanced",
            "include_answer": True,
            "include_images": True,
            **{name: day.isoformat() for name, day in days.items() if day},
        }
        request = ServiceRequest(method="POST", path="/search", body=body)
        answer = parse_response(await request_json(self.api, request), _TavilyAnswer, self.api)
        seconds = answer.response_time
        plain = (one if isinstance(one, str) else one.url for one in answer.images)
        return SearchResults(
            query=query,
            answer=answer.answer,
            images=tuple(url for url in plain if url.startswith(("https://", "http://")))[:_IMAGES_MAX],
            hits=tuple(
                SearchHit(title=one.title, url=one.url, content=one.content, score=one.score)
                for one in answer.results[:results_max]
            ),
            response_seconds=time.monotonic() - started if seconds is None else seconds,
        )


def parse_response(answer: object, shape: type[ShapeT], api: ServiceApi) -> ShapeT:
    """Validates a service's response as a `shape`. Raises ToolError if it does not fit."""
    try:
        return shape.model_validate(answer)
    except ValidationError as error:
        raise ToolError(
            f"{api.name} answered in a form that is not known. Try it later, or use another way."
        ) from error


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
    """Searches with DuckDuckGo's page for browsers without scripts. It returns no direct answer and no images, and the
    scores follow the order of the results."""

    api: ServiceApi

    async def search(self, query: str, *, results_max: int, after: Day = None, before: Day = None) -> SearchResults:
        started = time.monotonic()
        request = ServiceRequest(method="GET", path="/", query={"q": query})
        page = (await send_request(self.api, request)).decode("utf-8", "replace")[:_CHARACTERS_MAX]
        # links of class `result__a` with texts of class `result__snippet`, in linear time even for a hostile page
        found: list[SearchHit] = []
        is_advertisement = False
        for tag in _TAG.finditer(page):
            kinds = _attribute(_CLASS, tag[1]).split()
            if "result" in kinds:
                is_advertisement = "result--ad" in kinds
            if is_advertisement:
                continue
            if "result__a" in kinds:
                target = _target(_attribute(_HREF, tag[1]))
                found.append(SearchHit(title=_element_text(page, tag.end()), url=target, content="", score=0))
            elif "result__snippet" in kinds and found and not found[-1].content:
                found[-1] = replace(found[-1], content=_element_text(page, tag.end()))
        found = [one for one in found if one.url]
        if not found and _NOT_LET_IN.search(page):
            raise ToolError(
                "The search without a key takes no more requests from here just now. Open a page that you know with"
                " scrape_webpage, try it later, or tell the people that the operator can set a key for a search."
            )
        hits = (replace(one, score=round(1 / (1 + place), 4)) for place, one in enumerate(found[:results_max]))
        seconds = time.monotonic() - started
        note = NO_DATES if after or before else ""
        return SearchResults(query=query, answer="", images=(), hits=tuple(hits), response_seconds=seconds, note=note)


def _attribute(pattern: re.Pattern[str], attributes: str) -> str:
    match = pattern.search(attributes)
    return html.unescape(match[1]) if match else ""


def _element_text(page: str, start: int) -> str:
    """Returns the text between `start` and the end of the element."""
    inside = page[start : start + _TEXT_CHARACTERS_MAX]
    end = _END.search(inside)
    shown = inside[: end.start()] if end else inside
    return " ".join(html.unescape(_ANY_TAG.sub("", shown)).split())


def _target(href: str) -> str:
    """Returns the target of a result link, which is the `uddg` parameter of DuckDuckGo's redirect."""
    try:
        parts = urlsplit(href, scheme="https")
        through = parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    url = through or href
    return url if url.startswith(("https://", "http://")) else ""
