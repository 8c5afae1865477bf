"""Fake web pages, and a fake of Firecrawl's API as its documentation describes it."""

import json

from aiohttp import web

KEY = "fc-secret-0123456789"
ARTICLE = """<!DOCTYPE html><html lang="en"><head><title>Tides of the fjord</title><meta charset="utf-8"></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/shop">Shop our sale</a></li></ul></nav>
<script>document.write("written by a script")</script>
<article><h1>Tides of the fjord</h1>
<p>The tide in the inner fjord rises by about thirty centimetres, twice a day, which surprises visitors.
It is measured at a gauge near the old harbour, and the figures are kept since 1885.</p>
<h2>How it is measured</h2>
<p>A float in a well follows the water. Its height is written down every ten minutes and sent to the observatory, where
the values are compared with the forecast. Storms can raise the water by more than a metre above it.</p>
<table><tr><th>Month</th><th>Mean</th></tr><tr><td>May</td><td>31</td></tr></table>
</article><footer>Cookie settings, imprint, newsletter</footer></body></html>"""


async def article(_: web.Request) -> web.Response:
    return web.Response(text=ARTICLE, content_type="text/html")


PAGES = [web.get("/article", article)]


async def scrape(request: web.Request) -> web.Response:
    """Handles `POST /v2/scrape`. Refuses a wrong key or body."""
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return web.json_response({"success": False, "error": "Unauthorized: Invalid token"}, status=401)
    body = json.loads(await request.read())
    if set(body) - {"url", "formats", "onlyMainContent"} or body["formats"] != ["markdown"]:
        return web.json_response({"success": False, "error": "Bad Request"}, status=400)
    return web.json_response(
        {
            "success": True,
            "data": {
                "markdown": "# Tides\n\nThirty centimetres.",
                "metadata": {
                    "title": "Tides of the fjord",
                    "sourceURL": body["url"],
                    "url": body["url"],
                    "statusCode": 200,
                },
            },
        }
    )


FIRECRAWL = [web.post("/v2/scrape", scrape)]
