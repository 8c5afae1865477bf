"""The data providers as a run calls them, against a gateway on this machine."""

import json
from collections.abc import AsyncIterator
from typing import get_args

import pytest
from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.ports import Sandbox
from core.tools.catalogue import build_tool_set
from core.tools.tool import ToolContext, prepare_call
from core.web_access.providers import Provider, RapidApi, load_provider_endpoints
from core.web_access.services import WebServices
from tests.fakes.rapidapi import KEY, RAPIDAPI
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.web_service import Answer, FakeWebService, fake_web_service, refusal
from tests.support.narrow import require_type

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
