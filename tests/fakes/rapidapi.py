"""A fake of RapidAPI's gateway. Checks the key and host, and serves some routes of the providers."""

import json

from aiohttp import web

KEY = "rapid-secret-0123456789"
HOSTS = {
    "linkedin-data-scraper.p.rapidapi.com": {"POST /person": {"link"}},
    "twitter-api45.p.rapidapi.com": {"GET /screenname.php": {"screenname", "rest_id"}},
    "zillow56.p.rapidapi.com": {"GET /search": {"location", "page", "status"}},
    "real-time-amazon-data.p.rapidapi.com": {"GET /search": {"query", "is_prime", "country"}},
    "yahoo-finance15.p.rapidapi.com": {"GET /api/v1/markets/quote": {"ticker", "type"}},
    "active-jobs-db.p.rapidapi.com": {"GET /active-ats-7d": {"title_filter", "limit", "offset"}},
}


async def gateway(request: web.Request) -> web.Response:
    routes = HOSTS.get(request.headers.get("X-RapidAPI-Host", ""))
    if request.headers.get("X-RapidAPI-Key") != KEY:
        return web.json_response({"message": "Invalid API key. Go to https://docs.rapidapi.com"}, status=401)
    if routes is None:
        return web.json_response({"message": "You are not subscribed to this API."}, status=403)
    known = routes.get(f"{request.method} {request.path}")
    if known is None:
        return web.json_response({"message": f"Endpoint '{request.path}' does not exist"}, status=404)
    body = await request.read()
    given = json.loads(body) if body else dict(request.query)
    if set(given) - known:
        return web.json_response({"message": "unknown parameter"}, status=400)
    return web.json_response({"host": request.headers["X-RapidAPI-Host"], "given": given})


RAPIDAPI = [web.route("*", "/{path:.*}", gateway)]
