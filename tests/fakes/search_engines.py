"""Fakes of Tavily's API, as documented, and of DuckDuckGo's results page."""

import html
import json
from datetime import date
from urllib.parse import quote

from aiohttp import web

KEY = "tvly-secret-0123456789"
RESULT = {
    "title": "Oslo - population",
    "url": "https://example.org/oslo",
    "content": "Oslo has 724 290 inhabitants.",
    "score": 0.92,
    "raw_content": None,
}
ANSWER = {
    "query": "population of Oslo",
    "answer": "About 724 000.",
    "images": ["https://example.org/oslo.jpg", {"url": "https://example.org/2.jpg", "description": "x"}],
    "follow_up_questions": None,
    "results": [RESULT, {**RESULT, "url": "https://example.org/2", "score": 0.5}],
    "response_time": 1.23,
    "request_id": "123e4567",
}


async def tavily_search(request: web.Request) -> web.Response:
    """Handles a search. Checks the key, the body and the limits as strictly as Tavily does."""
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        detail = {"error": "Unauthorized: missing or invalid API key."}
        return web.json_response({"detail": detail}, status=401)
    body = json.loads(await request.read())
    if not isinstance(body.get("query"), str) or not 0 < body.get("max_results", 5) <= 20:
        return web.json_response({"detail": {"error": "Invalid request."}}, status=400)
    assert request.content_type == "application/json"
    known = {"query", "max_results", "search_depth", "include_answer", "include_images", "start_date", "end_date"}
    for day in {"start_date", "end_date"} & set(body):
        date.fromisoformat(body[day])
    assert set(body) <= known
    return web.json_response({**ANSWER, "query": body["query"]})


TAVILY = [web.post("/search", tavily_search)]


def results_page(*results: tuple[str, str, str], advertisement: str = "") -> str:
    """Returns a results page. Each result is a title, an address and a snippet."""
    ad = ""
    if advertisement:
        ad = f"""<div class="result results_links result--ad"><h2 class="result__title">
        <a rel="nofollow" class="result__a" href="{advertisement}">Buy</a></h2>
        <a class="result__snippet" href="{advertisement}">Buy now</a></div>"""
    rows = "".join(
        f"""<div class="result results_links results_links_deep web-result ">
        <div class="links_main links_deep result__body"><h2 class="result__title">
        <a rel="nofollow" class="result__a"
           href="//duckduckgo.com/l/?uddg={quote(url, safe="")}&amp;rut=0a1b">{html.escape(title)}</a></h2>
        <div class="result__extras"><a class="result__url" href="#">shown</a></div>
        <a class="result__snippet" href="#">{snippet}</a><div class="clear"></div></div></div>"""
        for title, url, snippet in results
    )
    return f"<!DOCTYPE html><html><body><div id='links' class='results'>{ad}{rows}</div></body></html>"


PAGE = results_page(
    ("Oslo & around", "https://example.org/oslo?a=1&b=2", "Oslo has <b>724 290</b> inhabitants."),
    ("Second", "https://example.org/second", "More."),
    advertisement="https://ads.example.org/",
)
NOT_LET_IN = '<html><body><form id="challenge-form" action="//duckduckgo.com/anomaly.js?sv=html"></form></body></html>'


async def duckduckgo(request: web.Request) -> web.Response:
    assert request.query["q"]
    return web.Response(text=PAGE, content_type="text/html")


DUCKDUCKGO = [web.get("/html/", duckduckgo)]
