"""A program inside that lies: whatever it sends, the host survives it, bounded, and says that the sandbox is lost."""

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.domain.errors import LeaseLost, SandboxUnavailable, ToolError
from core.tasks import cancel, spawn
from sandbox.client import connection
from sandbox.client.connection import FRAMES_AT_ONCE_MAX, Connection
from sandbox.client.sandbox_client import SandboxClient
from sandbox.inside import protocol
from tests.support.sandboxes import content, pieces, run


@dataclass(slots=True)
class Liar:
    """The other end of the stream, in the hands of the test."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: Connection
    sandbox: SandboxClient

    async def take(self) -> tuple[int, int, bytes]:
        length, kind, channel = protocol.HEADER.unpack(await self.reader.readexactly(9))
        return kind, channel, await self.reader.readexactly(length)

    def send(self, kind: int, channel: int, payload: bytes) -> None:
        self.writer.write(protocol.encode_frame(kind, channel, payload))

    def answer(self, value: Any, kind: int = protocol.RESULT, channel: int = 1) -> None:
        self.send(kind, channel, json.dumps(value).encode())


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    made = await make_liar()
    yield made
    await close(made)


async def make_liar() -> Liar:
    ours, theirs = socket.socketpair()
    connection = Connection(*await asyncio.open_connection(sock=ours), label="test")
    reader, writer = await asyncio.open_connection(sock=theirs)
    sandbox = SandboxClient(connection, fence=1, stop=connection.close)
    return Liar(reader, writer, connection, sandbox)


async def close(liar: Liar) -> None:
    await liar.connection.close()
    liar.writer.close()
    with contextlib.suppress(OSError):  # the connection may have been cut on purpose
        await liar.writer.wait_closed()


async def test_a_loss_beside_an_answer_that_is_there_already_has_been_told_to_nobody(liar: Liar) -> None:
    liar.answer({"protocol": protocol.PROTOCOL_VERSION}, protocol.HELLO, channel=0)
    await liar.connection.wait_for_hello(30)
    asked = spawn(liar.connection.call("stat"), name="a call")
    await asyncio.sleep(0)
    (call,) = liar.connection._calls.values()
    call.answer.set_result({})
    liar.connection.mark_lost("over a limit")
    assert liar.connection.loss_was_reported is False
    assert await asked == {}


async def test_a_loss_that_a_waiting_call_receives_has_been_told(liar: Liar) -> None:
    liar.answer({"protocol": protocol.PROTOCOL_VERSION}, protocol.HELLO, channel=0)
    await liar.connection.wait_for_hello(30)
    asked = spawn(liar.connection.call("stat"), name="a call")
    await asyncio.sleep(0)
    liar.connection.mark_lost("over a limit")
    assert liar.connection.loss_was_reported is True
    with pytest.raises(SandboxUnavailable):
        await asked


@pytest.mark.parametrize("answer_seconds", [0.05, 30])
async def test_a_loss_that_only_housekeeping_receives_has_been_told_to_nobody(
    liar: Liar, answer_seconds: float
) -> None:
    liar.answer({"protocol": protocol.PROTOCOL_VERSION}, protocol.HELLO, channel=0)
    await liar.connection.wait_for_hello(30)
    asking = liar.connection.call("quota", answer_seconds=answer_seconds, is_housekeeping=True)
    asked = spawn(asking, name="a call")
    if answer_seconds == 30:
        await asyncio.sleep(0)
        liar.connection.mark_lost("over a limit")
    with pytest.raises(SandboxUnavailable):
        await asked
    assert liar.connection.loss_was_reported is False


GOOD_OUTPUT = {"output": "x", "exit_code": 0, "folder": "/workspace", "dropped_bytes": 0, "output_path": None}


@pytest.mark.parametrize(
    "lie",
    [
        {},
        {**GOOD_OUTPUT, "output": 7},
        {**GOOD_OUTPUT, "output": "x" * 500_000},
        {**GOOD_OUTPUT, "exit_code": "0"},
        {**GOOD_OUTPUT, "exit_code": True},
        {**GOOD_OUTPUT, "exit_code": 1e300},
        {**GOOD_OUTPUT, "exit_code": 4711},
        {**GOOD_OUTPUT, "folder": None},
        {**GOOD_OUTPUT, "folder": "x" * 10_000},
        {**GOOD_OUTPUT, "dropped_bytes": -1},
        {**GOOD_OUTPUT, "output_path": ["x"]},
        [],
        "text",
        None,
    ],
)
async def test_an_answer_of_a_wrong_shape_loses_the_sandbox(liar: Liar, lie: Any) -> None:
    waiting = asyncio.ensure_future(run(liar.sandbox, "true"))
    await liar.take()
    liar.answer(lie)
    with pytest.raises(SandboxUnavailable):
        await waiting
    assert liar.connection.is_lost


@pytest.mark.parametrize(
    "bytes_sent",
    [
        protocol.HEADER.pack(0xFFFFFFFF, protocol.RESULT, 1),
        protocol.HEADER.pack(protocol.DATA_BYTES_MAX + 1, protocol.DATA, 1),
        protocol.HEADER.pack(1, protocol.END, 1) + b"x",
        protocol.encode_frame(99, 1),
        protocol.encode_frame(protocol.RESULT, 1, b"{"),
        protocol.encode_frame(protocol.RESULT, 1, b"\xff\xfe"),
        protocol.encode_frame(protocol.RESULT, 1, b"[" * 200_000),
        protocol.encode_frame(protocol.RESULT, 77, b"{}"),
        protocol.encode_frame(protocol.RESULT, 0, b"{}"),
        protocol.encode_frame(protocol.DATA, 1, b"not requested"),
        protocol.encode_frame(protocol.CREDIT, 1, b"abc"),
        protocol.encode_frame(protocol.ERROR, 1, b"{}"),
        protocol.encode_frame(protocol.HELLO, 0, b'{"protocol": 99}'),
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"",
    ],
)
async def test_a_broken_frame_loses_the_sandbox(liar: Liar, bytes_sent: bytes) -> None:
    waiting = asyncio.ensure_future(run(liar.sandbox, "true"))
    await liar.take()
    liar.writer.write(bytes_sent)
    liar.writer.close()
    with pytest.raises(SandboxUnavailable):
        await waiting
    with pytest.raises(SandboxUnavailable):
        await run(liar.sandbox, "true")


async def test_more_data_than_the_window_loses_the_sandbox(liar: Liar) -> None:
    stream = liar.sandbox.files.read("file")
    first = asyncio.ensure_future(anext(stream))
    await liar.take()
    for _ in range(20):
        liar.send(protocol.DATA, 1, bytes(protocol.DATA_BYTES_MAX))
    await first
    async with asyncio.timeout(30):
        while not liar.connection.is_lost:  # though nobody has taken what came
            await asyncio.sleep(0)
    with pytest.raises(SandboxUnavailable):
        _ = [piece async for piece in stream]


async def test_data_without_bytes_loses_the_sandbox(liar: Liar) -> None:
    stream = liar.sandbox.files.read("file")
    first = asyncio.ensure_future(anext(stream))
    await liar.take()
    liar.send(protocol.DATA, 1, b"x")
    assert await first == b"x"
    liar.send(protocol.DATA, 1, b"")  # the window would let any number of them pile up
    with pytest.raises(SandboxUnavailable):
        await anext(stream)


async def test_a_second_hello_loses_the_sandbox(liar: Liar) -> None:
    for _ in range(2):
        liar.answer({"protocol": protocol.PROTOCOL_VERSION}, kind=protocol.HELLO, channel=0)
    async with asyncio.timeout(30):
        while not liar.connection.is_lost:  # each costs the host the reading of up to 4 MB of JSON
            await asyncio.sleep(0)


async def test_small_pieces_are_paid_for_in_large_amounts(liar: Liar) -> None:
    count = 3 * protocol.DATA_BYTES_MAX
    waiting = asyncio.ensure_future(content(liar.sandbox, "file"))
    await liar.take()
    liar.writer.write(protocol.encode_frame(protocol.DATA, 1, b"x") * count)
    liar.answer({})
    assert len(await waiting) == count
    liar.connection.mark_lost("the test is over")
    # a credit is longer than such a piece: for each of them one, unread, would fill the memory of the host
    assert len(await liar.reader.read()) < 100


async def test_more_bytes_than_asked_for_lose_the_sandbox(liar: Liar) -> None:
    waiting = asyncio.ensure_future(anext(liar.sandbox.files.read("file", length=10)))
    await liar.take()
    liar.send(protocol.DATA, 1, b"x" * 11)
    with pytest.raises(SandboxUnavailable):
        await waiting


async def test_credit_without_end_does_not_make_the_host_send_without_end(liar: Liar) -> None:
    waiting = asyncio.ensure_future(liar.sandbox.files.write("file", pieces(*[bytes(2**20)] * 4)))
    await liar.take()
    taken = 0
    while taken < 4 * 2**20:
        kind, _, payload = await liar.take()
        assert kind == protocol.DATA
        liar.send(protocol.CREDIT, 1, struct.pack(">I", 2**32 - 1))
        taken += len(payload)
    liar.answer({"size_bytes": taken})
    assert await waiting == taken


async def test_a_stream_waits_for_credit_as_long_as_it_takes(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program at its end may read when it likes: that is no reason to give up the sandbox."""
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.05)
    stream = liar.connection.stream("connect", port=1)
    writing = asyncio.ensure_future(stream.write(bytes(protocol.WINDOW_BYTES + 1)))
    taken = 0
    await liar.take()
    while taken < protocol.WINDOW_BYTES:
        taken += len((await liar.take())[2])
    await asyncio.sleep(0.2)
    assert (writing.done(), liar.connection.is_lost) == (False, False)
    liar.send(protocol.CREDIT, 1, struct.pack(">I", taken))
    await writing
    stream.close()


async def test_frames_without_end_leave_others_their_turn(liar: Liar) -> None:
    sent, lengths, everything = 5_000, [0], asyncio.Event()

    def deliver(_kind: int, _payload: bytes) -> None:
        lengths[-1] += 1
        if sum(lengths) == sent:
            everything.set()

    async def take_turns() -> None:
        while True:
            lengths.append(0)
            await asyncio.sleep(0)

    channel = liar.connection.open_call_for_process(b"{}", deliver)
    others = spawn(take_turns(), name="others")
    for _ in range(sent):
        liar.send(protocol.END, channel, b"")
    async with asyncio.timeout(30):
        await everything.wait()
    await cancel(others)
    assert max(lengths) <= FRAMES_AT_ONCE_MAX


async def test_an_error_is_told_without_harm(liar: Liar) -> None:
    waiting = asyncio.ensure_future(content(liar.sandbox, "file"))
    await liar.take()
    liar.answer({"code": 5, "message": "\ud800" + "long" * 5000}, kind=protocol.ERROR)
    with pytest.raises(ToolError) as caught:
        await waiting
    assert len(str(caught.value).encode()) <= 2000
    assert not liar.connection.is_lost


async def test_a_stale_fence_is_a_lost_lease(liar: Liar) -> None:
    waiting = asyncio.ensure_future(run(liar.sandbox, "true"))
    await liar.take()
    liar.answer({"code": "stale", "message": "x"}, kind=protocol.ERROR)
    with pytest.raises(LeaseLost):
        await waiting


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"path": "a", "kind": "door", "size_bytes": 1, "modified_at": 1.0},
        {"path": "a", "kind": "file", "size_bytes": -1, "modified_at": 1.0},
        {"path": "a", "kind": "file", "size_bytes": 1, "modified_at": float("nan")},
        {"path": 5, "kind": "file", "size_bytes": 1, "modified_at": 1.0},
    ],
)
async def test_a_listing_of_a_wrong_shape_loses_the_sandbox(liar: Liar, entry: Any) -> None:
    waiting = asyncio.ensure_future(liar.sandbox.files.list(""))
    await liar.take()
    liar.answer({"entries": [entry]})
    with pytest.raises(SandboxUnavailable):
        await waiting


async def test_all_that_wait_learn_of_the_end(liar: Liar) -> None:
    calls = [
        asyncio.ensure_future(run(liar.sandbox, "true")),
        asyncio.ensure_future(content(liar.sandbox, "file")),
        asyncio.ensure_future(liar.sandbox.interrupt()),
        asyncio.ensure_future(liar.sandbox.files.write("f", pieces(*[bytes(2**20)] * 9))),
    ]
    await asyncio.sleep(0.05)
    liar.writer.transport.abort()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [SandboxUnavailable] * 4


async def test_no_hello_is_told(liar: Liar) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        await liar.connection.wait_for_hello(0.05)
    assert "hello" not in str(caught.value)
    assert "hello" in caught.value.detail


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(
    st.binary(max_size=60),
    st.builds(protocol.encode_frame, st.integers(0, 10), st.integers(0, 3), st.binary(max_size=20)),
    st.builds(lambda v: protocol.encode_frame(protocol.RESULT, 1, json.dumps(v).encode()),
              st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                           lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3))),
), max_size=6))  # fmt: skip
def test_noise_ends_in_an_answer_or_a_loss(noise: list[bytes]) -> None:
    async def play() -> None:
        liar = await make_liar()
        waiting = asyncio.ensure_future(run(liar.sandbox, "true"))
        await liar.take()
        liar.writer.write(b"".join(noise))
        liar.writer.write_eof()
        try:
            async with asyncio.timeout(30):
                await waiting
        except (SandboxUnavailable, ToolError, LeaseLost):
            pass
        await close(liar)

    asyncio.run(play())


def test_the_frames_of_the_two_ends_are_one() -> None:
    assert protocol.payload_bytes_max(protocol.DATA) == protocol.DATA_BYTES_MAX
    assert protocol.payload_bytes_max(200) == -1
    with pytest.raises(ValueError, match="too large"):
        protocol.encode_json_frame(protocol.OPEN, 1, {"x": os.urandom(3_000_000).hex()})
