"""The tools of the web as a run calls them: web_search, scrape_webpage, and the data providers."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, get_args

import pytest
from pydantic import JsonValue

from bots.bootstrap.web_access import build_toolbox, build_web_services
from bots.settings import load_settings
from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.ports import Sandbox
from core.tools.catalogue import build_tool_set
from core.tools.tool import ToolContext, prepare_call
from core.web_access.providers import Provider, RapidApi, load_provider_endpoints
from core.web_access.services import WebServices
from tests.fakes import pages, search_engines
from tests.fakes.pages import ARTICLE
from tests.fakes.rapidapi import KEY, RAPIDAPI
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.web_service import Answer, FakeWebService, fake_web_service, refusal, says
from tests.support.narrow import require_type


class Web:
    """A site and the services on this machine, and a run's context made from settings alone."""

    def __init__(self, site: FakeWebService, services: FakeWebService) -> None:
        self.site = site
        self.services = services
        self.sandboxes = MemorySandboxes()
        self.has_sandbox = True
        self.outside = WebServices()
        self.results = dict[str, object]()

    def set_up(self, **more: str) -> None:
        settings = {
            "THREADHAND_DATA_DIR": "/nowhere",
            "THREADHAND_FETCH_ALLOW": f"127.0.0.1:{self.site.port}",
            "THREADHAND_SEARCH_URL": f"{self.services.url}/html",
            "THREADHAND_TAVILY_API_URL": self.services.url,
            "THREADHAND_FIRECRAWL_API_URL": self.services.url,
        }
        self.outside = build_web_services(load_settings({**settings, **more}, None))

    async def call(self, name: str, **arguments: JsonValue) -> CallOutcome:
        async def opened() -> Sandbox:
            if not self.has_sandbox:
                raise SandboxUnavailable("There is no sandbox.")
            return await self.sandboxes.open("t", fence=1)

        context = ToolContext(thread_id="t", run_id="r", sandbox=opened, outside=self.outside, web_results=self.results)
        prepared = prepare_call(name, arguments, build_toolbox(self.outside, has_sandbox=True, has_browser=False))
        return await execute_call(ToolCall(call_id="c", name=name, arguments=arguments), prepared, context)

    async def output(self, name: str, **arguments: JsonValue) -> Any:
        outcome = await self.call(name, **arguments)
        assert outcome.outcome == "completed", outcome.result
        return outcome.result["output"]

    async def error(self, name: str, **arguments: JsonValue) -> str:
        outcome = await self.call(name, **arguments)
        assert outcome.outcome == "failed", outcome.result
        return str(outcome.result["error"])


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    routes = [*search_engines.TAVILY, *search_engines.DUCKDUCKGO, *pages.FIRECRAWL]
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(fake_web_service(pages.PAGES))
        services = await stack.enter_async_context(fake_web_service(routes))
        made = Web(site, services)
        made.set_up()
        yield made


async def test_a_search_with_a_key_gives_all_that_is_promised(web: Web) -> None:
    web.set_up(THREADHAND_TAVILY_API_KEY=search_engines.KEY)
    found = await web.output("web_search", query="population of Oslo", num_results=2)
    assert list(found) == ["query", "answer", "images", "results", "response_time"]
    assert (found["query"], found["response_time"]) == ("population of Oslo", 1.23)
    assert found["images"][0] == "https://example.org/oslo.jpg"
    assert list(found["results"][0]) == ["title", "url", "content", "score"]
    assert found["results"][0]["score"] == 0.92


async def test_a_search_needs_no_key(web: Web) -> None:
    found = await web.output("web_search", query="Oslo")
    assert found["results"][0]["url"] == "https://example.org/oslo?a=1&b=2"
    assert (found["answer"], found["images"]) == ("", [])


async def test_what_strangers_wrote_is_marked_as_data(web: Web) -> None:
    web.set_up(THREADHAND_TAVILY_API_KEY=search_engines.KEY)
    found = await web.output("web_search", query="Oslo")
    for text in (found["answer"], *(one["content"] for one in found["results"])):
        assert text.startswith('<data mark="')
        assert text.endswith('">')
    read = await web.output("scrape_webpage", urls=f"{web.site.url}/article")
    assert f'source="{web.site.url}/article">\n' in read


async def test_the_same_search_or_page_is_not_asked_for_twice_in_a_run(web: Web) -> None:
    page = f"{web.site.url}/article"
    for name, arguments, service in (
        ("web_search", {"query": "Oslo", "after": "2026-01-31"}, web.services),
        ("scrape_webpage", {"urls": page}, web.site),
    ):
        first, again = [await web.output(name, **arguments) for _ in range(2)]
        assert "already read in this run" not in str(first)
        assert "already read in this run" in str(again)
        assert again.endswith(first) if isinstance(first, str) else {**again, **first} == again
        assert len(service.asked) == 1
    web.site.trouble.append(refusal(403))
    assert "does not let programs in" in await web.error("scrape_webpage", urls=f"{page}?new")
    assert "thirty centimetres" in await web.output("scrape_webpage", urls=f"{page}?new")
    other = await web.output("web_search", query="Oslo")
    assert "note" not in other
    assert "dates" not in other


async def test_several_pages_are_read_at_once_and_one_that_fails_keeps_none_back(web: Web) -> None:
    urls = f"{web.site.url}/article, {web.site.url}/gone,{web.site.url}/article?lang=en,de"
    read = await web.output("scrape_webpage", urls=urls)
    assert read.count("thirty centimetres") == 2
    assert f"{web.site.url}/gone answers 404" in read
    assert {asked.path for asked in web.site.asked} == {"/article", "/gone"}
    assert {"lang": "en,de"} in [asked.query for asked in web.site.asked]


async def test_a_closed_place_is_not_read(web: Web) -> None:
    assert "public internet" in await web.error(
        "scrape_webpage", urls=f"http://localhost:{web.services.port}/html/?q=1"
    )
    assert web.services.asked == []


async def test_what_is_too_long_is_kept_whole_in_the_workspace(web: Web) -> None:
    long = ARTICLE.replace("<h2>", "<p>" + "Depth and height. " * 4000 + "The last word.</p><h2>")
    web.site.trouble.append(says(long.encode(), "text/html"))
    read = await web.output("scrape_webpage", urls=f"{web.site.url}/article")
    found = re.search(r"characters more are left out; all of it is in (scrape/127-0-0-1-article-\w+\.md)\]$", read)
    assert found
    assert len(read) < 52_000
    content = web.sandboxes.machines["t"].content
    assert b"The last word." in content[found[1]]
    # another page whose address differs only in its query
    web.site.trouble.append(says(long.replace("The last word.", "The end.").encode(), "text/html"))
    other = await web.output("scrape_webpage", urls=f"{web.site.url}/article?page=2")
    assert found[1] not in other
    assert b"The last word." in content[found[1]]
    web.has_sandbox = False
    web.site.trouble.append(says(long.encode(), "text/html"))
    assert (await web.output("scrape_webpage", urls=f"{web.site.url}/article?again")).endswith("left out]")


async def test_firecrawl_reads_where_it_has_a_key(web: Web) -> None:
    web.set_up(THREADHAND_FIRECRAWL_API_KEY=pages.KEY)
    assert "# Tides" in await web.output("scrape_webpage", urls=f"{web.site.url}/article")
    assert web.site.asked == []


@pytest.mark.parametrize("urls", ["", " , ", ",".join(f"http://e.example/{n}" for n in range(11))])
async def test_no_address_or_too_many_are_refused_before_anything_is_read(web: Web, urls: str) -> None:
    with pytest.raises(ToolError, match="do not fit"):
        prepare_call("scrape_webpage", {"urls": urls}, build_toolbox(web.outside, has_sandbox=False, has_browser=False))


NAMES = get_args(Provider)


@pytest.fixture
async def gateway() -> AsyncIterator[FakeWebService]:
    async with fake_web_service(RAPIDAPI) as standing:
        yield standing


def providers(gateway: FakeWebService, key: str = KEY) -> RapidApi:
    return RapidApi(key=key, url=gateway.url, seconds_max=5, pause_seconds=0)


async def call(api: RapidApi | None, name: str, machines: MemorySandboxes, arguments: JsonObject) -> CallOutcome:
    async def opened() -> Sandbox:
        return await machines.open("t", fence=1)

    context = ToolContext(thread_id="t", run_id="r", sandbox=opened, outside=WebServices(providers=api))
    prepared = prepare_call(name, arguments, build_tool_set())
    return await execute_call(ToolCall(call_id="c", name=name, arguments=arguments), prepared, context)


async def asked(
    gateway: FakeWebService, service: str, route: str, payload: dict[str, JsonValue], key: str = KEY
) -> CallOutcome:
    arguments: JsonObject = {"service_name": service, "route": route, "payload": payload}
    api = providers(gateway, key)
    return await call(api, "execute_data_provider_call", MemorySandboxes(), arguments)


CALLS: list[tuple[str, str, dict[str, JsonValue], dict[str, JsonValue]]] = [
    ("linkedin", "person", {"link": "https://x"}, {"link": "https://x"}),
    ("twitter", "user_info", {"screenname": "a"}, {"screenname": "a"}),
    ("twitter", "/screenname.php", {"screenname": "a"}, {"screenname": "a"}),
    ("zillow", "search", {"location": "Houston", "page": 2}, {"location": "Houston", "page": "2"}),
    ("amazon", "search", {"query": "a b&c", "is_prime": True}, {"query": "a b&c", "is_prime": "true"}),
    ("yahoo_finance", "get_quote", {"ticker": "AAPL", "type": None}, {"ticker": "AAPL"}),
    ("active_jobs", "active_jobs", {"limit": 10}, {"limit": "10"}),
]


@pytest.mark.parametrize(("service", "route", "payload", "arrives"), CALLS)
async def test_each_provider_is_asked_at_its_host(
    gateway: FakeWebService, service: Provider, route: str, payload: dict[str, JsonValue], arrives: JsonObject
) -> None:
    outcome = await asked(gateway, service, route, payload)
    assert outcome.outcome == "completed", outcome.result
    output = str(outcome.result["output"])
    assert output.startswith('<data mark="')
    told = json.loads(output.split("\n", 1)[1].rsplit("\n", 1)[0])
    assert told == {"host": load_provider_endpoints(service).host, "given": arrives}


@pytest.mark.parametrize("name", NAMES)
async def test_the_endpoints_of_a_provider_are_listed(gateway: FakeWebService, name: str) -> None:
    outcome = await call(providers(gateway), "get_data_provider_endpoints", MemorySandboxes(), {"service_name": name})
    listed = require_type(outcome.result["output"], dict)
    endpoints = require_type(listed["endpoints"], dict)
    for route, one in endpoints.items():
        assert isinstance(one, dict)
        assert set(one) == {"route", "method", "name", "description", "payload"}
        assert one["route"] == route
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("service", "route", "payload", "said"),
    [
        ("twitter", "nothing", {}, "has no route 'nothing'. It has: user_info"),
        ("twitter", "../admin", {}, "has no route"),
        ("twitter", "user_info", {"name": "a"}, "knows no parameter name. It knows: screenname"),
        ("twitter", "user_info", {"screenname": ["a"]}, "a single value"),
        ("twitter", "user_info", {"screenname": "a" * 3000}, "longer than"),
    ],
)
async def test_what_does_not_exist_there_is_told_before_anything_is_asked(
    gateway: FakeWebService, service: str, route: str, payload: dict[str, JsonValue], said: str
) -> None:
    assert said in str((await asked(gateway, service, route, payload)).result["error"])
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(403, {"message": "You are not subscribed to this API."}), "subscribed to at RapidAPI"),
        (refusal(402), "used up"),
        (refusal(404, {"message": "no such person"}), "no such person"),
    ],
)
async def test_errors_say_what_to_do(gateway: FakeWebService, answer: Answer, said: str) -> None:
    gateway.trouble.append(answer)
    error = str((await asked(gateway, "twitter", "user_info", {"screenname": "a"})).result["error"])
    assert said in error
    assert KEY not in error


async def test_a_wrong_key_is_told_without_it(gateway: FakeWebService, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await asked(gateway, "twitter", "user_info", {}, key="rapid-wrong-0987654321")
    assert "does not accept the key" in str(outcome.result["error"])
    assert "0987654321" not in str(outcome.result) + caplog.text + repr(providers(gateway, "rapid-wrong-0987654321"))
