"""Messages that people change, delete or add to while a run fetches their files or reads the thread."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bots.inbound.actions import decide_action
from core.domain.actions import MessageDeleted, MessageEdited
from core.domain.ids import new_id
from core.domain.threads import Address, ChatMessage, ChatPage, IncomingFile, Person
from core.run.execute import execute
from core.tasks import cancel, spawn
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")


class SlowSource:
    """Serves the reference of a file as its content, and the talk in the thread, once `go` is set."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.talk: list[ChatMessage] = []

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        self.began.set()
        await self.go.wait()
        yield file.file_ref.encode()

    async def read(self, address: Address, *, before: datetime, **_others: object) -> ChatPage:
        del address
        self.began.set()
        await self.go.wait()
        return ChatPage(messages=tuple(one for one in self.talk if one.sent_at < before))

    async def read_linked(self, *_arguments: object, **_others: object) -> dict[str, None]:
        return {}

    def parse_sent_at(self, message_ref: str) -> datetime:
        raise ValueError(message_ref)


def table(content: str) -> tuple[IncomingFile, ...]:
    size = len(content.encode())
    return (IncomingFile(file_ref=content, name="t.csv", mime_type="text/csv", size_bytes=size),)


@pytest.fixture
async def source(world: World, tmp_path: Path) -> AsyncIterator[SlowSource]:
    slow, boxes = SlowSource(), UnsafeProcessProvider(tmp_path / "boxes")
    world.with_deps(sandboxes=boxes, file_sources={"api": slow})
    yield slow
    await boxes.close()


Wait = tuple[SlowSource, tuple[IncomingFile, ...]]


@pytest.fixture(params=["while a file is fetched", "while the thread is read"])
def wait(world: World, source: SlowSource, request: pytest.FixtureRequest) -> Wait:
    """What a turn waits for before its request goes out, and the files of the message."""
    if request.param == "while a file is fetched":
        return source, table("a,b")
    world.address = HERE
    world.with_deps(histories={"slack": source})
    return source, ()


def said(world: World) -> list[str]:
    messages = world.model.requests[-1].messages
    return [str(one["content"]) for one in messages if one["role"] == "user"]


async def test_an_edit_before_the_request_goes_out_is_what_the_model_reads(world: World, wait: Wait) -> None:
    """With the talk before the edit, where the thread is read meanwhile: the next turn reads on from its time."""
    source, files = wait
    world.model.turns = [text("paid")]
    run_id = await world.say("pay 1000 EUR to Bob", files=files)
    running = spawn(execute(run_id, world.deps), name="run")
    await source.began.wait()
    now, bob = datetime.now(UTC), Person(person_id="U2", name="bob")
    source.talk = [ChatMessage(author=bob, text="make it 10", sent_at=now, message_ref="2")]
    edit = MessageEdited(
        address=world.address,
        dedupe_key=new_id(),
        message_ref="1",
        person=world.author,
        text="pay what Bob says",
        sent_at=now + timedelta(seconds=1),
    )
    await world.inbox.accept_action(edit, partial(decide_action, edit))
    source.go.set()
    await running
    read = said(world)
    assert "pay what Bob says" in read[-1]
    assert "1000" not in str(read)
    assert files or any("make it 10" in one for one in read)


async def test_a_deletion_before_the_request_goes_out_takes_the_message_back(world: World, wait: Wait) -> None:
    source, files = wait
    source.go.set()
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id = await world.say("count the rows")
    running = spawn(execute(run_id, world.deps), name="run")
    await world.bench.has_started("x").wait()
    source.go.clear()
    source.began.clear()
    assert await world.say("delete all mails", files=files, message_ref="2") == run_id
    world.bench.gate("x").set()
    await source.began.wait()
    deletion = MessageDeleted(
        address=world.address, dedupe_key=new_id(), message_ref="2", person=world.author, sent_at=datetime.now(UTC)
    )
    await world.inbox.accept_action(deletion, partial(decide_action, deletion))
    source.go.set()
    await running
    assert not [one for one in said(world) if "delete all mails" in one]


async def test_a_file_of_the_same_name_and_size_replaces_none_after_a_takeover(
    world: World, source: SlowSource
) -> None:
    source.go.set()
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("compared")]
    run_id = await world.say("the old prices", files=table("old,100"))
    running = spawn(execute(run_id, world.deps), name="run")
    await world.bench.has_started("x").wait()
    await cancel(running)  # a deploy: the next worker takes the run over
    assert await world.say("and the new ones", files=table("new,200")) == run_id
    world.bench.gate("x").set()
    await execute(run_id, world.deps)
    (old,) = said(world)
    assert "uploads/t.csv (" in old
    assert "uploads/t-2.csv (" in str(world.model.requests[-1].messages[-1])


async def test_a_file_that_a_dead_worker_left_is_stored_once(world: World, source: SlowSource) -> None:
    """The worker died after it had stored the file and before it had stored the message."""
    source.go.set()
    world.model.turns = [text("done")]
    run_id = await world.say("read it", files=table("a,b"))
    (run,) = await world.runs(run_id)
    assert world.deps.sandboxes is not None
    box = await world.deps.sandboxes.open(run.thread_id, fence=0)

    async def half() -> AsyncIterator[bytes]:
        yield b"a,b"

    await box.files.write("uploads/t.csv", half())
    lease = await world.deps.stores.claims.claim(run_id, "dead")
    assert lease is not None
    await world.deps.stores.claims.release(lease)
    await execute(run_id, world.deps)
    assert "uploads/t.csv (" in said(world)[0]
