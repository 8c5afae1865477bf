"""Reading pages, with Firecrawl and without, and pictures made fit for a model."""

import io
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from PIL import Image

from core.domain.errors import ToolError
from core.web_access.client import ServiceApi
from core.web_access.guard import AddressGuard
from core.web_access.pages import CHILD_LIMITS, Firecrawl, LocalReader
from core.web_access.pictures import SHOWN_BYTES_MAX, prepare_picture
from tests.fakes import made_pictures as made
from tests.fakes.pages import ARTICLE, FIRECRAWL, KEY, PAGES, scrape
from tests.fakes.web_service import Answer, FakeWebService, fake_web_service, refusal, says
from tests.support.made_files import pdf


@pytest.fixture
async def site() -> AsyncIterator[FakeWebService]:
    async with fake_web_service(PAGES) as standing:
        yield standing


@pytest.fixture
async def firecrawl() -> AsyncIterator[FakeWebService]:
    async with fake_web_service(FIRECRAWL) as standing:
        yield standing


def reader(site: FakeWebService) -> LocalReader:
    return LocalReader(AddressGuard(frozenset([site.endpoint])))


async def test_a_page_is_read_without_what_stands_around_it(site: FakeWebService) -> None:
    page = await reader(site).read(f"{site.url}/article")
    assert page.title == "Tides of the fjord"
    assert page.url == f"{site.url}/article"
    assert "thirty centimetres" in page.text
    assert "## How it is measured" in page.text
    assert "| May | 31 |" in page.text
    for noise in ("Shop our sale", "written by a script", "newsletter"):
        assert noise not in page.text


async def test_the_encoding_that_the_server_names_counts(site: FakeWebService) -> None:
    page = ARTICLE.replace('<meta charset="utf-8">', "").replace("tide", "tïde")
    site.trouble.append(says(page.encode("latin-1"), "text/html; charset=iso-8859-1"))
    assert "The tïde in" in (await reader(site).read(f"{site.url}/a")).text


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ('<p>It ends on <time datetime="2026-03-01">1 March</time>.</p>', ["It ends on 1 March."]),
        ("<figure><img src=a.png><figcaption>The map of 2025.</figcaption></figure>", ["The map of 2025."]),
        ("<aside><p>Note: late letters are not read.</p></aside>", ["Note: late letters are not read."]),
        (
            "<table><caption>By size</caption><tr><th>Team</th><th>Sum</th></tr><tr><td>4</td><td>9</td></tr></table>",
            ["By size", "| Team | Sum |", "| 4 | 9 |"],
        ),
        (
            "<ol><li>Register.</li><li><p>Fill in.</p></li></ol><p>Wait a week.</p>"
            "<ol start=3><li>Sign.</li><li value=7>Send <b>all</b>.<ol><li>Stamp.</li></ol></li><li>Rest.</li></ol>",
            ["1. Register.", "2. Fill in.", "Wait a week.", "3. Sign.", "7. Send all.", "  1. Stamp.", "8. Rest."],
        ),
        ("<ul><li>One</li></ul><ol start=x><li>Two</li></ol>", ["- One", "1. Two"]),
    ],
    ids=["time", "figure", "aside", "table", "lists", "no number"],
)  # fmt: skip
@pytest.mark.parametrize("words", [0, 30, 60, 200])
async def test_what_a_page_says_is_kept(site: FakeWebService, html: str, lines: list[str], words: int) -> None:
    padding = f"<p>{'The harbour is deep. ' * words}</p>" if words else ""
    page = f"<html><title>T</title><body><main><h1>Grants</h1>{padding}{html}{padding}</main></body></html>"
    site.trouble.append(says(page.encode(), "text/html"))
    text = (await reader(site).read(f"{site.url}/a")).text
    shown = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert "# Grants" in shown
    assert [line for line in shown if line in lines] == lines


async def test_a_pdf_is_read_as_a_document(site: FakeWebService) -> None:
    site.trouble.append(says(pdf(["Fourteen lighthouses."]), "application/pdf"))
    assert "Fourteen lighthouses." in (await reader(site).read(f"{site.url}/a.pdf")).text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says(b"<html><script>app()</script></html>", "text/html"), "no text in"),
        (says(b"", "text/html"), "no text in"),
        (says(b"\x89PNG", "image/png"), "see_image"),
        (says(b"%PDF-1.4 broken", "application/pdf"), "damaged"),
        (says(b"MZ\x00\x01\x02\xff" * 50, "application/octet-stream"), "http"),
        (refusal(404), "no such page"),
    ],
)
async def test_what_cannot_be_read_is_told(site: FakeWebService, answer: Answer, said: str) -> None:
    site.trouble.append(answer)
    with pytest.raises(ToolError, match=said):
        await reader(site).read(f"{site.url}/a")


async def test_a_page_that_takes_too_long_is_given_up(site: FakeWebService) -> None:
    site.trouble.append(says(b"<a " * 200_000, "text/html"))
    limits = replace(CHILD_LIMITS, wall_seconds_max=0.01)
    with pytest.raises(ToolError, match="takes too long"):
        await LocalReader(AddressGuard(frozenset([site.endpoint])), limits).read(f"{site.url}/a")


def with_key(service: FakeWebService, *, key: str = KEY, allowed: FakeWebService | None = None) -> Firecrawl:
    endpoints = [allowed.endpoint] if allowed else []
    return Firecrawl(
        ServiceApi(name="Firecrawl", url=service.url, headers={"Authorization": f"Bearer {key}"}, pause_seconds=0),
        AddressGuard(frozenset(endpoints)),
    )


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/", "http://localhost/", "http://169.254.169.254/x", "file:///x"]
)
async def test_firecrawl_is_not_sent_into_closed_places(firecrawl: FakeWebService, address: str) -> None:
    with pytest.raises(ToolError):
        await with_key(firecrawl).read(address)
    assert firecrawl.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401, {"success": False, "error": "Unauthorized"}), "does not accept the key"),
        (refusal(408, {"success": False, "error": "Request timed out"}), "timed out"),
        (says(b'{"success": false, "error": "blocked"}'), "could not be read"),
        (says(b'{"success": true, "data": {"markdown": ""}}'), "could not be read"),
        (says(b'{"success": true, "data": []}'), "form that is not known"),
    ],
)
async def test_errors_of_firecrawl_say_what_to_do(
    firecrawl: FakeWebService, site: FakeWebService, answer: Answer, said: str
) -> None:
    firecrawl.trouble.append(answer)
    with pytest.raises(ToolError, match=said) as raised:
        await with_key(firecrawl, allowed=site).read(f"{site.url}/article")
    assert KEY not in str(raised.value)


async def test_an_older_installation_is_asked_its_own_way(site: FakeWebService) -> None:
    from aiohttp import web

    async with fake_web_service([web.post("/v1/scrape", scrape)]) as old:
        page = await with_key(old, allowed=site).read(f"{site.url}/article")
    assert page.title == "Tides of the fjord"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_each_promised_kind_is_taken(kind: str) -> None:
    fit = await prepare_picture(made.picture(kind), name="a")
    assert fit.mime_type in ("image/png", "image/jpeg")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.size == (fit.width, fit.height) == (60, 40)
        pixel = shown.convert("RGB").getpixel((20, 20))
        assert isinstance(pixel, tuple)
        red, green, blue = pixel
        assert red > 240
        assert max(green, blue) < 20


async def test_a_large_picture_shrinks_below_what_models_take() -> None:
    content = made.noise((1800, 1700), "PNG")
    assert 9_000_000 < len(content) < 10_000_000
    fit = await prepare_picture(content, name="a")
    assert len(fit.content) <= SHOWN_BYTES_MAX
    assert len(fit.content) * 4 / 3 <= 5_000_000
    wide = await prepare_picture(made.picture(size=(6000, 3000)), name="a")
    assert (wide.width, wide.height) == (1920, 960)


async def test_it_stands_upright_and_keeps_no_metadata() -> None:
    fit = await prepare_picture(made.upside((60, 40)), name="a")
    assert (fit.width, fit.height) == (40, 60)
    assert b"maker of the camera" not in fit.content


async def test_a_photo_of_a_telephone_is_shown_upright() -> None:
    fit = await prepare_picture(made.heic(), name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.size == (fit.width, fit.height) == (48, 64)
        right, left = (shown.convert("RGB").getpixel((x, 30)) for x in (40, 8))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert left[0] > 200 > left[2]
    assert right[2] > 200 > right[0]


async def test_what_can_be_seen_through_is_kept_or_put_on_white() -> None:
    clear = made.saved(Image.new("RGBA", (30, 30), (0, 0, 0, 0)), "PNG")
    fit = await prepare_picture(clear, name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert shown.mode == "RGBA"
    noisy = Image.open(io.BytesIO(made.noise((1500, 1500)))).convert("RGBA")
    noisy.putalpha(0)
    fit = await prepare_picture(made.saved(noisy, "PNG"), name="a")
    with Image.open(io.BytesIO(fit.content)) as shown:
        assert min(shown.convert("RGB").getpixel((700, 700))) > 250


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (b"just text", "damaged"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "damaged"),
        (made.saved(Image.new("RGB", (9, 9)), "TIFF"), "damaged"),
        (made.noise((300, 300))[:20_000], "damaged"),
        (made.bomb(), "too many pixels"),
        (b"x" * 10_000_001, "larger than 10 MB"),
    ],
    ids=["nothing", "text", "svg", "tiff", "cut off", "bomb", "large"],
)
async def test_what_is_no_fit_picture_is_told(content: bytes, said: str) -> None:
    with pytest.raises(ToolError, match=rf"^logo\.png .*{said}"):
        await prepare_picture(content, name="logo.png")
