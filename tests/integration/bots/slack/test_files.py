"""Files both ways: whole, capped, found again after an unclear end, and the token shown to Slack alone."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from yarl import URL

from bots.delivery.content import AnswerPart
from bots.demo.thread_reader import text_of
from bots.slack.app import SlackApp
from bots.slack.events.message_content import build_file_ref
from bots.slack.web_api.downloads import is_slack_url
from bots.slack.web_api.uploads import FILES_PER_MESSAGE, safe_file_name
from core.domain.errors import RunError, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Address, IncomingFile
from core.ports import OutgoingFile
from simulator.slack import SlackSettings, SlackSimulator
from simulator.view import Button
from tests.integration.bots.slack.socket_mode_app import (
    RecordingReceiver,
    attached,
    general,
    read,
    replies,
    running,
    started,
)
from tests.support.closing import close_after
from tests.support.web import serve_http

API = URL("https://slack.com/api/")
HERE = URL("http://127.0.0.1:8080/api/")


async def pieces(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def outgoing(name: str, content: bytes, *, size: int | None = None) -> OutgoingFile:
    announced = len(content) if size is None else size
    return OutgoingFile(name=name, size_bytes=announced, pieces=pieces(content))


ANSWER = "# Result\n\n| a | b |\n|---|---|\n| 1 | `x` |\n\n- **one**\n\n```\n<code>\n```"


async def test_an_answer_comes_with_its_files_and_another_process_finds_them(
    slack: SlackSimulator, speaker: SlackApp, address: Address
):
    ids = [str(uuid.uuid4()) for _ in range(FILES_PER_MESSAGE + 1)]
    files = [replace(outgoing(f"{at}.txt", b"text"), delivery_id=one) for at, one in enumerate(ids[1:])]
    slack.misbehave("error_after", method="files.completeUploadExternal")
    with pytest.raises(SurfaceUnclear):
        await speaker.surface.post(address, AnswerPart(markdown=ANSWER), files=files, delivery_id=ids[0])
    (thread,) = general(slack).threads
    message = thread.messages[1]
    assert [file.name for file in message.files] == [f"{at}.txt" for at in range(6)]
    assert "<code>" in text_of(message)
    assert "Result" in text_of(message)
    assert "0.txt" not in text_of(message), "each name is shown once, on its file"
    async with started(slack) as other:
        assert {await other.surface.find(address, one) for one in ids} == {message.message_id}
        assert await other.surface.find(address, str(uuid.uuid4())) is None


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (outgoing("a", b"", size=2_000_000_000), "too_large"),
        (outgoing("a", b""), "empty_file"),
        (outgoing("a", b"short", size=10), "size_changed"),
        (outgoing("a", b"long" * 10, size=10), "size_changed"),
    ],
)
async def test_a_file_that_slack_cannot_take_is_refused(
    slack: SlackSimulator, speaker: SlackApp, address: Address, file: OutgoingFile, code: str
):
    with pytest.raises(SurfaceRefused) as refusal:
        await speaker.surface.upload(address, file, delivery_id="d1")
    assert refusal.value.code == code
    assert replies(slack) == 0


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("re\u202etxt.exe", "re_txt.exe"),
        ("", "file"),
        ("...", "file"),
        ("x" * 300 + ".csv", "x" * 196 + ".csv"),
        ("отчёт 😀.pdf", "отчёт 😀.pdf"),
    ],
)
def test_names_of_files_are_made_safe(name: str, safe: str):
    assert safe_file_name(name) == safe


async def test_a_file_over_the_limit_is_refused_whatever_its_message_says(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver
):
    file = await attached(slack, receiver, b"x" * 5000)
    with pytest.raises(RunError, match="larger than"):
        await read(app, file, bytes_max=1000)
    unsized = IncomingFile(file_ref=file.file_ref, name=file.name)
    with pytest.raises(RunError, match="larger than"):
        await read(app, unsized, bytes_max=1000)


async def test_a_login_page_is_no_file(receiver: RecordingReceiver):
    scopes = tuple(scope for scope in SlackSettings().scopes if scope != "files:read")
    async with SlackSimulator(settings=SlackSettings(scopes=scopes)) as slack, running(slack, receiver) as app:
        file = await attached(slack, receiver, b"content")
        with pytest.raises(RunError, match="cannot be read") as refusal:
            await read(app, file)
    assert "files:read" in refusal.value.detail


@asynccontextmanager
async def server(routes: dict[str, Callable[[], web.Response]], seen: list[web.Request]) -> AsyncIterator[URL]:
    """A server that gives prepared answers and remembers what it was asked."""

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        if request.path == "/api/auth.test":
            return web.json_response({"ok": True, "team_id": "T1", "user_id": "U0", "bot_id": "B0"})
        return routes.get(request.path, lambda: web.Response(status=404))()

    async with serve_http(answer) as url:
        yield URL(url)


@asynccontextmanager
async def speaking(origin: URL) -> AsyncIterator[SlackApp]:
    async with close_after(SlackApp(bot_token="xoxb-1", api_url=str(origin / "api/"))) as app:
        await app.start()
        yield app


def named(url: URL, mime_type: str = "text/plain", size: int | None = None) -> IncomingFile:
    return IncomingFile(file_ref=build_file_ref("F1", str(url)), name="f", mime_type=mime_type, size_bytes=size)


def moved(location: str) -> web.Response:
    return web.Response(status=302, headers={"Location": location})


async def test_a_redirect_is_followed_without_the_token_and_never_away_from_slack():
    here: list[web.Request] = []
    foreign: list[web.Request] = []
    async with server({"/x": lambda: web.Response(text="stolen")}, foreign) as elsewhere:
        routes = {
            "/away": lambda: moved(str(elsewhere / "x")),
            "/near": lambda: moved("/file"),
            "/file": lambda: web.Response(text="content"),
        }
        async with server(routes, here) as origin, speaking(origin) as app:
            assert await read(app, named(origin / "near")) == b"content"
            with pytest.raises(RunError, match="cannot be read"):
                await read(app, named(origin / "away"))
            with pytest.raises(RunError, match="cannot be read"):
                await read(app, named(elsewhere / "x"))
    tokens = {request.path: "Authorization" in request.headers for request in here}
    assert (tokens["/near"], tokens["/file"]) == (True, False)
    assert foreign == []


async def test_a_web_page_that_somebody_attached_is_read_if_its_size_is_right():
    page = "<html>mine</html>"

    def answer() -> web.Response:
        response = web.Response(text=page, content_type="text/html")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with server({"/page": answer}, []) as origin, speaking(origin) as app:
        assert await read(app, named(origin / "page", "text/html", len(page))) == page.encode()
        with pytest.raises(RunError):
            await read(app, named(origin / "page", "text/html", 99))


async def test_an_upload_address_elsewhere_is_refused():
    foreign: list[web.Request] = []
    async with server({}, foreign) as elsewhere:
        answer = {"ok": True, "upload_url": str(elsewhere / "up"), "file_id": "F1"}
        routes = {"/api/files.getUploadURLExternal": lambda: web.json_response(answer)}
        async with server(routes, []) as origin, speaking(origin) as app:
            address = Address(platform="slack", workspace_id=app.identity.team_id, channel_id="C", thread_key="1.1")
            with pytest.raises(SurfaceRefused) as refusal:
                await app.surface.upload(address, outgoing("a", b"text"), delivery_id="d1")
    assert refusal.value.code == "foreign_host"
    assert foreign == []


@pytest.mark.parametrize(
    ("url", "api", "is_own"),
    [
        ("https://files.slack.com/x", API, True),
        ("https://a.b.slack-files.com/x", API, True),
        ("http://files.slack.com/x", API, False),
        ("https://files.slack.com:8443/x", API, False),
        ("https://slack.com.example.com/x", API, False),
        ("https://evilslack.com/x", API, False),
        ("https://files.slack.com@example.com/x", API, False),
        ("https://user@files.slack.com/x", API, False),
        ("file:///etc/passwd", API, False),
        ("/relative", API, False),
        ("", API, False),
        ("http://localhost:8080/x", HERE, True),
        ("http://[::1]:8080/x", HERE, True),
        ("http://localhost:8081/x", HERE, False),
        ("https://localhost:8080/x", HERE, False),
        ("http://localhost.example.com:8080/x", HERE, False),
    ],
)
def test_only_slacks_own_hosts_and_the_names_of_a_stand_in_on_this_machine_count(url: str, api: URL, is_own: bool):
    assert is_slack_url(URL(url), api) == is_own


async def test_a_file_that_its_message_names_by_id_alone_comes_with_its_name(receiver: RecordingReceiver):
    async with SlackSimulator(settings=SlackSettings(is_shared=True)) as slack, running(slack, receiver) as app:
        file = await attached(slack, receiver, b"shared")
        assert (file.name, file.size_bytes) == ("a.bin", 6)
        assert await read(app, file) == b"shared"


async def test_where_slack_takes_no_buttons_with_a_file_the_answer_comes_without(
    slack: SlackSimulator, speaker: SlackApp, address: Address
):
    slack.misbehave("refuse", method="files.completeUploadExternal", code="invalid_blocks")
    answer = AnswerPart(markdown=ANSWER, run_id="run-1")
    await speaker.surface.post(address, answer, files=[outgoing("a.txt", b"text")], delivery_id="d1")
    slack.misbehave("none")
    await speaker.surface.post(address, answer, files=[outgoing("b.txt", b"text")], delivery_id="d2")
    _, without, with_buttons = general(slack).threads[0].messages
    assert "Result" in text_of(without)
    assert [len([one for one in each.elements if isinstance(one, Button)]) for each in (without, with_buttons)] == [
        0,
        2,
    ]


async def test_an_endless_redirect_and_an_error_end_in_a_sentence():
    async with server({"/loop": lambda: moved("/loop")}, []) as origin, speaking(origin) as app:
        for path in ("loop", "missing"):
            with pytest.raises(RunError, match="The file 'f' cannot be read from Slack"):
                await read(app, named(origin / path))


async def test_a_file_of_a_shared_channel_is_asked_for(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver
):
    file = await attached(slack, receiver, b"shared")
    bare = IncomingFile(file_ref=file.file_ref.partition(" ")[0], name=file.name)
    assert await read(app, bare) == b"shared"
    with pytest.raises(RunError, match="cannot be read"):
        await read(app, IncomingFile(file_ref="F404", name="gone"))
