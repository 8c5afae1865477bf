"""Pages of a workspace over HTTP: shown with their neighbours, and with no power over anything else."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from playwright.async_api import expect
from yarl import URL

from bots.settings import load_settings
from bots.web import health
from bots.web.errors import ApiError
from bots.web.links import SignedLinks, load_link_secret, verify_file_link, verify_preview_link
from bots.web.sandbox_files import content_type
from core.domain.errors import ConfigurationError
from core.domain.ids import new_id
from tests.chaos.disks import MEBIBYTE, small_disk
from tests.support.page_browser import window
from tests.support.web_stage import Stage

SECRET = b"k" * 32
STAGE_LINKS = SignedLinks(b"s" * 32, "/")
"""Links of the stage, without its address."""
SITE = {
    "site/index.html": b"<script src='app.js'></script>",
    "site/app.js": b"1",
    "site/a b/é.css": b"p {}",
    "site/.env": b"secret",
    ".hidden/x": b"secret",
    "notes.md": b"# x",
    "data": b"\x00",
}


async def site(stage: Stage, *, path: str = "site/index.html", late: float = 60) -> str:
    lease = await stage.begun()
    await stage.give_sandbox(lease)
    stage.sandboxes.contents[lease.thread_id] = dict(SITE)
    expires_at = time.time() + late
    return str(STAGE_LINKS.page_preview_url(lease.thread_id, path, expires_at=expires_at))


@dataclass(frozen=True)
class Shown:
    status: int
    body: bytes
    headers: Mapping[str, str]
    path: str


async def get(stage: Stage, path: str, *, follows: bool = True) -> Shown:
    """The path goes out to the letter."""
    base = str(stage.http._base_url).rstrip("/")
    url = URL(f"{base}/{path.removeprefix('/')}", encoded=True)
    async with stage.http.get(url, allow_redirects=follows) as response:
        body = await response.read()
        return Shown(response.status, body, response.headers, response.url.path)


async def test_a_page_is_shown_with_its_neighbours(stage: Stage) -> None:
    url = await site(stage)
    page = await get(stage, url)
    assert page.body == SITE["site/index.html"]
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Content-Disposition" not in page.headers
    script = await get(stage, url.replace("index.html", "app.js"))
    kind = script.headers["Content-Type"]
    assert (script.body, kind) == (b"1", "text/javascript; charset=utf-8")
    style = await get(stage, url.replace("index.html", "a%20b/%C3%A9.css"))
    assert (style.status, style.body) == (200, b"p {}")


async def test_a_page_has_an_origin_of_its_own_and_tells_nobody_where_it_is(stage: Stage) -> None:
    url = await site(stage)
    for path in (url, url.replace("index.html", "app.js"), url.removesuffix("/index.html")):
        headers = (await get(stage, path, follows=False)).headers
        policy = headers["Content-Security-Policy"]
        assert policy == ("sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in headers


async def test_a_part_of_a_file_is_sent_as_a_part(stage: Stage) -> None:
    url = await site(stage)
    (contents,) = stage.sandboxes.contents.values()
    whole = contents["site/film.mp4"] = bytes(range(256))
    film = url.replace("index.html", "film.mp4")
    for asked, span in (("bytes=0-9", (0, 10)), ("bytes=250-", (250, 256)), ("bytes=-6", (250, 256))):
        async with stage.http.get(film, headers={"Range": asked}) as response:
            assert response.status == 206
            assert await response.read() == whole[slice(*span)]
            shown = f"bytes {span[0]}-{span[1] - 1}/256"
            assert response.headers["Content-Range"] == shown
            etag = response.headers["ETag"]
    async with stage.http.get(film, headers={"Range": "bytes=300-"}) as response:
        assert (response.status, response.headers["Content-Range"]) == (416, "bytes */256")
    for ignored in ("bytes=0-1,4-5", "lines=1-2", "bytes=9-2", "x"):
        async with stage.http.get(film, headers={"Range": ignored}) as response:
            assert (response.status, await response.read()) == (200, whole)
    for validator, status in ((etag, 206), ('"other"', 200)):
        headers = {"Range": "bytes=0-9", "If-Range": validator}
        async with stage.http.get(film, headers=headers) as response:
            assert response.status == status


@pytest.mark.parametrize("asked", ["site", "site/", "site/index.html"])
async def test_a_folder_is_its_index(stage: Stage, asked: str) -> None:
    shown = await get(stage, await site(stage, path=asked))
    assert shown.body == SITE["site/index.html"]
    assert shown.path.endswith(("/site/", "/site/index.html"))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("../../etc/passwd", 400),
        ("%2e%2e/%2e%2e/etc/passwd", 400),
        ("..%2f..%2fetc%2fpasswd", 400),
        ("%2fetc%2fpasswd", 400),
        ("site%2f..%2f..%2fx", 400),
        ("a%00b", 400),
        ("x" * 5000, 400),
        ("site/.env", 404),
        (".hidden/x", 404),
        ("nowhere.html", 404),
        ("nowhere/", 404),
        ("site/app.js/", 404),
    ],
)
async def test_no_path_leads_out(stage: Stage, path: str, status: int) -> None:
    response = await get(stage, (await site(stage, path="")) + path)
    assert response.status == status
    assert b"secret" not in response.body


async def test_an_expired_or_forged_preview_shows_nothing(stage: Stage) -> None:
    expired = await site(stage, late=-1)
    assert (await stage.json("GET", expired, status=410))["error"] == "link_expired"
    assert (await get(stage, "/preview/W10.W10/index.html")).status == 404
    foreign = str(SignedLinks(b"other", "/").page_preview_url(new_id(), "a"))
    assert (await get(stage, foreign)).status == 404


def test_a_token_for_one_purpose_is_none_for_the_other() -> None:
    links = SignedLinks(SECRET, "/")
    file = str(links.file_url("s", "a", expires_at=1000)).split("/")[2]
    preview = str(links.page_preview_url("s", "a", expires_at=1000)).split("/")[2]
    with pytest.raises(ApiError, match="not one of ours"):
        verify_preview_link(SECRET, file, now=0)
    with pytest.raises(ApiError, match="not one of ours"):
        verify_file_link(SECRET, preview, now=0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("A.HTM", "text/html; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.woff2", "font/woff2"),
        ("a.tar.gz", "application/octet-stream"),
        ("out.d/noending", "application/octet-stream"),
    ],
)
def test_a_file_is_sent_as_what_it_is(path: str, expected: str) -> None:
    assert content_type(path) == expected


def test_where_nobody_can_reach_a_server_there_are_no_links() -> None:
    links = SignedLinks(b"s" * 32, "", "")
    assert links.file_url("t-1", "a") is None
    assert links.page_preview_url("t-1", "a") is None
    assert links.takeover_url("t-1") is None


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    short = "short-but-secret"
    with pytest.raises(ConfigurationError, match="THREADHAND_LINK_SECRET") as caught:
        load_settings({"THREADHAND_LINK_SECRET": short}, None)
    assert "openssl rand -hex 32" in str(caught.value)
    assert short not in str(caught.value)


def test_a_full_disk_is_told_in_one_line_and_keeps_no_half_secret() -> None:
    with small_disk(MEBIBYTE) as disk:
        folder = disk.folder / "data"
        folder.mkdir()
        disk.fill()
        with pytest.raises(ConfigurationError, match="No space left on device"):
            load_link_secret(folder)
        assert list(folder.iterdir()) == []
        disk.clear()
        assert load_link_secret(folder) == load_link_secret(folder)


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
    url = str(STAGE_LINKS.file_url("s", "a", expires_at=time.time() - 1))
    assert await page(stage, url, 410) == (
        "This link has expired\nIt has expired: links work for a limited time.\n"
        "Write to the agent in the thread where you found the link, and ask for a new one."
    )


@pytest.mark.parametrize("path", ["/files/x.y", "/preview/x.y/", "/nothing"])
async def test_a_wrong_link_is_no_raw_json_for_people(stage: Stage, path: str) -> None:
    text = await page(stage, path, 404)
    assert text.startswith("Nothing is here\n")
    assert "ask for a new one" in text


async def test_a_file_that_is_known_is_not_sent_again(stage: Stage) -> None:
    url = await site(stage)
    async with stage.http.head(url) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.content_length == len(SITE["site/index.html"])
        etag = response.headers["ETag"]
    async with stage.http.get(url, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (304, b"")
        assert "sandbox" in response.headers["Content-Security-Policy"]
    (contents,) = stage.sandboxes.contents.values()
    contents["site/index.html"] = b"changed"
    async with stage.http.get(url, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (200, b"changed")


PAGE = b"""<!doctype html><title>Report</title><link rel="stylesheet" href="style.css">
<h1>Report</h1><script type="module" src="js/app.js"></script>"""
SCRIPT = b"""
import { word } from './part.js';
const tried = {};
async function attempt(name, work) {
  try { tried[name] = String(await work()); } catch (error) { tried[name] = 'refused'; }
}
const api = new URL('/api/thread', document.baseURI);
await attempt('module', () => word);
await attempt('data', async () => (await (await fetch('data.json')).json()).answer);
await attempt('origin', () => self.origin);
await attempt('storage', () => localStorage.length);
await attempt('cookie', () => document.cookie);
await attempt('read', () => fetch(api.href + '/x'));
await attempt('write', async () => (await fetch(api, { method: 'POST' })).status);
await attempt('blind', () => fetch(api, { method: 'POST', mode: 'no-cors' }).then(() => 'sent'));
document.body.dataset.tried = JSON.stringify(tried);
document.body.append('ready');
"""


def answers(stage: Stage, status: int) -> float:
    """How many requests for a new thread were answered so."""
    labels = {"method": "POST", "route": "/api/thread", "status": str(status)}
    registry = stage.app[health.MONITORING].metrics.registry
    return registry.get_sample_value("threadhand_http_requests_total", labels) or 0


async def test_a_page_has_its_neighbours_and_nothing_else(stage: Stage) -> None:
    lease = await stage.begun()
    await stage.give_sandbox(lease)
    stage.sandboxes.contents[lease.thread_id] = {
        "site/index.html": PAGE,
        "site/style.css": b"h1 { color: rgb(1, 2, 3) }",
        "site/js/app.js": SCRIPT,
        "site/js/part.js": b"export const word = 'imported';",
        "site/data.json": b'{"answer": 42}',
    }
    made_before = answers(stage, 201)
    base = str(stage.http._base_url).rstrip("/")
    url = str(SignedLinks(stage.ports.links.secret, base).page_preview_url(lease.thread_id, "site"))
    async with window(url) as reader:
        await expect(reader.page.get_by_text("ready")).to_be_visible()
        heading = reader.page.get_by_role("heading", name="Report")
        await expect(heading).to_have_css("color", "rgb(1, 2, 3)")
        tried = json.loads(str(await reader.page.locator("body").get_attribute("data-tried")))
    assert tried.pop("blind") in ("sent", "refused")
    assert tried == {
        "module": "imported",
        "data": "42",
        "origin": "null",
        "storage": "refused",
        "cookie": "refused",
        "read": "refused",
        "write": "refused",
    }
    assert answers(stage, 201) == made_before
    assert answers(stage, 403) >= 1
