"""Pages of a workspace over HTTP: shown with their neighbours, and with no power over anything else."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from bots.settings import load_settings
from bots.web.errors import ApiError
from bots.web.links import SignedLinks, load_link_secret, local_server_url, verify_file_link, verify_preview_link
from bots.web.sandbox_files import content_type
from core.domain.errors import ConfigurationError
from core.domain.ids import new_id
from tests.chaos.disks import MEBIBYTE, small_disk
from tests.support.narrow import require
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
    lease = await stage.claimed(await stage.send(await stage.thread()))
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


async def test_a_page_cannot_reach_the_open_api(stage: Stage) -> None:
    for headers in ({"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await stage.json("POST", "/api/thread", headers=headers, status=403)
        assert answer["error"] == "forbidden"


@pytest.mark.parametrize("asked", ["site", "site/", "site/index.html"])
async def test_a_folder_is_its_index(stage: Stage, asked: str) -> None:
    shown = await get(stage, await site(stage, path=asked))
    assert shown.body == SITE["site/index.html"]
    assert shown.path.endswith(("/site/", "/site/index.html"))


async def test_a_token_alone_shows_the_index_of_the_workspace(stage: Stage) -> None:
    url = (await site(stage, path="")).rstrip("/")
    moved = await get(stage, url, follows=False)
    assert (moved.status, moved.headers["Location"]) == (302, f"./{url.rpartition('/')[2]}/")
    assert (await get(stage, url)).status == 404
    (contents,) = stage.sandboxes.contents.values()
    contents["index.html"] = b"hello"
    assert (await get(stage, url)).body == b"hello"


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


@given(st.text(), st.integers(0, 10_000), st.data())
def test_a_preview_opens_as_signed_and_no_changed_one_does(path: str, late: int, data: Any) -> None:
    url = str(SignedLinks(SECRET, "https://x.example/base/").page_preview_url("s", path, expires_at=1000))
    assert url.isascii()
    token = url.removeprefix("https://x.example/base/preview/").partition("/")[0]
    if late <= 1000:
        assert verify_preview_link(SECRET, token, now=late) == "s"
    else:
        with pytest.raises(ApiError, match="expired"):
            verify_preview_link(SECRET, token, now=late)
    at = data.draw(st.integers(0, token.index(".") - 1))
    changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
    with pytest.raises(ApiError, match="not one of ours"):
        verify_preview_link(SECRET, changed, now=0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.html", "text/html; charset=utf-8"),
        ("A.HTM", "text/html; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.woff2", "font/woff2"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.pdf", "application/pdf"),
        ("README", "application/octet-stream"),
        ("a.tar.gz", "application/octet-stream"),
        ("a.unknown", "application/octet-stream"),
        ("out.d/noending", "application/octet-stream"),
    ],
)
def test_a_file_is_sent_as_what_it_is(path: str, expected: str) -> None:
    assert content_type(path) == expected


def test_links_hold_for_a_week() -> None:
    links = SignedLinks(SECRET, "https://x.example")
    url = links.page_preview_url("s", "a b/index.html") or ""
    assert url.endswith("/a%20b/index.html")
    token = url.split("/")[4]
    assert verify_preview_link(SECRET, token, now=time.time() + 6.9 * 86400) == "s"
    with pytest.raises(ApiError):
        verify_preview_link(SECRET, token, now=time.time() + 7.1 * 86400)
    assert (links.file_url("s", "a") or "").startswith("https://x.example/files/")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:8700"),
        ("0.0.0.0", "http://127.0.0.1:8700"),  # noqa: S104 - a setting, not a socket
        ("::", "http://[::1]:8700"),
        ("fd00::1", "http://[fd00::1]:8700"),
        ("agent.example", "http://agent.example:8700"),
    ],
)
def test_a_local_address_can_be_opened(host: str, expected: str) -> None:
    assert local_server_url(host, 8700) == expected


SHARED = "0123456789abcdef" * 2


def test_a_link_that_one_machine_makes_opens_at_another(tmp_path: Path) -> None:
    there, here = (load_link_secret(tmp_path / "there", SHARED), load_link_secret(tmp_path / "here", SHARED))
    links = SignedLinks(there, "https://agent.example.org", "")
    link = require(links.file_url("t-1", "report.md"))
    assert verify_file_link(here, link.rpartition("/")[2]) == ("t-1", "report.md")
    assert not list(tmp_path.iterdir()), "a secret that is given is kept nowhere"


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


@pytest.mark.parametrize("path", ["/files/x.y", "/preview/x.y/", "/takeover/x.y", "/nothing", "/files/%3Cb%3E"])
async def test_a_wrong_link_is_no_raw_json_for_people(stage: Stage, path: str) -> None:
    text = await page(stage, path, 404)
    assert text.startswith("Nothing is here\n")
    assert "ask for a new one" in text


async def test_a_file_that_is_gone_says_so(stage: Stage) -> None:
    lease = await stage.claimed(await stage.send(await stage.thread()))
    await stage.give_sandbox(lease)
    url = str(STAGE_LINKS.file_url(lease.thread_id, "no.txt"))
    assert (await page(stage, url, 404)).startswith("This file is not here\n")


async def test_the_api_stays_json_whatever_is_accepted(stage: Stage) -> None:
    for path in (f"/api/thread/{new_id()}", "/api/nothing"):
        async with stage.http.get(path, headers=BROWSER) as response:
            assert response.content_type == "application/json"
    async with stage.http.get("/files/x.y") as response:
        assert response.content_type == "application/json"
    async with stage.http.post("/files/x.y", headers=BROWSER) as response:
        assert response.content_type == "application/json"
