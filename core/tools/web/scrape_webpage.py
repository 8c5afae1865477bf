"""Reading web pages."""

import asyncio
import re

from pydantic import BaseModel, Field, field_validator
from yarl import URL

from core.context.untrusted_text import clean_line, clean_text
from core.domain.errors import ToolError
from core.tools.long_output import shown
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.web_access.pages import Page, PageReader

URLS_MAX = 10
CHARACTERS_MAX = 50_000
"""For all pages of one call together; what is longer goes to a file of the workspace."""
FOLDER = "scrape"
_WHOLE_CHARACTERS_MAX = 2_000_000
_BETWEEN = re.compile(r"(?<![\s,])[\s,]+(?=https?://)|,\s*$")


class ScrapeParams(BaseModel):
    """Read web pages, PDFs and other documents on the web as text. Several addresses are read at once. What is too
    long to be shown is kept whole in a file of the workspace, for grep and read_file."""

    urls: str = Field(min_length=1, description="One address, or several separated by commas.")

    @field_validator("urls")
    @classmethod
    def _some(cls, value: str) -> str:
        count = len(addresses(value))
        if not 1 <= count <= URLS_MAX:
            raise ValueError(f"give 1 to {URLS_MAX} addresses, not {count}")
        return value


def addresses(urls: str) -> list[str]:
    """The addresses between the commas, each once; a comma inside an address stays in it."""
    parts = (part.strip() for part in _BETWEEN.split(urls.strip()))
    return list(dict.fromkeys(part for part in parts if part))


async def run_scrape(params: ScrapeParams, context: ToolContext) -> ToolOutput:
    reader = context.outside.pages
    if reader is None:
        raise ToolError("Web pages cannot be read here. Go on without it.")
    asked = addresses(params.urls)
    read = await asyncio.gather(*(_read(reader, address) for address in asked))
    room = CHARACTERS_MAX // len(asked)
    parts = [
        one if isinstance(one, str) else await _shown(one, room, number, context)
        for number, one in enumerate(read, start=1)
    ]
    if all(isinstance(one, str) for one in read):
        raise ToolError("\n".join(parts))
    return ToolOutput(output="\n\n".join(parts))


async def _read(reader: PageReader, address: str) -> Page | str:
    """The page, or why there is none: one that fails keeps no other back."""
    try:
        return await reader.read(address)
    except ToolError as error:
        return str(error)


async def _shown(page: Page, room: int, number: int, context: ToolContext) -> str:
    head = f"{clean_line(page.url, 2000)}\n{clean_line(page.title, 300)}".rstrip()
    text = clean_text(page.text, _WHOLE_CHARACTERS_MAX).strip()
    path = f"{FOLDER}/{_name(page.url)}-{number}.md"
    return f"{head}\n{await shown(text, source=page.url, room=room, path=path, context=context)}"


def _name(url: str) -> str:
    parts = URL(url)
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{parts.host or ''}{parts.path}")
    return words.strip("-")[:80] or "page"


def _title(params: ScrapeParams) -> str:
    asked = addresses(params.urls)
    first = re.sub(r"^https?://(www\.)?", "", asked[0]).rstrip("/")
    return f"Reading {first[:80]}{f' and {len(asked) - 1} more' if len(asked) > 1 else ''}"


scrape_webpage = Tool(
    name="scrape_webpage",
    params=ScrapeParams,
    run=run_scrape,
    title=_title,
    example={"urls": "https://example.com/report,https://example.com/figures.pdf"},
    is_idempotent=True,
    timeout_seconds=300,
    requires=("page_reader",),
)
