"""Threads and messages over HTTP."""

import asyncio
import base64
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bots.inbound.actions import Outcome, UserAction
from bots.web.request_parsing import sanitize_file_name
from bots.web.upload_spool import UploadSource
from core.domain.actions import IncomingMessage
from core.domain.errors import StorageUnavailable, SurfaceUnclear
from core.domain.events import RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import Address, ThreadSnapshot
from core.stores import JournalEntry
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_journal import SqlRunJournal
from tests.support.web_stage import Stage, staged


def only_message(stage: Stage) -> IncomingMessage:
    (message,) = stage.received
    assert isinstance(message, IncomingMessage)
    return message


def form(text: str, *files: tuple[str, bytes, str]) -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("text", text)
    for name, content, mime_type in files:
        data.add_field("files", content, filename=name, content_type=mime_type)
    return data


def spooled(folder: Path) -> list[Path]:
    return sorted((folder / "uploads").glob("*"))


async def test_the_same_key_starts_one_run(stage: Stage, tmp_path: Path) -> None:
    thread_id = await stage.thread()
    path = f"/api/thread/{thread_id}/messages"
    answers = [
        await stage.json(
            "POST",
            path,
            data=form("x", ("a.txt", b"abc", "text/plain")),
            headers={"Idempotency-Key": "key-1"},
            status=202,
        )
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert len(await stage.ports.conversations.runs(thread_id)) == 1
    assert len(spooled(tmp_path)) == 1
    await stage.json("POST", path, json={"text": "x"}, headers={"Idempotency-Key": "k" * 201}, status=400)


async def test_the_same_key_gets_the_same_answer_after_its_time(stage: Stage) -> None:
    thread_id = await stage.thread()
    path, headers = f"/api/thread/{thread_id}/messages", {"Idempotency-Key": "weekly"}
    first = await stage.json("POST", path, json={"text": "x"}, headers=headers, status=202)
    lease = await stage.claimed(first["agent_run_id"])
    await stage.end(lease, RunFinished(status="completed", finish_reason="stop"))
    assert await SqlInbox(stage.database).delete_old_keys(older_than_days=-1) == 1
    again = await stage.json("POST", path, json={"text": "x"}, headers=headers, status=202)
    assert again == first


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\evil.exe", "evil.exe"),
        ("a\x00\nb.txt", "ab.txt"),
        ("‮gpj.exe", "gpj.exe"),
        ("..", "file"),
        ("", "file"),
        ("📈 Umsätze.csv", "📈 Umsätze.csv"),
        ("x" * 500 + ".csv", "x" * 196 + ".csv"),
    ],
)
def test_a_file_name_is_made_safe(name: str, safe: str) -> None:
    assert sanitize_file_name(name) == safe


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([("ok.txt", b"ok", "text/plain"), ("big", b"x" * 100_001, "text/plain")], "too_large"),
        ([(f"{n}", b"x", "text/plain") for n in range(21)], "too_many_files"),
    ],
    ids=["large", "many"],
)
async def test_files_over_the_limits_are_refused_and_nothing_stays(
    stage: Stage, tmp_path: Path, files: list[tuple[str, bytes, str]], code: str
) -> None:
    path = f"/api/thread/{await stage.thread()}/messages"
    answer = await stage.json("POST", path, data=form("x", *files), status=413)
    assert (answer["error"], stage.received, spooled(tmp_path)) == (code, [], [])


FILE = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n'


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\nno header\r\n\r\nhi\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="g"; filename="b"\r\n\r\nhalf',
        b"--x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n--x--\r\n",
    ],
)
async def test_a_form_that_cannot_be_parsed_is_refused_with_one_line(
    stage: Stage, body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thread_id = await stage.thread()
    answer = await stage.json(
        "POST",
        f"/api/thread/{thread_id}/messages",
        data=FILE + b"\r\na file\r\n" + body,
        headers={"Content-Type": "multipart/form-data; boundary=x"},
        status=400,
    )
    assert (answer["error"], spooled(tmp_path)) == ("bad_form", [])
    assert len([line for line in caplog.text.splitlines() if "form" in line]) == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "bad_json"),
        (b"[]", "application/json", 400, "bad_json"),
        (b"[" * 100_000, "application/json", 400, "bad_json"),
        (b'{"text": 3}', "application/json", 400, "bad_request"),
        (b'{"text": "  "}', "application/json", 400, "empty_message"),
        (b"", "application/json", 400, "empty_message"),
        (b"text=hi", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b"x", "multipart/form-data", 400, "bad_form"),
        (b'{"text": "' + b"x" * 300_000 + b'"}', "application/json", 413, "too_large"),
        (b"x" * 1_100_000, "application/json", 413, "too_large"),
    ],
)
async def test_a_bad_body_is_refused_in_words(
    stage: Stage, body: bytes, content_type: str, status: int, code: str
) -> None:
    thread_id = await stage.thread()
    answer = await stage.json(
        "POST",
        f"/api/thread/{thread_id}/messages",
        data=io.BytesIO(body),
        headers={"Content-Type": content_type},
        status=status,
    )
    assert answer["error"] == code
    assert answer["message"].endswith(".")
    assert stage.received == []


@pytest.mark.parametrize(
    ("kind", "field", "mime_type"),
    [("browser_state", "screenshot", "image/jpeg"), ("image_context", "base64", "image/png")],
)
async def test_an_image_is_a_link(stage: Stage, kind: Any, field: str, mime_type: str) -> None:
    lease = await stage.claimed(await stage.send(await stage.thread()))
    image = b"\xff\xd8\xff" * 1000
    content = {field: base64.b64encode(image).decode(), "mime_type": mime_type}
    shown, plain = (
        Message(type=kind, content=one, is_llm_message=False, thread_id=lease.thread_id, run_id=lease.run_id)
        for one in (content, {"mime_type": mime_type})
    )
    await SqlRunJournal(stage.database).write(lease, JournalEntry(messages=(shown, plain)))
    path = f"/api/thread/{lease.thread_id}/messages"
    listed = [json.loads(one["content"]) for one in (await stage.json("GET", path))["messages"]]
    url = f"{path}/{shown.message_id}/image"
    assert listed == [{"mime_type": mime_type, "image_url": url}, {"mime_type": mime_type}]
    async with stage.http.get(url) as response:
        assert (response.status, response.content_type, await response.read()) == (200, mime_type, image)
    for missing in (plain.message_id, new_id()):
        assert (await stage.json("GET", f"{path}/{missing}/image", status=404))["error"] == "image_not_found"


async def test_a_chat_thread_can_be_read_but_not_written(stage: Stage) -> None:
    thread_id = await stage.foreign_thread()
    await stage.json("GET", f"/api/thread/{thread_id}")
    answer = await stage.json("POST", f"/api/thread/{thread_id}/messages", json={"text": "x"}, status=409)
    assert answer["error"] == "not_an_api_thread"


CHAT = {"platform": "slack", "workspace_id": "T", "channel_id": "C", "thread_key": "1.2"}


async def test_words_for_a_chat_thread_are_shown_there_and_begin_a_run(stage: Stage) -> None:
    thread_id = await stage.foreign_thread()
    text = "[Deploy](http://x) <!channel>\n# now\u202e"
    body = {"address": CHAT, "text": text, "author": "*ci*"}
    answer = await stage.json("POST", "/api/thread", json=body, status=202, headers={"Idempotency-Key": "k"})
    assert answer["thread_id"] == thread_id
    assert await stage.json("POST", "/api/thread", json=body, status=202, headers={"Idempotency-Key": "k"}) == answer
    ((address, shown),) = stage.posted
    assert asdict(address) == CHAT
    assert shown == (
        "This came over the HTTP API, by **\\*ci\\***:\n> \\[Deploy\\](http://x) \\<!channel\\>\n> \\# now"
    )
    message = stage.received[0]
    assert isinstance(message, IncomingMessage)
    assert (message.message_ref, message.text) == ("9.1", text[:-1])
    assert (message.person.name, message.person.is_app, message.is_automatic) == ("HTTP API (*ci*)", True, True)
    run = await stage.json("GET", f"/api/agent-run/{answer['agent_run_id']}")
    assert (run["thread_id"], run["status"]) == (thread_id, "queued")
    more = await stage.json("POST", "/api/thread", json={"address": CHAT, "text": "and more"}, status=202)
    assert more == answer


async def test_repeated_words_are_shown_once_however_the_first_request_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted, answers = list[str](), iter(["chat", "database"])
    both_came, requests, find = asyncio.Event(), list[Address](), SqlConversations.find

    async def note_request(conversations: SqlConversations, address: Address) -> ThreadSnapshot | None:
        found = await find(conversations, address)
        requests.append(address)
        if len(requests) == 2:
            both_came.set()
        return found

    async def post(_address: Address, _text: str, *, delivery_id: str, may_be_posted: bool) -> str:
        if may_be_posted and delivery_id in posted:
            return "9.1"
        await both_came.wait()
        posted.append(delivery_id)
        if next(answers, "") == "chat":
            raise SurfaceUnclear("no answer")
        return "9.2"

    async def receive(_: UserAction) -> Outcome:
        if next(answers, "") == "database":
            raise StorageUnavailable("the database restarts")
        return Outcome(run_id=new_id())

    monkeypatch.setattr(SqlConversations, "find", note_request)
    async with staged(tmp_path, post=post, receive=receive) as stage:
        await stage.foreign_thread()
        body = {"address": CHAT, "text": "Deploy"}

        async def send(status: int, **headers: str) -> str:
            answer = await stage.json("POST", "/api/thread", status=status, json=body, headers=headers)
            return str(answer.get("error"))

        key = {"Idempotency-Key": "k"}
        failures = await asyncio.gather(send(503, **key), send(503, **key))
        assert sorted(failures) == ["chat_unavailable", "storage_unavailable"]
        await send(202, **key)
        assert len(posted) == 1
        await send(202)
    assert len(posted) == 2


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"text": ""}, 400, "bad_request"),
        ({"text": " \u200b\x01"}, 400, "bad_request"),
        ({"text": "\ud800"}, 400, "bad_request"),
        ({"text": "x" * 1501}, 400, "bad_request"),
        ({"text": "*" * 1400}, 413, "too_large"),
        ({"author": "x" * 101}, 400, "bad_request"),
        ({"address": None}, 400, "bad_request"),
        ({"address": {**CHAT, "thread_key": "../1"}}, 400, "bad_request"),
        ({"address": {**CHAT, "thread_key": ""}}, 404, "thread_not_found"),
        ({"address": {**CHAT, "thread_key": "9.9"}}, 404, "thread_not_found"),
    ],
)
async def test_words_for_a_chat_thread_are_checked_before_they_are_shown(
    stage: Stage, changes: dict[str, Any], status: int, code: str
) -> None:
    await stage.foreign_thread()
    body = {"address": CHAT, "text": "hello", **changes}
    answer = await stage.json("POST", "/api/thread", json=body, status=status)
    assert answer["error"] == code, answer
    assert (stage.posted, stage.received) == ([], [])


async def test_a_bug_is_told_without_its_details(tmp_path: Path) -> None:
    async def broken(_: object) -> Any:
        raise RuntimeError("secret /host/path")

    async with staged(tmp_path, receive=broken) as stage:
        thread_id = await stage.thread()
        path = f"/api/thread/{thread_id}/messages"
        answer = await stage.json("POST", path, json={"text": "x"}, status=500)
        assert answer == {"error": "internal", "message": "Something broke on our side."}


async def test_an_upload_stays_if_its_message_was_stored_but_the_reply_of_the_database_was_lost(tmp_path: Path) -> None:
    async def receive(message: UserAction) -> Any:
        await stored.ports.receive(message)
        raise StorageUnavailable("the reply to COMMIT was lost")

    async with staged(tmp_path) as stored, staged(tmp_path, receive=receive) as stage:
        path = f"/api/thread/{await stage.thread()}/messages"
        body = form("sum it up", ("a", b"x", "text/plain"))
        await stage.json("POST", path, data=body, status=503)
        message = only_message(stored)
        pieces = UploadSource(tmp_path / "uploads").open(message.files[0], bytes_max=10)
        assert b"".join([piece async for piece in pieces]) == b"x"


async def listed(stage: Stage, path: str, key: str, **query: Any) -> list[list[dict[str, Any]]]:
    """The pages of a list."""
    pages = list[list[dict[str, Any]]]()
    while True:
        page = await stage.json("GET", path, params=query)
        pages.append(page[key])
        if page["next_cursor"] is None:
            return pages
        query["cursor"] = page["next_cursor"]


async def test_pages_of_threads_hold_while_others_become_active(stage: Stage) -> None:
    ids = [await stage.thread() for _ in range(5)][::-1]
    page = await stage.json("GET", "/api/threads", params={"limit": 2})
    assert [one["thread_id"] for one in page["threads"]] == ids[:2]
    await stage.send(ids[0])
    await stage.send(ids[4])
    rest = await listed(stage, "/api/threads", "threads", limit=2, cursor=page["next_cursor"])
    assert [one["thread_id"] for one in rest[0]] == ids[2:4]
    pages = await listed(stage, "/api/threads", "threads", limit=2)
    assert [[one["thread_id"] for one in each] for each in pages] == [[ids[4], ids[0]], ids[1:3], ids[3:4]]


async def test_the_runs_of_a_thread_are_listed_newest_first(stage: Stage) -> None:
    thread_id, ids = await stage.thread(), list[str]()
    for _ in range(3):
        ids.append(await stage.send(thread_id))
        await stage.end(await stage.claimed(ids[-1]), RunFinished(status="completed", finish_reason="stop"))
    await stage.send(await stage.thread())
    pages = await listed(stage, f"/api/thread/{thread_id}/runs", "runs", limit=2)
    assert [[one["agent_run_id"] for one in page] for page in pages] == [[ids[2], ids[1]], [ids[0]]]
    shown = await stage.json("GET", f"/api/agent-run/{ids[0]}")
    assert pages[1][0] == {key: value for key, value in shown.items() if key != "usage"}
    await stage.json("GET", f"/api/thread/{new_id()}/runs", status=404)


@pytest.mark.parametrize("path", ["/api/threads", "/api/thread/{}/runs"])
@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "cursor=x", "cursor=", "cursor=1-%00", "cursor=9e9-a", f"cursor={'9' * 18}-a"]
)
async def test_a_page_that_is_none_is_refused(stage: Stage, path: str, query: str) -> None:
    answer = await stage.json("GET", f"{path.format(await stage.thread())}?{query}", status=400)
    assert answer["error"] == ("bad_request" if "limit" in query else "bad_cursor")
