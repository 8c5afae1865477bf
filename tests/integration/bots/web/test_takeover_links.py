"""The right to take over: one link, one person, one time, from its own page alone."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from bots.web.errors import ApiError
from bots.web.links import SignedLinks, verify_takeover_link
from bots.web.takeover.sessions import IDLE_TOO_LONG, TAKEOVER_SESSIONS
from core.domain.actions import AskAnswered, IncomingMessage
from core.domain.events import RunFinished
from core.domain.threads import Reply
from core.run.run_end import build_run_result
from core.stores import JournalEntry
from storage.sql.stores.run_journal import SqlRunJournal
from tests.support.narrow import require_type
from tests.support.web_stage import FakeSandboxes, Stage, staged

SECRET = b"s" * 32


@dataclass
class TakeoverVisitor:
    stage: Stage
    thread_id: str
    path: str
    origin: dict[str, str]
    cookie: str = ""

    @property
    def own(self) -> dict[str, str]:
        """The headers that the page of whoever has started sends."""
        return {**self.origin, "Cookie": self.cookie}

    async def start(self, headers: dict[str, str] | None = None) -> aiohttp.ClientResponse:
        sent = self.origin if headers is None else headers
        answer = await self.stage.http.post(f"{self.path}/start", headers=sent)
        self.cookie = answer.headers.get("Set-Cookie", self.cookie).partition(";")[0]
        return answer


@pytest.fixture
async def visitor(tmp_path: Path) -> AsyncIterator[TakeoverVisitor]:
    """A thread that waits for a person, and the path of its link."""
    async with staged(tmp_path) as stage:
        yield await opened(stage)


async def opened(stage: Stage, *, seconds: float = 600) -> TakeoverVisitor:
    origin = str(stage.http._base_url).rstrip("/")
    thread_id = await stage.thread()
    lease = await stage.claimed(await stage.send(thread_id))
    link = str(SignedLinks(SECRET, origin).takeover_url(thread_id, expires_at=time.time() + seconds))
    reply = Reply(kind="takeover", text=f"Help me.\n\n[Open]({link})")
    ended = RunFinished(status="completed", finish_reason="agent_terminated", reply=reply)
    journal = SqlRunJournal(stage.database)
    inputs = tuple(one.input_id for one in await journal.read_inputs(lease))
    assert await journal.finish(lease, JournalEntry(taken_input_ids=inputs), build_run_result(ended))
    stage.received.clear()
    return TakeoverVisitor(stage, thread_id, link.removeprefix(origin), {"Origin": origin})


def test_a_file_link_is_no_take_over_link() -> None:
    links = SignedLinks(SECRET, "https://agent.example")
    token = str(links.file_url("t1", "a")).rpartition("/")[2]
    with pytest.raises(ApiError, match="not one of ours"):
        verify_takeover_link(SECRET, token)


async def test_a_link_that_is_spelled_otherwise_is_not_ours(visitor: TakeoverVisitor) -> None:
    """The last letter of a signature has bits to spare, padding may be written, and base64 has two alphabets."""
    assert (await visitor.start()).status == 200
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = letters[letters.index(visitor.path[-1]) ^ 1]
    for path in (visitor.path[:-1] + twin, f"{visitor.path}=", f"{visitor.path}%3D"):
        other = TakeoverVisitor(visitor.stage, visitor.thread_id, path, visitor.origin)
        assert (await other.start()).status == 404
        with pytest.raises(ApiError, match="not one of ours"):
            verify_takeover_link(SECRET, path.rpartition("/")[2])


async def test_looking_takes_nothing(visitor: TakeoverVisitor) -> None:
    for _ in range(3):  # chat platforms look at links, too
        async with visitor.stage.http.get(visitor.path) as answer:
            page = await answer.text()
            assert answer.status == 200
            assert "Help me." in page
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert (await visitor.start()).status == 200


async def test_the_cookie_is_for_this_page_alone(visitor: TakeoverVisitor) -> None:
    answer = await visitor.start()
    cookie = answer.headers["Set-Cookie"]
    assert "Path" not in cookie  # so it is for the folder of the page, whatever a proxy puts before it
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie  # else a link in a chat opens the page without it


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", None])
async def test_other_sites_can_neither_start_nor_steer(visitor: TakeoverVisitor, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert (await visitor.start(headers=headers)).status == 403
    assert (await visitor.start()).status == 200
    for method, what in (("GET", "socket"), ("POST", "finish")):
        path = f"{visitor.path}/{what}"
        async with visitor.stage.http.request(method, path, headers=headers) as answer:
            assert answer.status == 403
    assert visitor.stage.received == []


async def test_without_the_cookie_nothing_is_steered(visitor: TakeoverVisitor) -> None:
    assert (await visitor.start()).status == 200
    assert (await visitor.start(headers=visitor.own)).status == 200
    assert (await visitor.start()).status == 403
    for method, what in (("GET", "socket"), ("POST", "finish")):
        path = f"{visitor.path}/{what}"
        async with visitor.stage.http.request(method, path, headers=visitor.origin) as answer:
            assert answer.status == 403
            assert (await answer.json())["error"] == "taken"
    async with visitor.stage.http.get(visitor.path) as answer:
        assert answer.status == 410
        text = await answer.text()
        assert "already used in another browser" in text
        assert "ask for a new one" in text


async def test_nothing_is_steered_before_the_button(visitor: TakeoverVisitor) -> None:
    async with visitor.stage.http.get(f"{visitor.path}/socket", headers=visitor.origin) as answer:
        assert (await answer.json())["error"] == "not_started"


async def test_forged_and_expired_links_show_a_page_that_says_so(visitor: TakeoverVisitor) -> None:
    async with visitor.stage.http.get(f"{visitor.path}x") as answer:
        assert answer.status == 404
        assert "is not one of ours" in await answer.text()
    late = await opened(visitor.stage, seconds=-5)
    async with visitor.stage.http.get(late.path) as answer:
        assert answer.status == 410
        assert "has expired" in await answer.text()
    assert (await late.start()).status == 410


async def test_a_deleted_conversation_gets_no_new_sandbox(visitor: TakeoverVisitor) -> None:
    await visitor.stage.ports.conversations.delete_thread(visitor.thread_id)
    async with visitor.stage.http.get(visitor.path) as answer:
        assert answer.status == 410
        assert "was deleted" in await answer.text()
    assert (await visitor.start()).status == 410
    assert await visitor.stage.ports.takeover_claims.active_claims() == ()
    assert visitor.stage.sandboxes.opened == []


async def test_handing_back_answers_the_question_once(visitor: TakeoverVisitor) -> None:
    await visitor.start()
    path, note = f"{visitor.path}/finish", {"note": "Done, code 42"}
    async with visitor.stage.http.post(path, headers=visitor.own, json=note) as answer:
        assert answer.status == 200
    async with visitor.stage.http.post(path, headers=visitor.own, json=note) as answer:
        assert answer.status == 409
    (said,) = visitor.stage.received
    assert isinstance(said, AskAnswered)
    assert said.text.startswith("Done, code 42\n\n")
    thread = await visitor.stage.json("GET", f"/api/thread/{visitor.thread_id}")
    assert thread["active_run_id"]


async def test_where_another_answer_came_first_it_is_a_message(visitor: TakeoverVisitor) -> None:
    await visitor.start()
    await visitor.stage.send(visitor.thread_id, "never mind")
    visitor.stage.received.clear()
    async with visitor.stage.http.post(f"{visitor.path}/finish", headers=visitor.own, json={}) as answer:
        assert answer.status == 200
    (said,) = visitor.stage.received
    assert isinstance(said, IncomingMessage)
    assert "it is yours again" in said.text


async def test_a_browser_that_nobody_uses_goes_back_by_itself(visitor: TakeoverVisitor) -> None:
    visitor.stage.app[TAKEOVER_SESSIONS]._idle_seconds = 0.2
    await visitor.start()
    assert require_type(await until_received(visitor), AskAnswered).text == IDLE_TOO_LONG


async def test_a_restart_forgets_no_take_over(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        visitor = await opened(stage, seconds=3)
        await visitor.start()
    async with staged(tmp_path) as stage:
        again = TakeoverVisitor(stage, visitor.thread_id, visitor.path, visitor.origin)
        assert isinstance(await until_received(again), AskAnswered)


@dataclass
class SleepingSandboxes(FakeSandboxes):
    """Opens a sandbox when `may_open` is set. `takeovers` counts how often its browser was taken over."""

    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_open: asyncio.Event = field(default_factory=asyncio.Event)
    takeovers: int = 0

    async def open(self, thread_id: str, *, fence: int) -> Any:
        self.is_asked.set()
        await self.may_open.wait()
        return SimpleNamespace(browser=self)

    @asynccontextmanager
    async def take_over(self) -> AsyncGenerator[Any]:
        self.takeovers += 1
        yield self

    async def receive(self) -> AsyncGenerator[Any]:
        for nothing in ():
            yield nothing


async def test_a_page_that_is_connecting_when_the_browser_goes_back_does_not_take_it(tmp_path: Path) -> None:
    sandboxes = SleepingSandboxes()
    async with staged(tmp_path, sandboxes=sandboxes) as stage:
        visitor = await opened(stage)
        await visitor.start()
        connecting = asyncio.ensure_future(stage.http.ws_connect(f"{visitor.path}/socket", headers=visitor.own))
        await sandboxes.is_asked.wait()
        async with stage.http.post(f"{visitor.path}/finish", headers=visitor.own, json={}) as answer:
            assert answer.status == 200
        sandboxes.may_open.set()
        async with await connecting as socket:
            await socket.receive()
            assert (sandboxes.takeovers, socket.close_code) == (0, 4000)


async def until_received(visitor: TakeoverVisitor) -> object:
    for _ in range(300):
        if visitor.stage.received:
            return visitor.stage.received[0]
        await asyncio.sleep(0.05)
    raise AssertionError("nothing came")


async def test_the_pages_files_are_there_and_nothing_else(visitor: TakeoverVisitor) -> None:
    for name in ("page.js", "page.css", "screen.js", "keyboard.js", "panels.js"):
        async with visitor.stage.http.get(f"/takeover-page/{name}") as answer:
            assert answer.status == 200
    for name in ("page.html", "__init__.py", "..%2Ftakeover.py", "nothing.js", f"{'a' * 300}.js"):
        async with visitor.stage.http.get(f"/takeover-page/{name}") as answer:
            assert answer.status == 404
