"""Links that have expired, are used, or are wrong: people see a page that says what to do, programs get JSON."""

import re
import time

import pytest

from bots.web.links import sign_file_link
from core.domain.ids import new_id
from tests.integration.bots.web.stage import Stage

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def page(stage: Stage, path: str, status: int) -> str:
    """The page's text, as lines."""
    async with stage.http.get(path, headers=BROWSER) as response:
        assert response.status == status
        assert response.content_type == "text/html"
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert response.headers["Cache-Control"] == "no-store"
        text = await response.text()
    assert "<script" not in text
    body = text.partition("<body>")[2]
    return "\n".join(line.strip() for line in re.sub(r"<[^>]+>", "", body).split("\n") if line.strip())


async def test_an_expired_file_link_says_how_to_get_a_new_one(stage: Stage) -> None:
    url = sign_file_link(stage.ports.links.secret, "", "s", "a", expires_at=time.time() - 1)
    assert await page(stage, url, 410) == (
        "This link has expired\nIt has expired: links work for a limited time.\n"
        "Write to the agent in the thread where you found the link, and ask for a new one."
    )


@pytest.mark.parametrize("path", ["/files/x.y", "/preview/x.y/", "/takeover/x.y", "/nothing", "/files/%3Cb%3E"])
async def test_a_wrong_link_is_no_raw_json_for_people(stage: Stage, path: str) -> None:
    text = await page(stage, path, 404)
    assert text.startswith("Nothing is here\n")
    assert "ask for a new one" in text


async def test_a_file_that_is_gone_says_so(stage: Stage) -> None:
    lease = await stage.claimed(await stage.send(await stage.thread()))
    await stage.give_sandbox(lease)
    secret, soon = stage.ports.links.secret, time.time() + 60
    url = sign_file_link(secret, "", lease.thread_id, "no.txt", expires_at=soon)
    assert (await page(stage, url, 404)).startswith("This file is not here\n")


async def test_a_link_without_its_sandbox_can_be_tried_later(stage: Stage) -> None:
    lease = await stage.claimed(await stage.send(await stage.thread()))
    secret, soon = stage.ports.links.secret, time.time() + 60
    url = sign_file_link(secret, "", lease.thread_id, "a.txt", expires_at=soon)
    async with stage.http.get(url, headers=BROWSER) as response:
        assert response.status in {404, 503}
        assert response.content_type == "text/html"


async def test_the_api_stays_json_whatever_is_accepted(stage: Stage) -> None:
    for path in (f"/api/thread/{new_id()}", "/api/nothing"):
        async with stage.http.get(path, headers=BROWSER) as response:
            assert response.content_type == "application/json"
    async with stage.http.get("/files/x.y") as response:
        assert response.content_type == "application/json"
    async with stage.http.post("/files/x.y", headers=BROWSER) as response:
        assert response.content_type == "application/json"
