"""Searching the web: what a search finds, and Tavily, which finds it with a key."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, ValidationError

from core.domain.errors import ToolError
from core.web_access.client import Api, Request, ask_json

TAVILY_RESULTS_MAX = 20
_IMAGES_MAX = 10
ShapeT = TypeVar("ShapeT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result; `score` from 0 to 1, the best first."""

    title: str
    url: str
    content: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a search found. `answer` and `images` are empty where the service gives none."""

    query: str
    answer: str
    images: tuple[str, ...]
    hits: tuple[Hit, ...]
    response_seconds: float


class Search(Protocol):
    """A search engine."""

    async def search(self, query: str, *, results_max: int) -> Findings:
        """Raises ToolError, written for the model."""
        ...


def _text(value: object) -> object:
    return "" if value is None else value


Text = Annotated[str, BeforeValidator(_text)]


class _TavilyHit(BaseModel):
    model_config = ConfigDict(extra="ignore")

    title: Text = ""
    url: str
    content: Text = ""
    score: FiniteFloat = 0


class _TavilyImage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    url: str


class _TavilyAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    answer: Text = ""
    images: list[str | _TavilyImage] = Field(default_factory=list[str | _TavilyImage])
    results: list[_TavilyHit]
    response_time: FiniteFloat | None = None


@dataclass(frozen=True, slots=True)
class Tavily:
    """The search port over Tavily's API."""

    api: Api

    async def search(self, query: str, *, results_max: int) -> Findings:
        started = time.monotonic()
        request = Request(
            method="POST",
            path="/search",
            body={
                "query": query,
                "max_results": min(results_max, TAVILY_RESULTS_MAX),
                "search_depth": "advanced",
                "include_answer": True,
                "include_images": True,
            },
        )
        answer = shaped(await ask_json(self.api, request), _TavilyAnswer, self.api)
        seconds = answer.response_time
        return Findings(
            query=query,
            answer=answer.answer,
            images=_urls(answer.images),
            hits=tuple(
                Hit(title=one.title, url=one.url, content=one.content, score=one.score)
                for one in answer.results[:results_max]
            ),
            response_seconds=time.monotonic() - started if seconds is None else seconds,
        )


def _urls(images: Sequence[str | _TavilyImage]) -> tuple[str, ...]:
    plain = (one if isinstance(one, str) else one.url for one in images)
    return tuple(url for url in plain if url.startswith(("https://", "http://")))[:_IMAGES_MAX]


def shaped(answer: object, shape: type[ShapeT], api: Api) -> ShapeT:
    """The answer in its shape. Raises ToolError for any other."""
    try:
        return shape.model_validate(answer)
    except ValidationError as error:
        raise ToolError(
            f"{api.name} answered in a form that is not known. Try it later, or use another way."
        ) from error
