"""Serves the web pages of tasks on this machine, and a web search over them in the form of Tavily's API."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from simulator.serving import serve_on_loopback
from simulator.threadbench.task import SITE, Task

_WORD = re.compile(r"\w{3,}")
_TAG = re.compile(r"<[^<>]*>")
_TITLE = re.compile(r"<title>([^<]*)</title>")


class Website:
    """The pages of all tasks: `/<task>/<path>`. `url` has no slash at its end."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.url = ""
        self._pages = {f"{task.name}/{path}": page for task in tasks for path, page in task.pages.items()}

    async def show_page(self, request: web.Request) -> web.Response:
        page = self._pages.get(request.match_info["path"])
        if page is None or isinstance(page, int):
            return web.Response(status=page or 404, text="This page cannot be shown.")
        text = page.replace(SITE, self.url + "/" + request.match_info["path"].split("/")[0])
        return web.Response(text=text, content_type="text/html")

    async def search(self, request: web.Request) -> web.Response:
        """`POST /search`: the pages that share most words with the query come first."""
        query = set(_WORD.findall(str((await request.json()).get("query", "")).casefold()))
        hits: list[dict[str, str | float]] = []
        for path, page in self._pages.items():
            if isinstance(page, int):
                continue
            text = " ".join(_TAG.sub(" ", page).split())
            score = len(query & set(_WORD.findall(text.casefold()))) / max(1, len(query))
            title = found[1] if (found := _TITLE.search(page)) else path
            hit = {"title": title, "url": f"{self.url}/{path}", "content": text[:300]}
            hits.append({**hit, "score": score})
        hits.sort(key=lambda hit: float(hit["score"]), reverse=True)
        found_hits = [hit for hit in hits if float(hit["score"]) > 0][:5]
        return web.json_response({"query": "", "results": found_hits, "response_time": 0.01})


@asynccontextmanager
async def served_website(tasks: Sequence[Task]) -> AsyncGenerator[Website]:
    """Context manager: the pages of the tasks are served inside the block."""
    site = Website(tasks)
    app = web.Application()
    app.add_routes([web.post("/search", site.search), web.get("/{path:.*}", site.show_page)])
    async with serve_on_loopback(app, port=0) as site.url:
        yield site
