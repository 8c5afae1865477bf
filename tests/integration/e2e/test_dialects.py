"""One whole run in each dialect, through the program and its HTTP API: a file, a command, a question, its answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.e2e.dialect_stories import ANSWER, CALLS, LABELS, QUESTION
from tests.integration.e2e.http_talk import Talk, talk

MARKUP = ("<function_calls", "<invoke", "</", "<parameter", "Action:", "Action Input:", "Thought:")
Gist = tuple[str, str | None, str | None]


async def stream(talk: Talk, run_id: str) -> list[Gist]:
    """Everything but chunks, in order, as (type, status type, finish reason); `chunks` are kept by turn."""
    gists: list[Gist] = []
    async with talk.http.get(f"/api/agent-run/{run_id}/stream") as response:
        async for shape in _shapes(response):
            if shape.get("message_id", "") is None:
                talk.chunks[-1].append(shape)
                continue
            gists.append(_gist(shape))
            if gists[-1][1] == "thread_run_start":
                talk.chunks.append([])
            if gists[-1][1] == "tool_started":
                _let_go(talk)
    return gists


def _let_go(talk: Talk) -> None:
    """The first command of a run waits for the file of its turn, so that all that follows it is read live."""
    for upload in talk.folder.glob("**/uploads/numbers.csv"):
        (upload.parent.parent / f"go-{len(talk.chunks)}").touch()


async def _shapes(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    assert response.status == 200
    async for raw in response.content:
        if raw.startswith(b"data: "):
            yield json.loads(raw[6:])


def _gist(shape: dict[str, Any]) -> Gist:
    if "status" in shape:
        return "end", shape["status"], None
    content = json.loads(shape["content"])
    return shape["type"], content.get("status_type"), content.get("finish_reason")


def _status(name: str, reason: str | None = None) -> Gist:
    return "status", name, reason


def _whole(kind: str) -> Gist:
    return kind, None, None


def without_state(gists: Sequence[Gist]) -> list[Gist]:
    """Leaves out what the program tells the model, which depends on the time."""
    return [one for one in gists if one != _whole("status")]


def turn(*, early: str | None = None, late: str | None = None) -> list[Gist]:
    """A turn with one call: a finish before the assistant's message, or after the tool's."""
    return [
        _status("thread_run_start"),
        _status("assistant_response_start"),
        _status("tool_started"),
        *([_status("finish", early)] if early else []),
        _whole("assistant"),
        _status("tool_completed"),
        _whole("tool"),
        *([_status("finish", late)] if late else []),
        _status("thread_run_end"),
    ]


TALKED = [
    _status("thread_run_start"),
    _status("assistant_response_start"),
    _whole("assistant"),
    _status("finish", "stop"),
    _status("thread_run_end"),
]
END: Gist = ("end", "completed", None)


async def play(talk: Talk) -> tuple[list[Gist], list[Gist]]:
    """The story: a file and a request, then the answer to the question. Both streams."""
    form = aiohttp.FormData()
    form.add_field("text", "Please add up this file.")
    form.add_field("file", b"20,22\n", filename="numbers.csv")
    path = f"/api/thread/{talk.thread_id}/messages"
    async with asyncio.timeout(60):
        first = await stream(talk, (await talk.post(path, data=form))["agent_run_id"])
        thread = await talk.thread()
        assert thread["state"] == "waiting"
        assert thread["ask"]["text"] in (QUESTION, f"Two ways are open.\n\n{QUESTION}")
        assert thread["ask"]["options"] == ["of all", "of one"]
        second = await stream(talk, (await talk.post(path, json={"text": "of all"}))["agent_run_id"])
    assert (await talk.thread())["state"] == "idle"
    talk.script.check()
    return first, second


def executions(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    contents = [json.loads(one["content"]) for one in messages if one["type"] == "tool"]
    return [json.loads(one["content"])["tool_execution"] for one in contents]


def shown(talk: Talk) -> list[str]:
    """The live text of each turn; the pieces of a turn are numbered from 0."""
    texts: list[str] = []
    for chunks in talk.chunks:
        numbers = [chunk["sequence"] for chunk in chunks]
        assert numbers == sorted(set(numbers))
        live = [json.loads(chunk["content"]) for chunk in chunks if chunk["type"] == "assistant"]
        texts.append("".join(piece["content"] for piece in live))
    return texts


async def no_markup(talk: Talk, messages: list[dict[str, Any]]) -> None:
    statuses = [json.loads(one["content"]) for one in messages if one["type"] == "status"]
    told = [str(one.get("message") or "") for one in statuses]
    for text in (*shown(talk), *told):
        assert not any(mark in text for mark in MARKUP), text


CASES = [
    ("native", "0", CALLS, (None, "tool_calls", "agent_terminated")),
    ("xml", "0", CALLS, (None, "tool_calls", "agent_terminated")),
    ("xml", "1", CALLS, ("xml_tool_limit_reached", None, "agent_terminated")),
    ("react", "0", LABELS, (None, "tool_calls", "agent_terminated")),
]


@pytest.mark.parametrize(("dialect", "limit", "story", "reasons"), CASES)
async def test_a_whole_story_is_told_in_the_promised_order(
    tmp_path: Path, dialect: str, limit: str, story: str, reasons: tuple[str | None, str | None, str | None]
) -> None:
    early, works, ends = reasons
    async with talk(tmp_path, story, dialect=dialect, max_xml_tool_calls=limit) as told:
        first, second = map(without_state, await play(told))
        working, ending = turn(early=early, late=works), turn(early=early, late=ends)
        assert first == [_whole("user"), *working, *ending, END]
        last = TALKED if dialect == "react" else ending
        assert second == [_whole("user"), *working, *working, *last, END]
        messages = await told.messages()
        assert [one["type"] for one in messages if one["is_llm_message"] and one["type"] != "status"] == [
            *("user", "assistant", "tool", "assistant", "tool"),
            *("user", "assistant", "tool", "assistant", "tool", "assistant"),
            *(() if dialect == "react" else ("tool",)),
        ]
        stored = without_state([_gist(one) for one in messages])
        assert stored == [*first[:-1], *second[:-1]]
        await no_markup(told, messages)
        await told_exactly(told, messages, dialect)


async def told_exactly(talk: Talk, messages: list[dict[str, Any]], dialect: str) -> None:
    """Results, roles, and the file that was written are those of the dialect."""
    done = executions(messages)
    names = ["execute_command", "ask", "execute_command", "create_file", "complete"]
    assert [one["function_name"] for one in done] == names[: len(done)]
    assert all(one["result"]["success"] for one in done)
    assert all((one["tool_call_id"] is not None) == (dialect == "native") for one in done)
    tools = [json.loads(one["content"]) for one in messages if one["type"] == "tool"]
    assert {one["role"] for one in tools} == {"tool" if dialect == "native" else "user"}
    answers = [json.loads(one["content"]) for one in messages if one["type"] == "assistant"]
    assert all((one["tool_calls"] is not None) == (dialect == "native") for one in answers)
    thread = await talk.thread()
    place = f"/api/sandboxes/{thread['sandbox_id']}/files/content?path=sum.md"
    async with talk.http.get(place) as response:
        assert (await response.text()) == "    42 < 43 && done\n"
    live = shown(talk)
    if dialect == "react":
        assert live[-1].strip() == ANSWER
    else:
        assert live[1].strip() == "Two ways are open."
        assert live[3].strip() == "Then I write it down."
