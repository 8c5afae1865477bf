"""Searching with a key and without one, against services that answer as the real ones do."""

import json
import logging
from collections.abc import AsyncIterator
from datetime import date

import pytest

from core.domain.errors import ToolError
from core.web_access.client import ServiceApi
from core.web_access.search import KeylessSearch, Tavily
from tests.fakes.search_engines import DUCKDUCKGO, KEY, NOT_LET_IN, TAVILY
from tests.fakes.web_service import Answer, FakeWebService, endless, fake_web_service, moved, refusal, says, silent


@pytest.fixture
async def engine() -> AsyncIterator[FakeWebService]:
    async with fake_web_service([*TAVILY, *DUCKDUCKGO]) as standing:
        yield standing


def tavily(engine: FakeWebService, *, key: str = KEY, seconds_max: float = 20) -> Tavily:
    return Tavily(
        ServiceApi(
            name="Tavily",
            url=engine.url,
            headers={"Authorization": f"Bearer {key}"},
            seconds_max=seconds_max,
            bytes_max=1_000_000,
            pause_seconds=0,
        )
    )


def keyless(engine: FakeWebService) -> KeylessSearch:
    return KeylessSearch(ServiceApi(name="The search", url=f"{engine.url}/html", pause_seconds=0))


async def test_the_search_without_a_key_reads_the_results_page(engine: FakeWebService) -> None:
    found = await keyless(engine).search("Oslo?", results_max=20)
    assert [(hit.title, hit.url, hit.content) for hit in found.hits] == [
        ("Oslo & around", "https://example.org/oslo?a=1&b=2", "Oslo has 724 290 inhabitants."),
        ("Second", "https://example.org/second", "More."),
    ]
    assert found.hits[0].score > found.hits[1].score > 0
    assert (found.answer, found.images) == ("", ())
    assert engine.asked[0].query == {"q": "Oslo?"}


async def test_a_range_of_dates_is_asked_for_where_the_service_takes_one(engine: FakeWebService) -> None:
    days = {"after": date(2026, 1, 31), "before": None}
    assert (await tavily(engine).search("x", results_max=1, **days)).note == ""
    body = json.loads(engine.asked[-1].body)
    assert (body["start_date"], "end_date" in body) == ("2026-01-31", False)
    await tavily(engine).search("x", results_max=1, before=date(2026, 2, 1))
    assert json.loads(engine.asked[-1].body)["end_date"] == "2026-02-01"
    assert "takes no dates" in (await keyless(engine).search("x", results_max=1, **days)).note
    assert (await keyless(engine).search("x", results_max=1)).note == ""


async def test_a_search_that_lets_nobody_in_says_so(engine: FakeWebService) -> None:
    engine.trouble.append(says(NOT_LET_IN.encode(), "text/html"))
    with pytest.raises(ToolError, match="takes no more requests"):
        await keyless(engine).search("x", results_max=5)


@pytest.mark.parametrize(
    "page",
    [
        b'<a class="result__a" href="http://[x/?uddg=1">a</a>',
        b'<a class="result__a">no address</a>',
        b'<a class="result__a" href="javascript:alert(1)">a</a>',
        b"\xff\xfe\x00" * 1000,
        b"<div " * 50_000,
        b'<a class="result__a" href="https://x.example/">' * 1,
    ],
)
async def test_a_hostile_results_page_breaks_nothing(engine: FakeWebService, page: bytes) -> None:
    engine.trouble.append(says(page, "text/html"))
    found = await keyless(engine).search("x", results_max=5)
    assert all(hit.url.startswith("https://") for hit in found.hits)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401), "does not accept the key"),
        (refusal(402), "plan at Tavily is used up"),
        (refusal(429, Retry_After="120"), "in 120 s"),
        (refusal(400, {"detail": f"bad query, key {KEY}"}), "refused the request"),
        (moved("https://elsewhere.example/"), "refused the request"),
        (silent, "did not answer within"),
        (says(b"{broken"), "cannot be read"),
        (says(b"[" * 100_000), "cannot be read"),
        (says(b'{"results": 5}'), "form that is not known"),
        (says(b'{"results": [{"title": "no address"}]}'), "form that is not known"),
        (says(b'{"results": [{"url": "https://x", "score": NaN}]}'), "form that is not known"),
        (endless, "Ask for less"),
    ],
)
async def test_an_error_says_what_to_do_and_keeps_the_key(
    engine: FakeWebService, answer: Answer, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    engine.trouble.append(answer)
    with pytest.raises(ToolError) as raised:
        await tavily(engine, seconds_max=2 if answer is silent else 20).search("x", results_max=5)
    assert said in str(raised.value)
    assert KEY not in str(raised.value) + caplog.text
    assert len(engine.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_once_more(engine: FakeWebService, status: int) -> None:
    engine.trouble.append(refusal(status, Retry_After="0.01"))
    assert (await tavily(engine).search("x", results_max=5)).hits
    assert len(engine.asked) == 2
    engine.trouble.extend([refusal(status)] * 2)
    with pytest.raises(ToolError, match="later"):
        await tavily(engine).search("x", results_max=5)
    assert len(engine.asked) == 4


async def test_a_wrong_key_is_told_without_it(engine: FakeWebService) -> None:
    with pytest.raises(ToolError, match="Only the operator") as raised:
        await tavily(engine, key="tvly-wrong-key-9").search("x", results_max=5)
    assert "wrong-key" not in str(raised.value)


async def test_a_service_that_is_not_there_is_told() -> None:
    async with fake_web_service([]) as gone:
        pass
    with pytest.raises(ToolError, match="cannot be reached"):
        await tavily(gone).search("x", results_max=5)
