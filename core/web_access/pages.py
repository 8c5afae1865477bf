"""Reads web pages, with Firecrawl if its key is configured, else directly."""

import logging
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from pydantic import BaseModel, Field, ValidationError
from yarl import URL

from core.domain.errors import DocumentError, ToolError
from core.domain.json import JsonObject
from core.knowledge.document import ParseLimits
from core.knowledge.parsing.parser_process import parse_document, run_in_child
from core.web_access.client import ApiRefused, ServiceApi, ServiceRequest, request_json
from core.web_access.download import Download, DownloadLimits, download
from core.web_access.guard import AddressGuard, RefusedAddress, parse_web_url
from core.web_access.search import Text, parse_response

log = logging.getLogger(__name__)

PAGE_LIMITS = DownloadLimits(bytes_max=20_000_000, seconds_max=40)
CHILD_LIMITS = ParseLimits(
    memory_bytes_max=1_000_000_000, cpu_seconds_max=12, wall_seconds_max=30, text_characters_max=2_000_000
)
_ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/*;q=0.9,*/*;q=0.5"
_HTML = frozenset(("text/html", "application/xhtml+xml"))
_NO_TEXT = re.compile(r"(image|audio|video|font)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A web page as Markdown. `url` is its address after redirects."""

    url: str
    title: str
    text: str


class PageReader(Protocol):
    """Reads web pages."""

    async def read(self, address: str) -> WebPage:
        """Returns the page at the address. Raises ToolError with a message for the model."""
        ...


class _Metadata(BaseModel):
    title: Text | list[str] = ""
    source_url: Text = Field(default="", alias="sourceURL")


class _Scraped(BaseModel):
    markdown: Text = ""
    metadata: _Metadata = Field(default_factory=_Metadata)


class _FirecrawlAnswer(BaseModel):
    success: bool
    data: _Scraped | None = None


@dataclass(frozen=True, slots=True)
class Firecrawl:
    """Reads pages with Firecrawl's API.

    Checks the address first, because a self-hosted Firecrawl may reach private networks.
    """

    api: ServiceApi
    guard: AddressGuard

    async def read(self, address: str) -> WebPage:
        url = parse_web_url(address)
        try:
            await self.guard.resolve_host(url.host or "", url.port or 0)
        except RefusedAddress as error:
            raise ToolError(
                f"{url} is not on the public internet, and nothing else is opened. Use a public address."
            ) from error
        except (OSError, UnicodeError) as error:
            raise ToolError(f"The host {url.host} is not known. Check how it is written.") from error
        body: JsonObject = {"url": str(url), "formats": ["markdown"], "onlyMainContent": True}
        request = ServiceRequest(method="POST", path="/v2/scrape", body=body)
        try:
            told = await request_json(self.api, request)
        except ApiRefused as refused:
            if refused.status != 404:
                raise
            # older self-hosted versions of Firecrawl have only this endpoint
            told = await request_json(self.api, ServiceRequest(method="POST", path="/v1/scrape", body=body))
        answer = parse_response(told, _FirecrawlAnswer, self.api)
        if not answer.success or answer.data is None or not answer.data.markdown.strip():
            raise ToolError(f"{url} could not be read. Use another source, or the browser.")
        metadata = answer.data.metadata
        title = metadata.title if isinstance(metadata.title, str) else " ".join(metadata.title)
        return WebPage(url=metadata.source_url or str(url), title=title, text=answer.data.markdown)


@dataclass(frozen=True, slots=True)
class LocalReader:
    """Reads pages without a service. Fetches only public addresses, and parses in a child process."""

    guard: AddressGuard
    limits: ParseLimits = CHILD_LIMITS

    async def read(self, address: str) -> WebPage:
        fetched = await download(address, self.guard, accept=_ACCEPT, limits=PAGE_LIMITS)
        if fetched.content_type in _HTML:
            page = await _page(fetched, self.limits)
        elif _NO_TEXT.match(fetched.content_type):
            raise ToolError(
                f"{fetched.url} is no page ({fetched.content_type}). see_image looks at pictures; load other files"
                " with a command in the sandbox."
            )
        else:
            name = PurePosixPath(URL(fetched.url).path).name
            try:
                document = await parse_document(fetched.content, name=name, limits=self.limits)
            except DocumentError as error:
                raise ToolError(f"{fetched.url}: {error}") from error
            text = "\n\n".join(page.text for page in document.pages)
            page = WebPage(url=fetched.url, title=document.title or name, text=text)
        if not page.text.strip():
            raise ToolError(
                f"There is no text in {fetched.url}; perhaps it is made by scripts. Open it in the browser, or use"
                " another source."
            )
        return page


class _Read(BaseModel):
    title: str
    text: str


async def _page(fetched: Download, limits: ParseLimits) -> WebPage:
    try:
        output = await run_in_child(
            "core.web_access.page_and_picture_child",
            {"kind": "page", "url": fetched.url, "charset": fetched.charset},
            fetched.content,
            limits,
            bytes_max=4 * limits.text_characters_max,
        )
        read = _Read.model_validate_json(output)
    except (DocumentError, ValidationError) as error:
        log.warning("a page cannot be read: %s", error)
        reason = "" if isinstance(error, ValidationError) else f" {error}"
        raise ToolError(f"{fetched.url} cannot be read.{reason} Use another source, or the browser.") from error
    return WebPage(url=fetched.url, title=" ".join(read.title.split()), text=read.text)
