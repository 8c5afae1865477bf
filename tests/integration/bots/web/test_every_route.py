"""Whatever is sent to whichever route of the whole program: no answer is a server error, and no traceback is logged."""

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import hypothesis
import pytest
from cryptography.fernet import Fernet

from bots.bootstrap.program import RunningProgram, run_program
from bots.web.links import SignedLinks
from core.stores import JournalEntry
from simulator.slack.events.http_events import sign
from tests.support.narrow import require
from tests.support.sandboxes import pieces
from tests.support.settings import settings

SECRET = "s" * 32
ANSWER_SECONDS_MAX = 60.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")
PARTS = (
    *("", ".", "..", "%2e%2e%2fetc", "%00", "%0d%0aX:1", "%ED%A0%80", "%FF", "%E2%80%AE", "%", "%zz", "{x}", "x.y"),
    *("-1", "0", "9" * 400, "1e999", "NaN", "00000000-0000-0000-0000-000000000000", ".git", "a//b/", "~", "'"),
    "a" * 5000,
)
NUMBERS = (0, -1, 1.5, 2**63, 2**70, -(2**70), 1e308)
SCHEDULES = ("PT2H", "FREQ=DAILY;BYHOUR=9", {"platform": "slack"}, {"thread_key": "\x00"})
PLAIN = (None, True, *NUMBERS, "", "x", "\x00", "\ud800", "\u202e", "a" * 300_000, [], {}, [[]], {"a": {"b": [None]}})
VALUES = (*PLAIN, *SCHEDULES)
FIELDS = """
    text agent_id author title number note name type event payload instructions tools task when thread time_zone
    address id
"""
QUERIES = """
    cursor platform workspace_id person_id thread_id agent_id after limit from to path code state error x
"""
BODIES = (
    *(b"", b"{", b"null", b"[]", b'"x"', b"{]", b"\x00", b"\xff\xfe{\x00}\x00", b'{"a":1e999}', b"ssl_check=1"),
    *(b"[" * 200_000, b'{"a":' * 50_000, b"9" * 10_000, b'{"number": ' + b"9" * 5000 + b"}", b'{"text": "\\ud800"}'),
    *(b'{"a": NaN, "b": Infinity}', b"payload=%7B%22type%22%3A+%22block_actions%22%7D", b"payload=%7B"),
    b"command=%2Fx&text=%ED%A0%80",
    b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nhello\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="f"; filename="../a\x00.txt"\r\n\r\nhello\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\nContent-Encoding: gzip\r\n\r\nx\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\nContent-Transfer-Encoding: base64\r\n\r\n=\r\n',
    b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n",
    *(b"--b\r\n", b"--b\r\n\r\n", b"--b--", b"--b\r\nx: \xff\xff\r\n\r\nx"),
    b"--b\r\nContent-Length: -5\r\n\r\nx\r\n--b--\r\n",
)
HEADERS = (
    *("Content-Type: application/json; charset=none", "Content-Type: multipart/form-data; boundary=b"),
    *("Content-Type: multipart/form-data", "Content-Type: application/x-www-form-urlencoded", "Content-Type: x"),
    *("Content-Encoding: gzip", "Content-Encoding: deflate", "Content-Encoding: br", "Content-Encoding: zstd"),
    *("Range: bytes=-0", "Range: bytes=9-1", "Range: bytes=0-0,5-6", "Range: x", "Range: bytes=99999999999999999999-"),
    *('If-None-Match: "', "If-None-Match: *", "If-Match: *", "If-Range: x", "If-Modified-Since: never"),
    *("Last-Event-ID: 1-1", "Last-Event-ID: x", "Last-Event-ID: 999999999-999999999", "Idempotency-Key: a b"),
    *("Accept: text/html", "Accept-Encoding: gzip", "Expect: 100-continue", "Expect: x", "Cookie: a=b; =; \xff"),
    *("Cookie: threadhand_takeover=\xff", "Cookie: threadhand_slack_install=\xff"),
    "Cookie: threadhand_slack_install=a",
    *("Origin: null", "Origin: http://[", "Origin: http://a:99999999", "Sec-Fetch-Site: cross-site", "Via: 1"),
    *("Upgrade: websocket", "Sec-WebSocket-Version: 99", "Sec-WebSocket-Key: x", "Sec-WebSocket-Extensions: \xff"),
    *("Authorization: Bearer \xff", "Authorization: Basic", "X-Forwarded-For: x", "Traceparent: 00-x", "X-\xff: 1"),
    *("X-Slack-Signature: v0=\xff", "X-Slack-Request-Timestamp: 9999999999999", "X-Slack-Retry-Num: x"),
)
HOSTS = (
    *("localhost", f"{'a' * 55}.localhost", "", "[", "a:b", "[::1", "évil", "a" * 300, "-.localhost"),
    "example.com:99999",
)


@dataclass
class Target:
    """The program, and parts of addresses that exist in it."""

    program: RunningProgram
    known: dict[str, Sequence[str]]

    @property
    def routes(self) -> list[tuple[str, str]]:
        found = [(one.method, one.resource) for one in require(self.program.http_app).router.routes()]
        return [(method, resource.canonical) for method, resource in found if resource is not None]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Target]:
    """A program in which workspaces can install the bot, with a thread, a run and a sandbox."""
    named = {
        "DATA_DIR": str(folder),
        "SANDBOX": "unsafe-process",
        "MODEL": "any",
        "LLM_BASE_URL": "http://127.0.0.1:9",
        "HTTP_PORT": "0",
        "LINK_SECRET": SECRET,
        "SLACK_CLIENT_ID": "1.2",
        "SLACK_CLIENT_SECRET": "secret",
        "SLACK_SIGNING_SECRET": SECRET,
        "SLACK_API_URL": "http://127.0.0.1:9/api/",
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "PUBLIC_URL": "http://127.0.0.1:9",
        "ALLOWED_WORKSPACES": "T1",
    }
    async with (
        run_program(settings(**named), with_worker=False) as program,
        aiohttp.ClientSession(f"http://127.0.0.1:{program.http_port}") as http,
    ):
        async with http.post("/api/thread") as answer:
            thread_id = (await answer.json())["thread_id"]
        async with http.post(f"/api/thread/{thread_id}/messages", json={"text": "hello"}) as answer:
            run_id = (await answer.json())["agent_run_id"]
        body = {"task": "x", "when": "FREQ=HOURLY;BYMINUTE=0"}
        async with http.post("/api/schedules", json=body) as answer:
            schedule_id = (await answer.json())["schedule_id"]
        stores = program.parts.stores
        lease = require(await stores.claims.claim(run_id, "w1"))
        sandbox = await require(program.parts.sandboxes.provider).open(thread_id, fence=lease.fence)
        await sandbox.files.write("index.html", pieces(b"<p>hello</p>"))
        await stores.journal.write(lease, JournalEntry(sandbox_id=thread_id))
        signed = SignedLinks(SECRET.encode(), "/")
        links = (
            str(signed.file_url(thread_id, "index.html")),
            str(signed.page_preview_url(thread_id, "")),
            str(signed.takeover_url(thread_id)),
        )
        known = {
            "thread_id": [thread_id],
            "sandbox_id": [thread_id],
            "run_id": [run_id],
            "agent_id": list(await program.parts.roster.current_definitions()),
            "token": [link.split("/")[2] for link in links],
            "schedule_id": [schedule_id],
            "action": ["pause", "resume", "run_now"],
            "cursor": [run_id, f"1-{run_id}"],
            "platform": ["api"],
            "path": ["index.html", "a/../index.html"],
            "name": ["page.js"],
        }
        yield Target(program, known)


@dataclass(frozen=True)
class OddRequest:
    content: bytes
    has_all: bool


def odd_request(rng: random.Random, method: str, pattern: str, target: Target) -> OddRequest:
    """A request to the route, some of whose parts are as they should be."""

    def part(name: str) -> str:
        right = target.known.get(name)
        return rng.choice(right) if right and rng.random() < 0.7 else rng.choice(PARTS)

    path = re.sub(r"\{(\w+)\}", lambda found: part(found[1]), pattern)
    names = rng.sample(QUERIES.split(), rng.choice((0, 0, 1, 2)))
    query = "&".join(f"{name}={part(name)}" for name in names)
    address = f"{path}?{query}" if query else path
    if rng.random() < 0.1:
        method = rng.choice(METHODS)
    if rng.random() < 0.05:
        address = rng.choice(("*", f"http://elsewhere{address}", "elsewhere:80", f"{address}#x", "//", "/%00"))
    fields = {name: rng.choice(VALUES) for name in rng.sample(FIELDS.split(), 3)}
    body = json.dumps(fields).encode() if rng.random() < 0.6 else rng.choice(BODIES)
    if rng.random() < 0.1:
        body = body[: rng.randrange(len(body) + 1)]
    if b"--b" in body and rng.random() < 0.8:
        headers = ["Content-Type: multipart/form-data; boundary=b"]
    else:
        headers = ["Content-Type: application/json"] if rng.random() < 0.7 else []
    headers += rng.sample(HEADERS, rng.choice((0, 1, 3)))
    if pattern.startswith("/slack/") and rng.random() < 0.8:
        at = str(int(time.time()))
        headers += [f"X-Slack-Request-Timestamp: {at}", f"X-Slack-Signature: {sign(SECRET, at, body)}"]
    if rng.random() < 0.3:
        headers.append(f"Origin: http://127.0.0.1:{target.program.http_port}")
    own = f"127.0.0.1:{target.program.http_port}"
    host = own if rng.random() < 0.8 else rng.choice(HOSTS)
    headers += [f"Host: {host}", "Connection: close"]
    has_all = rng.random() < 0.8
    if rng.random() < 0.1:
        headers.append("Transfer-Encoding: chunked")
        body = (
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if has_all else rng.choice((b"x\r\n", b"-1\r\n", b"5\r\nab"))
        )
    else:
        headers.append(f"Content-Length: {len(body) if has_all else len(body) + 1}")
    head = "\r\n".join((f"{method} {address} HTTP/1.1", *headers, "", ""))
    return OddRequest(head.encode("utf-8" if rng.random() < 0.5 else "latin-1", "replace") + body, has_all)


async def status_of(request: OddRequest, port: int) -> int | None:
    """The status of the answer, or None if the server closed the connection without one."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request.content)
            if not request.has_all:
                writer.write_eof()
            while found := re.fullmatch(rb"HTTP/1\.[01] (\d{3}) .*\r\n", await reader.readline()):
                if found[1] != b"100":
                    return int(found[1])
                await reader.readline()
        except ConnectionError:
            pass
        finally:
            writer.close()
    return None


@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionHeader")
@pytest.mark.timeout(1200)  # 800 seeds in the whole suite
async def test_no_request_breaks_a_route(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as target:
        for seed in range(2 * hypothesis.settings.default.max_examples):
            rng = random.Random(seed)
            for method, pattern in target.routes:
                request = odd_request(rng, method, pattern, target)
                status = await status_of(request, target.program.http_port)
                assert status is None or status < 500, request.content[:2000]
                assert not [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR], request
                caplog.clear()
