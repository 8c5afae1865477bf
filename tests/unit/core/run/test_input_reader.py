"""What a run reads of its inputs between two turns."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from core.domain.errors import SandboxReplaced, SurfaceError, ToolError
from core.domain.threads import ChatMessage, ChatPage, IncomingFile, Lease, Person, ThreadInput
from core.run import input_reader
from core.run.input_reader import STORED, UNHEARD, AttachmentDownloads, InputReader, prepare_user_messages
from tests.support.conversations import thread_input

ALICE, NOON = Person(person_id="U1", name="alice"), datetime(2026, 11, 28, 12, tzinfo=UTC)


def input_of(input_id: str, *files: IncomingFile) -> ThreadInput:
    return thread_input(input_id=input_id, files=files)


async def nothing(*_arguments: object) -> tuple[()]:
    return ()


class Recorder:
    """Keeps what is emitted and marked. `unread` are the inputs that each look finds."""

    def __init__(self, *unread: tuple[ThreadInput, ...]) -> None:
        self.unread, self.done = [*unread], list[str]()

    async def read_inputs(self, _lease: object = None) -> tuple[ThreadInput, ...]:
        return self.unread.pop(0) if len(self.unread) > 1 else self.unread[0]

    async def begin_turn(self, _call: object) -> tuple[tuple[()], None]:
        return (), None

    async def commit(self) -> None:
        self.done.append("commits")

    def emit(self, event: Any) -> None:
        self.done.append(f"adds {event.message.type}")

    async def note_earlier_authors(self, _thread_id: str, authors: dict[str, str]) -> None:
        self.done.append(f"notes {authors}")

    def mark_talk_read(self, _refs: object) -> None: ...

    def mark_inputs_taken(self, input_ids: list[str]) -> None:
        self.done += [f"takes {input_id}" for input_id in input_ids]


def reader(recorder: Any = None, history: object = None, *, is_draining: bool = False, attempt: int = 1) -> InputReader:
    recorder = recorder or Recorder(())
    draining = asyncio.Event()
    if is_draining:
        draining.set()
    deps: Any = SimpleNamespace(
        draining=draining,
        chat=SimpleNamespace(histories={"api": history} if history else {}, file_sources={}, file_bytes_max=1),
        stores=SimpleNamespace(
            conversations=SimpleNamespace(
                unread_talk=nothing, llm_messages=nothing, note_earlier_authors=recorder.note_earlier_authors
            ),
            journal=recorder,
        ),
    )
    lease = Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=attempt)
    thread: Any = SimpleNamespace(address=SimpleNamespace(platform="api"), earlier_authors=None)
    return InputReader(lease, thread, deps, recorder, SimpleNamespace())


async def test_a_worker_that_hands_its_runs_over_begins_no_turn() -> None:
    assert await reader(is_draining=False).take_steering() == []
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).take_steering()
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).begin_turn(SimpleNamespace())


A, B = input_of("a"), input_of("b")


@pytest.mark.parametrize(
    ("unread", "done"),
    [
        ([()], []),
        ([(A,), (A,)], ["adds user", "takes a"]),
        ([(A,), (A, B), (A, B)], ["adds user", "takes a", "adds user", "takes b"]),
        ([(A, B), (B,)], ["adds user", "takes b"]),
    ],
)
async def test_inputs_are_read_until_none_has_changed(unread: list[tuple[ThreadInput, ...]], done: list[str]) -> None:
    recorder = Recorder(*unread)
    chat = reader(recorder)
    assert not chat.has_read
    messages = await chat.take_steering()
    assert (recorder.done, len(messages), chat.has_read) == (done, len(done) // 2, True)
    assert len(recorder.unread) == 1


@pytest.mark.parametrize(("until", "done"), [(None, ["a", "b"]), (NOON, ["a", "b"]), (NOON - timedelta(days=1), [])])
async def test_what_no_run_has_read_is_added_at_its_end(until: datetime | None, done: list[str]) -> None:
    recorder = Recorder((A, B))
    await reader(recorder).store_unread_inputs(until=until)
    assert recorder.done == ["commits", *(line for name in done for line in ("adds user", f"takes {name}"))]


ROOT = ChatMessage(author=ALICE, text="the first", sent_at=NOON, message_ref="1.0")
PAGE = ChatPage(messages=(replace(ROOT, text="the last"),), root=ROOT, omitted=3)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (PAGE, ["[3 messages before these are not shown. It was not said to you.]\n", "the first", "the last"]),
        (ChatPage(messages=PAGE.messages), ["[It was not said to you.]\n", "the last"]),
        (ChatPage(), ["Nothing was said"]),
        (SurfaceError("gone"), ["The thread cannot be read just now: gone"]),
        (ValueError(), ["'9.0' is no message id"]),
    ],
)
async def test_a_tool_reads_the_thread_above(page: Any, words: list[str]) -> None:
    async def read(_address: object, *, before: str, limit: int) -> ChatPage:
        assert (before, limit > 0) == ("9.0", True)
        if isinstance(page, Exception):
            raise page
        return page

    chat = reader(history=SimpleNamespace(read=read, parse_sent_at=str)).chat
    assert chat is not None
    try:
        text = await chat.read("9.0")
    except ToolError as error:
        text = str(error)
    assert [word for word in words if word not in text] == []
    assert text.startswith(words[0])
    assert reader().chat is None


@pytest.mark.parametrize(("line", "count"), [(f"{STORED}uploads/a.txt]", 1), ("[It could not be stored: busy]", 2)])
async def test_a_file_above_is_fetched_until_it_is_stored(
    monkeypatch: pytest.MonkeyPatch, line: str, count: int
) -> None:
    fetched = list[object]()

    async def store_file(file: object, *_others: object) -> str:
        fetched.append(file)
        return line

    monkeypatch.setattr(input_reader, "store_file", store_file)
    monkeypatch.setattr(input_reader, "find_known_files", lambda _history: {"F1": "a.txt"})
    chat = reader(is_draining=False)
    assert [await chat.fetch_file("F1"), await chat.fetch_file("F1")] == [line, line]
    assert fetched == ["a.txt"] * count
    with pytest.raises(ToolError, match="There is no file 'F2'"):
        await chat.fetch_file("F2")


class Sandbox:
    """A sandbox with some files in the folder of uploads, which may be new or without that folder."""

    def __init__(self, files: dict[str, bytes], *, is_new: bool = False, content: bytes = b"text") -> None:
        self.stored, self.is_new, self.content, self.files = files, is_new, content, self

    async def open(self) -> Any:
        if self.is_new:
            self.is_new = False
            raise SandboxReplaced("It is new.")
        return self

    async def list(self, folder: str) -> list[Any]:
        if not self.stored:
            raise ToolError("no folder")
        return [SimpleNamespace(path=f"{folder}/{name}", size_bytes=len(self.stored[name])) for name in self.stored]

    async def write(self, path: str, content: bytes) -> int:
        if path == "uploads/bad":
            raise ToolError("No.")
        self.stored[path.removeprefix("uploads/")] = content
        return len(content)

    async def read(self, path: str, *, length: int) -> AsyncGenerator[bytes]:
        assert length > len(self.stored[path.removeprefix("uploads/")])
        yield self.stored[path.removeprefix("uploads/")]

    def download(self, _file: object, *, bytes_max: int) -> bytes:
        assert bytes_max == 7
        return self.content


PLAIN = "application/octet-stream"


def stored(name: str, mime_type: str = PLAIN, size: int = 4) -> str:
    return f"{STORED}uploads/{name} ({mime_type}, {size} bytes)]"


@pytest.mark.parametrize(
    ("sandbox", "files", "lines", "picture_count"),
    [
        (Sandbox({}), {"a.md": PLAIN, "b": PLAIN}, [stored("a.md"), stored("b")], 0),
        (Sandbox({}, is_new=True), {"a.md": PLAIN}, ["[It is new.]", stored("a.md")], 0),
        (Sandbox({"a.md": b"other"}), {"a.md": PLAIN}, [stored("a-2.md")], 0),
        (Sandbox({"a.md": b"same"}), {"a.md": PLAIN}, [stored("a.md")], 0),
        (Sandbox({"seen": b"same", "seen-2": b"same"}), {"seen": PLAIN}, [stored("seen-2")], 0),
        (Sandbox({}), {"bad": PLAIN}, ["[Attached file bad could not be stored: No.]"], 0),
        (Sandbox({}), {"a.ogg": "audio/ogg"}, [stored("a.ogg", "audio/ogg"), UNHEARD.strip()], 0),
        (Sandbox({}), {"a.PNG": PLAIN}, [stored("a.PNG")], 0),
        (Sandbox({}, content=b"PNG"), {"a.PNG": ""}, [stored("a.PNG", "", 3)], 1),
        (Sandbox({}, content=b"PNG"), {"a": "image/png"}, [stored("a", "image/png", 3)], 1),
        (Sandbox({}, content=b"PNG"), {"a": PLAIN}, [stored("a", PLAIN, 3)], 0),
        (Sandbox({}, content=b"PNG"), {"a.png": "text/x"}, [stored("a.png", "text/x", 3)], 0),
        (None, {"a.md": PLAIN}, ["[Attached file a.md: it cannot be fetched here]"], 0),
    ],
)
async def test_a_request_names_its_files_and_shows_its_pictures(
    monkeypatch: pytest.MonkeyPatch, sandbox: Any, files: dict[str, str], lines: list[str], picture_count: int
) -> None:
    async def prepare_picture(content: bytes, *, name: str) -> bytes:
        if content != b"PNG":
            raise ToolError(f"{name} is no picture")
        return content

    monkeypatch.setattr(input_reader, "prepare_picture", prepare_picture)
    monkeypatch.setattr(input_reader, "build_picture_message", lambda shown, place, **_others: shown)
    sent = tuple(IncomingFile(file_ref=name, name=name, mime_type=kind, size_bytes=4) for name, kind in files.items())
    sources: Any = {"slack": SimpleNamespace(open=sandbox.download)} if sandbox else {}
    uploads = AttachmentDownloads(
        sources=sources, platform="slack", bytes_max=7, is_named=lambda path: path == "uploads/seen"
    )
    *pictures, message = await prepare_user_messages(thread_input(files=sent), "r", sandbox, set(), uploads)
    assert str(message.content["content"]).split("\n")[-len(lines) :] == lines
    assert pictures == [b"PNG"] * picture_count


FILES = tuple(IncomingFile(file_ref=name, name=name) for name in "abcdef")
WITH_FILES = replace(ROOT, text="see these", files=FILES, message_ref="0.5")
APP = replace(ROOT, author=Person(person_id="B1", name="bot"), message_ref="0.6", is_app=True)
NOTED = "notes {'U1': 'alice'}"
OTHERS = "notes {'U1': 'alice', '?': 'others'}"
READ = ["adds user", "takes a"]


@pytest.mark.parametrize(
    ("page", "text", "done", "fetched"),
    [
        (ChatPage(), "look", ["notes {}", *READ], 0),
        (ChatPage(messages=(WITH_FILES, APP)), "look", [NOTED, "adds user", *READ], 0),
        (ChatPage(messages=(WITH_FILES,)), "what does the file say?", [NOTED, "adds user", *READ], 5),
        (ChatPage(messages=(APP,)), "what does the file say?", ["notes {}", "adds user", *READ], 0),
        (ChatPage(messages=(APP,), root=WITH_FILES, omitted=3), "look", [OTHERS, "adds user", *READ], 0),
        (SurfaceError("gone"), "look", ["adds user", *READ], 0),
    ],
)
async def test_what_was_said_before_is_read_with_its_files(
    monkeypatch: pytest.MonkeyPatch, page: Any, text: str, done: list[str], fetched: int
) -> None:
    stored_files = list[str]()

    async def store_file(file: IncomingFile, _names: object, _sandbox: object, uploads: AttachmentDownloads) -> str:
        stored_files.append(file.name)
        assert [uploads.is_named(f"uploads/{name}") for name in ("known", "new")] == [True, False]
        return f"{STORED}uploads/{file.name}]"

    async def read(*_arguments: object, **_others: object) -> ChatPage:
        if isinstance(page, Exception):
            raise page
        return page

    monkeypatch.setattr(input_reader, "store_file", store_file)
    recorder = Recorder((replace(A, text=text),))
    chat = reader(recorder, SimpleNamespace(read=read), attempt=2)
    known: Any = SimpleNamespace(content={"content": f"{STORED}uploads/known]"}, metadata={}, sequence=1)
    chat.remember_history([known])
    await chat.take_steering()
    assert (recorder.done, stored_files) == (done, [file.name for file in FILES[len(FILES) - fetched :]])
    if "notes {}" not in done and isinstance(page, ChatPage):
        assert "uploads/a" in await chat.fetch_file("0.5/1")
