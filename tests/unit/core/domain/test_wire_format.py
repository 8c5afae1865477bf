"""The wire shape, field by field."""

import json
import re
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.events import (
    ActivityChanged,
    AgentEvent,
    ChecklistChanged,
    ChecklistItem,
    Cursor,
    ErrorRaised,
    FinishReached,
    MessageAdded,
    ResponseStarted,
    RunEvent,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from core.domain.json import JsonObject
from core.domain.messages import Message, MessageType
from core.domain.wire_format import compact_json, message_object, status_message, suna_objects
from tests.paths import REPOSITORY

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05+00:00"


def placed(event: AgentEvent, *, message_id: str | None = "m1", turn: str | None = "t1") -> RunEvent:
    return RunEvent(
        run_id="r1",
        thread_id="th1",
        cursor=Cursor(1, 1),
        event=event,
        turn_id=turn,
        message_id=message_id,
        agent_id="a1",
        agent_version_id="v1",
        created_at=MOMENT,
    )


def only(event: AgentEvent, **place: Any) -> dict[str, Any]:
    """The one object of the event, with content and metadata parsed back."""
    (shape,) = suna_objects(placed(event, **place))
    read: dict[str, Any] = dict(shape)
    for field in ("content", "metadata"):
        if field in read:
            assert isinstance(read[field], str)
            read[field] = json.loads(read[field])
    return read


def test_a_chunk_of_text_has_a_sequence_and_no_message_id() -> None:
    assert only(TextStreamed(text="Hé", sequence=7), message_id=None) == {
        "message_id": None,
        "sequence": 7,
        "thread_id": "th1",
        "type": "assistant",
        "is_llm_message": True,
        "content": {"role": "assistant", "content": "Hé"},
        "metadata": {"stream_status": "chunk", "thread_run_id": "t1"},
        "created_at": STAMP,
        "updated_at": STAMP,
    }


def test_a_chunk_of_a_native_call_carries_the_arguments_so_far() -> None:
    shape = only(ToolCallStreamed(index=1, call_id="c1", name="execute_command", arguments="{", sequence=3))
    assert (shape["type"], shape["sequence"], shape["message_id"]) == ("status", 3, None)
    assert shape["content"] == {
        "role": "assistant",
        "status_type": "tool_call_chunk",
        "tool_call_chunk": {
            "id": "c1",
            "index": 1,
            "type": "function",
            "function": {"name": "execute_command", "arguments": "{"},
        },
    }


def test_thinking_is_a_status_that_a_client_may_skip() -> None:
    shape = only(ThinkingStreamed(text="hm", sequence=0))
    assert (shape["type"], shape["is_llm_message"]) == ("status", False)
    assert shape["content"]["status_type"] == "thinking_chunk"


def test_a_started_tool_is_named_twice_with_underscores_and_with_dashes() -> None:
    shape = only(ToolStarted(index=0, call_id="c1", name="create_file", title="Writing a.txt"))
    assert shape == {
        "message_id": "m1",
        "thread_id": "th1",
        "type": "status",
        "is_llm_message": False,
        "content": {
            "role": "assistant",
            "status_type": "tool_started",
            "function_name": "create_file",
            "xml_tag_name": "create-file",
            "message": "Writing a.txt",
            "tool_index": 0,
            "tool_call_id": "c1",
        },
        "metadata": {"thread_run_id": "t1"},
        "agent_id": "a1",
        "agent_version_id": "v1",
        "created_at": STAMP,
        "updated_at": STAMP,
    }


def finished(outcome: Any, *, terminates: bool = False) -> ToolFinished:
    return ToolFinished(
        index=0, call_id="c1", name="ask", outcome=outcome, message="done", tool_message_id="m9", terminates=terminates
    )


def test_a_completed_tool_links_its_result() -> None:
    shape = only(finished("completed"))
    assert shape["content"]["status_type"] == "tool_completed"
    assert shape["metadata"] == {"thread_run_id": "t1", "linked_tool_result_message_id": "m9"}


def test_a_terminating_tool_says_so_as_the_text_true() -> None:
    metadata = only(finished("completed", terminates=True))["metadata"]
    assert metadata["agent_should_terminate"] == "true"


@pytest.mark.parametrize("outcome", ["failed", "error"])
def test_a_tool_that_did_not_work_links_nothing(outcome: str) -> None:
    shape = only(finished(outcome))
    assert shape["content"]["status_type"] == f"tool_{outcome}"
    assert shape["metadata"] == {"thread_run_id": "t1"}


@pytest.mark.parametrize(
    ("event", "content"),
    [
        (TurnStarted(turn_id="t1", number=1), {"status_type": "thread_run_start", "thread_run_id": "t1"}),
        (TurnFinished(turn_id="t1"), {"status_type": "thread_run_end", "thread_run_id": "t1"}),
        (ResponseStarted(), {"status_type": "assistant_response_start"}),
        (
            FinishReached(reason="xml_tool_limit_reached"),
            {"status_type": "finish", "finish_reason": "xml_tool_limit_reached"},
        ),
        (ErrorRaised(message="No."), {"role": "system", "status_type": "error", "message": "No."}),
        (
            ChecklistChanged(title="Plan", items=(ChecklistItem(text="a", state="done"),)),
            {"status_type": "checklist", "title": "Plan", "items": [{"text": "a", "state": "done"}]},
        ),
        (ActivityChanged(text="Starting"), {"status_type": "activity", "message": "Starting"}),
    ],
)
def test_a_status_on_the_wire_and_in_the_thread_is_the_same(event: AgentEvent, content: JsonObject) -> None:
    shape, row = only(event), status_message(placed(event))
    assert shape["content"] == content
    assert row is not None
    assert (row.content, row.metadata) == (content, {"thread_run_id": "t1"})
    assert (row.type, row.is_llm_message, row.message_id) == ("status", False, "m1")
    assert (row.run_id, row.thread_id, row.created_at) == ("r1", "th1", MOMENT)
    assert (row.agent_id, row.agent_version_id) == ("a1", "v1")


def test_a_turn_mark_names_its_turn_even_where_the_envelope_does_not() -> None:
    shape = only(TurnStarted(turn_id="t5", number=1), turn=None)
    assert shape["metadata"] == {"thread_run_id": "t5"}


def message(kind: Any, content: JsonObject, metadata: JsonObject | None = None) -> Message:
    return Message(
        type=kind,
        content=content,
        is_llm_message=True,
        thread_id="th1",
        metadata=metadata or {},
        message_id="m2",
        agent_id="a1",
        created_at=MOMENT,
    )


def test_a_whole_assistant_message_is_complete_and_has_tool_calls() -> None:
    shape = only(MessageAdded(message=message("assistant", {"role": "assistant", "content": "x"})))
    assert (shape["message_id"], shape["type"], shape["agent_id"]) == ("m2", "assistant", "a1")
    assert "sequence" not in shape
    assert shape["content"] == {"role": "assistant", "content": "x", "tool_calls": None}
    assert shape["metadata"] == {"stream_status": "complete", "thread_run_id": "t1"}


def test_native_tool_calls_are_kept() -> None:
    calls: JsonObject = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}
    assert only(MessageAdded(message=message("assistant", calls)))["content"] == calls


def test_a_tool_message_keeps_its_metadata() -> None:
    stored = message("tool", {"role": "user", "content": "{}"}, {"assistant_message_id": "m1"})
    shape = only(MessageAdded(message=stored))
    assert shape["metadata"] == {"assistant_message_id": "m1", "thread_run_id": "t1"}
    assert stored.metadata == {"assistant_message_id": "m1"}
    assert json.loads(str(message_object(stored)["metadata"])) == {"assistant_message_id": "m1"}


@pytest.mark.parametrize("status", ["completed", "stopped"])
def test_a_run_ends_with_its_bare_status(status: Any) -> None:
    end = RunFinished(status=status, finish_reason="stop", message="Done.")
    assert suna_objects(placed(end)) == ({"type": "status", "status": status, "message": "Done."},)


def test_a_failed_run_never_says_completed() -> None:
    assert suna_objects(placed(RunFailed(public_message="It broke."))) == (
        {"type": "status", "status": "failed", "message": "It broke."},
    )


@pytest.mark.parametrize(
    "event",
    [
        TextStreamed(text="x", sequence=0),
        ThinkingStreamed(text="x", sequence=0),
        ToolCallStreamed(index=0, call_id="c", name="n", arguments="", sequence=0),
        MessageAdded(message=message("user", {"role": "user", "content": "hi"})),
        RunFinished(status="completed", finish_reason="stop"),
        RunFailed(public_message="x"),
    ],
)
def test_chunks_messages_and_the_end_leave_no_status_row(event: AgentEvent) -> None:
    assert status_message(placed(event)) is None


def test_a_status_without_an_id_gets_one() -> None:
    row = status_message(placed(ResponseStarted(), message_id=None))
    assert row is not None
    assert len(row.message_id) == 36


@given(st.text())
def test_any_text_stays_on_one_line_and_comes_back_whole(text: str) -> None:
    (shape,) = suna_objects(placed(TextStreamed(text=text, sequence=0)))
    line = compact_json(shape)
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(json.loads(line)["content"])["content"] == text


def test_every_event_is_documented() -> None:
    page = (REPOSITORY / "docs" / "developers" / "http-api.md").read_text("utf-8")
    statuses = re.findall(r'"status_type": "([a-z_]+)"', (REPOSITORY / "core/domain/wire_format.py").read_text("utf-8"))
    assert len(statuses) >= 12
    assert [one for one in (*statuses, *get_args(MessageType)) if f"`{one}`" not in page] == []
