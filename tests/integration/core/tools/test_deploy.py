"""deploy, from real sandboxes to a stand-in of Cloudflare Pages."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import cast

import pytest

from bots.bootstrap.web_access import build_web_services
from bots.settings import load_settings
from core.ports import FileEntry, Sandbox
from core.tools.catalogue import build_tool_set
from core.tools.tool import prepare_call
from core.web_access.cloudflare import FILE_BYTES_MAX
from core.web_access.services import WebServices
from tests.fakes.cloudflare import ACCOUNT, TOKEN, Pages, cloudflare
from tests.fakes.web_service import Answer, refusal, says
from tests.integration.core.tools.conftest import Bench


@dataclass(frozen=True)
class Growing:
    """A sandbox whose listings say of every file that it is small."""

    inner: Sandbox
    has_fetched: bool = False

    def take_refused_hosts(self) -> tuple[str, ...]:
        return ()

    @property
    def files(self) -> "Growing":
        return self

    def read(self, path: str, *, length: int) -> AsyncIterator[bytes]:
        return self.inner.files.read(path, length=length)

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        listed = await self.inner.files.list(path)
        return tuple(replace(entry, size_bytes=1) for entry in listed)


LOGO = b"\x89PNG\r\n\x1a\n\x00" * 200_000
PLAIN = {"THREADHAND_DATA_DIR": "/nowhere"}


@pytest.fixture
async def pages(bench: Bench) -> AsyncIterator[Pages]:
    async with cloudflare() as account:
        bench.context = replace(bench.context, outside=services(account))
        yield account


def services(account: Pages, token: str = TOKEN) -> WebServices:
    settings = {
        **PLAIN,
        "THREADHAND_CLOUDFLARE_API_TOKEN": token,
        "THREADHAND_CLOUDFLARE_ACCOUNT_ID": ACCOUNT,
        "THREADHAND_CLOUDFLARE_API_URL": account.standing.url,
    }
    made = build_web_services(load_settings(settings, None))
    assert made.sites is not None
    quick = replace(made.sites, api=replace(made.sites.api, pause_seconds=0))
    return replace(made, sites=quick)


async def site(bench: Bench) -> None:
    await bench.put("site/index.html", "<h1>Tides é</h1>".encode())
    await bench.put("site/css/page.css", b"h1 { color: teal }")
    await bench.put("site/logo.png", LOGO)


async def test_a_folder_becomes_a_site(bench: Bench, pages: Pages) -> None:
    await site(bench)
    said = await bench.output("deploy", name="Spring Report!", directory_path="/workspace/site")
    assert "Deployed 3 files as spring-report." in said
    assert "https://spring-report-9x.pages.dev " in said
    assert pages.sites["spring-report"] == {
        "/index.html": ("<h1>Tides é</h1>".encode(), "text/html; charset=utf-8"),
        "/css/page.css": (b"h1 { color: teal }", "text/css; charset=utf-8"),
        "/logo.png": (LOGO, "image/png"),
    }


async def test_what_is_hidden_stays_here_and_rules_are_no_pages(bench: Bench, pages: Pages) -> None:
    await site(bench)
    await bench.put("site/.env", b"KEY=1")
    await bench.put("site/.git/config", b"x")
    await bench.put("site/node_modules/a.js", b"x")
    await bench.put("site/.well-known/security.txt", b"Contact: x")
    await bench.put("site/_redirects", b"/old /new 301")
    await bench.sandbox.shell.execute("ln -s /etc/hostname site/link.txt", session="s", folder=None, timeout_seconds=30)
    await bench.output("deploy", name="report", directory_path="site")
    assert set(pages.sites["report"]) == {"/index.html", "/css/page.css", "/logo.png", "/.well-known/security.txt"}
    assert pages.rules["report"] == {"_redirects": b"/old /new 301"}


async def test_what_cannot_be_deployed_is_told_before_anything_is(bench: Bench, pages: Pages) -> None:
    await bench.put("notes/a.txt", b"x")
    await bench.put("huge/index.html", b"x" * (26 * 1024 * 1024))
    for folder, said in (
        ("notes", "no index.html"),
        ("notes/a.txt", "not a folder"),
        ("gone", "no such file"),
        ("huge", "larger than 25 MB"),
        ("../up", "do not fit"),
    ):
        assert said in await bench.error("deploy", name="x", directory_path=folder)
    assert "letters or digits" in await bench.error("deploy", name="!!!", directory_path="notes")
    assert pages.standing.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(403, {"success": False}), "right to edit Cloudflare Pages"),
        (refusal(400, {"errors": [{"message": "bad name"}]}), "bad name"),
        (says(b'{"success": true, "result": {}}'), "form that is not known"),
        (says(b'{"success": true, "result": {"subdomain": "a b/c"}}'), "form that is not known"),
    ],
)
async def test_errors_say_what_to_do(bench: Bench, pages: Pages, answer: Answer, said: str) -> None:
    await site(bench)
    pages.standing.trouble.append(answer)
    error = await bench.error("deploy", name="report", directory_path="site")
    assert said in error
    assert TOKEN not in error
    assert pages.sites == {}


async def test_a_deployment_that_may_have_happened_is_not_sent_again(bench: Bench, pages: Pages) -> None:
    await site(bench)
    await bench.output("deploy", name="report", directory_path="site")
    pages.standing.asked.clear()
    pages.standing.faults["/deployments"] = refusal(502)
    assert "later" in await bench.error("deploy", name="report", directory_path="site")
    paths = [one.path.rpartition("/")[2] for one in pages.standing.asked]
    assert paths.count("deployments") == 1


def test_people_are_asked_first() -> None:
    prepared = prepare_call("deploy", {"name": "My Site", "directory_path": "out"}, build_tool_set())
    assert prepared.title == "Deploying out as my-site"
    assert prepared.approval == "Put a folder on the public web"
    assert prepared.to_approve().arguments == {"name": "my-site", "directory_path": "out"}


async def test_files_are_not_taken_at_their_word_for_their_size(bench: Bench, pages: Pages) -> None:
    await site(bench)
    for number in range(3):
        await bench.put(f"site/{number}.bin", bytes(FILE_BYTES_MAX))
    growing = Growing(await bench.context.sandbox())

    async def sandbox() -> Sandbox:
        return cast(Sandbox, growing)

    bench.context = replace(bench.context, sandbox=sandbox)
    said = await bench.error("deploy", name="report", directory_path="site")
    assert "2.bin has grown meanwhile" in said
    assert pages.sites == {}
