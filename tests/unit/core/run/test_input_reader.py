"""What a run reads of its inputs between two turns."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from core.domain.errors import ToolError
from core.domain.threads import Lease
from core.run import input_reader
from core.run.input_reader import STORED, InputReader


async def nothing(*_arguments: object) -> tuple[()]:
    return ()


async def no_turn(_call: object) -> tuple[tuple[()], None]:
    return (), None


def reader(*, is_draining: bool) -> InputReader:
    draining = asyncio.Event()
    if is_draining:
        draining.set()
    deps: Any = SimpleNamespace(
        draining=draining,
        chat=SimpleNamespace(histories={}, file_sources={}, file_bytes_max=1),
        stores=SimpleNamespace(conversations=SimpleNamespace(unread_talk=nothing, llm_messages=nothing)),
    )
    lease = Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=1)
    thread: Any = SimpleNamespace(address=SimpleNamespace(platform="api"), earlier_authors=None)
    recorder: Any = SimpleNamespace(read_inputs=nothing, begin_turn=no_turn)
    return InputReader(lease, thread, deps, recorder, SimpleNamespace())


async def test_a_worker_that_hands_its_runs_over_begins_no_turn() -> None:
    assert await reader(is_draining=False).take_steering() == []
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).take_steering()
    with pytest.raises(asyncio.CancelledError):
        await reader(is_draining=True).begin_turn(SimpleNamespace())


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
