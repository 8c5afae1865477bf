"""Tools that search the web, read web pages and query data providers."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date
from pathlib import PurePosixPath
from typing import TypeVar, cast

from pydantic import BaseModel, Field, JsonValue, field_validator
from yarl import URL

from core.context.tokens import first_tokens
from core.context.untrusted_text import clean_json, clean_line, clean_text, wrap_untrusted
from core.domain.call_consent import STAYS, Reach
from core.domain.errors import RunError, ToolError
from core.domain.json import JsonObject, json_objects
from core.domain.sources import offer_addresses
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.file_changes import in_one_piece
from core.web_access.providers import Provider, load_provider_endpoints

ResultT = TypeVar("ResultT")
DIGEST_CHARACTERS = 8


async def fence_long_text(text: str, *, source: str, room: int, path: str, context: ToolContext) -> str:
    """Returns the text marked as untrusted, truncated to `room` tokens.

    If the text is longer, the full text is also written to the workspace if a sandbox is available. The name of that
    file is `path` with a digest of the text, so that it never replaces another text that the model was given."""
    shown = first_tokens(text[: room * CHARACTERS_PER_TOKEN], room)
    if len(shown) == len(text):
        return wrap_untrusted(text, source=source)
    note = f"[{len(text) - len(shown)} characters more are left out"
    with suppress(RunError, ToolError):
        files, content, named = (await context.sandbox()).files, text.encode(), PurePosixPath(path)
        path = str(named.with_stem(f"{named.stem}-{hashlib.sha256(content).hexdigest()[:DIGEST_CHARACTERS]}"))
        await files.write(path, in_one_piece(content))
        note += f"; all of it is in {path}"
    return f"{wrap_untrusted(shown, source=source)}\n{note}]"


ALREADY_READ = "already read in this run, so this is the same result; the browser shows what has changed since"
RESULTS_MAX = 20
CONTENT_CHARACTERS_MAX = 1_000
ANSWER_CHARACTERS_MAX = 4_000
QUERY_CHARACTERS_MAX = 400
URL_CHARACTERS_MAX = 2_000


class WebSearchParams(BaseModel):
    """Search the web. Returns titles, addresses and excerpts. Read the pages before you rely on them."""

    query: str = Field(min_length=1, max_length=QUERY_CHARACTERS_MAX, description="Words for a search box.")
    num_results: int = Field(default=20, ge=1, le=RESULTS_MAX)
    after: date | None = Field(default=None, description="First day: 2026-01-31.")
    before: date | None = None


async def run_web_search(params: WebSearchParams, context: ToolContext) -> ToolOutput:
    search = context.outside.search
    if search is None:
        raise ToolError("There is no web search here. Go on without it.")

    async def ask() -> JsonObject:
        found = await search.search(
            params.query, results_max=params.num_results, after=params.after, before=params.before
        )
        answer = clean_text(found.answer, ANSWER_CHARACTERS_MAX)
        return {
            **({"dates": found.note} if found.note else {}),
            "query": found.query,
            "answer": wrap_untrusted(answer, source="the search's own answer") if answer else "",
            "images": [url for one in found.images if (url := clean_line(one, URL_CHARACTERS_MAX))],
            "results": [
                {
                    "title": clean_line(hit.title, 200),
                    "url": clean_line(hit.url, URL_CHARACTERS_MAX),
                    "content": wrap_untrusted(clean_text(hit.content, CONTENT_CHARACTERS_MAX), source=hit.url),
                    "score": round(hit.score, 4),
                }
                for hit in found.hits
            ],
            "response_time": round(found.response_seconds, 2),
        }

    found, note = await _read_once(params.model_dump_json(), ask, context)
    images = found["images"] if isinstance(found["images"], list) else []
    # only the addresses of hits and images count, because those in the texts were written by the pages
    addresses = [*(str(hit["url"]) for hit in json_objects(found["results"])), *map(str, images)]
    return ToolOutput(output={"note": note, **found} if note else found, sources=offer_addresses(addresses))


async def _read_once(key: str, read: Callable[[], Awaitable[ResultT]], context: ToolContext) -> tuple[ResultT, str]:
    """Returns what the run has already read for the key, with a note that says so, or else reads it."""
    results = cast(dict[str, ResultT], context.web_results)
    if key in results:
        return results[key], ALREADY_READ
    results[key] = result = await read()
    return result, ""


web_search = Tool(
    name="web_search",
    effect="reads",
    reach=Reach("reads_outside", brings=(("search", ""),)),
    params=WebSearchParams,
    run=run_web_search,
    subject="web",
    title=lambda params: f"Searching for {params.query}",
    example={"query": "population of Oslo 2025", "num_results": 5},
    is_idempotent=True,
    timeout_seconds=180,
    requires=("search",),
)


URLS_MAX = 10
CHARACTERS_PER_TOKEN = 5
RESULT_TOKENS_MAX = 6_500
"""Limit for all pages of one call together. Longer pages are written to a workspace file."""
PAGES_FOLDER = "scrape"
_WHOLE_CHARACTERS_MAX = 2_000_000
_BETWEEN = re.compile(r"(?<![\s,])[\s,]+(?=https?://)|,\s*$")


class ScrapeParams(BaseModel):
    """Read web pages, PDFs and other documents on the web as text. Long texts are kept whole in a file of the
    workspace."""

    urls: str = Field(min_length=1, description="One address, or several separated by commas.")

    @field_validator("urls")
    @classmethod
    def _some(cls, value: str) -> str:
        count = len(split_url_list(value))
        if not 1 <= count <= URLS_MAX:
            raise ValueError(f"give 1 to {URLS_MAX} addresses, not {count}")
        return value


def split_url_list(urls: str) -> list[str]:
    """Returns the addresses from a comma-separated list, without duplicates.

    A comma inside an address does not split it.
    """
    parts = (part.strip() for part in _BETWEEN.split(urls.strip()))
    return list(dict.fromkeys(part for part in parts if part))


async def run_scrape(params: ScrapeParams, context: ToolContext) -> ToolOutput:
    reader = context.outside.pages
    if reader is None:
        raise ToolError("Web pages cannot be read here. Go on without it.")
    asked = split_url_list(params.urls)
    room = RESULT_TOKENS_MAX // len(asked)

    async def read(address: str) -> tuple[str, bool]:
        """Returns the page, or why it cannot be read, so that one failed page does not fail the others."""

        async def load() -> str:
            page = await reader.read(address)
            head = f"{clean_line(page.url, 2000)}\n{clean_line(page.title, 300)}".rstrip()
            text = clean_text(page.text, _WHOLE_CHARACTERS_MAX).strip()
            url = URL(page.url)
            words = re.sub(r"[^A-Za-z0-9]+", "-", f"{url.host or ''}{url.path}").strip("-")[:80]
            path = f"{PAGES_FOLDER}/{words or 'page'}.md"
            return f"{head}\n{await fence_long_text(text, source=page.url, room=room, path=path, context=context)}"

        try:
            page, note = await _read_once(f"{address} {room}", load, context)
        except ToolError as error:
            return str(error), False
        return f"[{note}]\n{page}" if note else page, True

    pages = await asyncio.gather(*map(read, asked))
    if not any(is_read for _, is_read in pages):
        raise ToolError("\n".join(text for text, _ in pages))
    return ToolOutput(output="\n\n".join(text for text, _ in pages))


def _scrape_reach(params: ScrapeParams) -> Reach:
    asked = tuple(split_url_list(params.urls))
    return Reach("reads_outside", asked, brings=tuple(("page", address) for address in asked))


def _scrape_title(params: ScrapeParams) -> str:
    asked = split_url_list(params.urls)
    first = re.sub(r"^https?://(www\.)?", "", asked[0]).rstrip("/")
    return f"Reading {first[:80]}{f' and {len(asked) - 1} more' if len(asked) > 1 else ''}"


scrape_webpage = Tool(
    name="scrape_webpage",
    effect="reads",
    reach=_scrape_reach,
    params=ScrapeParams,
    run=run_scrape,
    subject="web",
    title=_scrape_title,
    example={"urls": "https://example.com/report,https://example.com/figures.pdf"},
    is_idempotent=True,
    timeout_seconds=300,
    requires=("page_reader",),
)


PROVIDER_FOLDER = "data"


class EndpointsParams(BaseModel):
    """List the routes of a data provider and their parameters. Prefer data providers to search and browser."""

    service_name: Provider = Field()


async def run_endpoints(params: EndpointsParams, context: ToolContext) -> ToolOutput:
    if context.outside.providers is None:
        raise ToolError("There are no data providers here. Go on without them.")
    known = load_provider_endpoints(params.service_name)
    routes: dict[str, JsonValue] = {
        name: {
            "route": name,
            "method": one.method,
            "name": name.replace("_", " "),
            "description": one.about,
            "payload": {**one.payload},
        }
        for name, one in known.endpoints.items()
    }
    return ToolOutput(output={"service_name": params.service_name, "endpoints": routes})


class CallParams(BaseModel):
    """Query a data provider. Call get_data_provider_endpoints first."""

    service_name: Provider = Field()
    route: str = Field(min_length=1, max_length=200)
    payload: JsonObject = Field(default_factory=dict, description="The parameters of the route.")


async def call_data_provider(params: CallParams, context: ToolContext) -> ToolOutput:
    providers = context.outside.providers
    if providers is None:
        raise ToolError("There are no data providers here. Go on without them.")
    answer = await providers.call(params.service_name, params.route, params.payload)
    text = json.dumps(clean_json(answer), ensure_ascii=False, indent=1)
    path = f"{PROVIDER_FOLDER}/{params.service_name}.json"
    output = await fence_long_text(text, source=params.service_name, room=RESULT_TOKENS_MAX, path=path, context=context)
    return ToolOutput(output=output)


get_data_provider_endpoints = Tool(
    name="get_data_provider_endpoints",
    effect="reads",
    reach=STAYS,
    params=EndpointsParams,
    run=run_endpoints,
    subject="web",
    title=lambda params: f"Looking at what {params.service_name} offers",
    example={"service_name": "twitter"},
    is_idempotent=True,
    requires=("data_providers",),
)
execute_data_provider_call = Tool(
    name="execute_data_provider_call",
    effect="reads",
    reach=lambda params: Reach("reads_outside", brings=(("service", params.service_name),)),
    params=CallParams,
    run=call_data_provider,
    subject="web",
    title=lambda params: f"Asking {params.service_name} for {params.route}",
    example={"service_name": "twitter", "route": "user_info", "payload": {"screenname": "github"}},
    is_idempotent=True,
    timeout_seconds=180,
    requires=("data_providers",),
)
