"""Searching the web."""

from pydantic import BaseModel, Field, JsonValue

from core.context.untrusted_text import clean_line, clean_text, wrap_untrusted
from core.domain.errors import ToolError
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.web_access.search import SearchResults

RESULTS_MAX = 20
CONTENT_CHARACTERS_MAX = 2_000
ANSWER_CHARACTERS_MAX = 4_000
QUERY_CHARACTERS_MAX = 400
URL_CHARACTERS_MAX = 2_000


class SearchParams(BaseModel):
    """Search the web. Gives titles, addresses and excerpts, the best first, sometimes with a short answer and pictures.
    Excerpts are not enough for facts that matter: read the pages with scrape_webpage and name them as sources."""

    query: str = Field(
        min_length=1,
        max_length=QUERY_CHARACTERS_MAX,
        description="What to look for, in the words of a search box; with the year where it matters.",
    )
    num_results: int = Field(
        default=20, ge=1, le=RESULTS_MAX, description="How many results at most."
    )


async def run_search(params: SearchParams, context: ToolContext) -> ToolOutput:
    search = context.outside.search
    if search is None:
        raise ToolError("There is no web search here. Go on without it.")
    findings = await search.search(params.query, results_max=params.num_results)
    return ToolOutput(output=_shown(findings))


def _shown(findings: SearchResults) -> JsonValue:
    answer = clean_text(findings.answer, ANSWER_CHARACTERS_MAX)
    return {
        "query": findings.query,
        "answer": wrap_untrusted(answer, source="the search's own answer") if answer else "",
        "images": [url for one in findings.images if (url := clean_line(one, URL_CHARACTERS_MAX))],
        "results": [
            {
                "title": clean_line(hit.title, 200),
                "url": clean_line(hit.url, URL_CHARACTERS_MAX),
                "content": wrap_untrusted(
                    clean_text(hit.content, CONTENT_CHARACTERS_MAX), source=hit.url
                ),
                "score": round(hit.score, 4),
            }
            for hit in findings.hits
        ],
        "response_time": round(findings.response_seconds, 2),
    }


web_search = Tool(
    name="web_search",
    params=SearchParams,
    run=run_search,
    title=lambda params: f"Searching for {params.query}",
    example={"query": "population of Oslo 2025", "num_results": 5},
    is_idempotent=True,
    timeout_seconds=180,
    requires=("search",),
)
