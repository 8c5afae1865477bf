"""Which result of an interrupted run counts for the worker that takes it over."""

from typing import Any

import pytest

from core.domain.messages import Message, MessageType
from core.domain.threads import ToolCallRecord
from core.flow.run_flow import recover_result
from core.loop.turn import CUT_OFF
from core.tools.replies import complete
from tests.fakes.memory_run import THREAD_ID, MemoryRun
from tests.fakes.streamed_model import StreamedModel


def message(kind: MessageType, *, is_llm_message: bool = True, **content: Any) -> Message:
    metadata = content.pop("metadata", {})
    return Message(
        type=kind,
        content=content,
        is_llm_message=is_llm_message,
        thread_id=THREAD_ID,
        message_id=kind,
        metadata=metadata,
    )


CALLING = message("assistant", content="Here:", tool_calls=[{"id": "c"}])
RESULT = message("tool", content="{}", metadata={"assistant_message_id": "assistant"})
IMAGE = message("image_context", is_llm_message=False)
DONE = {"success": True, "output": None, "error": None}


@pytest.mark.parametrize(
    ("history", "call", "result", "reply"),
    [
        ([message("assistant", content="All done.")], "", DONE, "All done."),
        ([message("assistant", content="All done."), IMAGE], "", DONE, "All done."),
        ([message("assistant", content="The first ha", metadata={CUT_OFF: True})], "", DONE, None),
        ([message("user", content="Go on.")], "", DONE, None),
        ([CALLING], "complete", DONE, None),
        ([CALLING, RESULT], "complete", DONE, "Here:\n\nSent."),
        ([CALLING, RESULT], "complete", {**DONE, "success": False}, None),
        ([CALLING, RESULT], "echo", DONE, None),
        ([RESULT], "complete", DONE, None),
        ([], "", DONE, None),
    ],
)
async def test_only_a_whole_answer_or_a_call_that_ends_the_run_is_its_result(
    history: list[Message], call: str, result: Any, reply: str | None
) -> None:
    async def calls() -> list[ToolCallRecord]:
        record = ToolCallRecord(
            run_id="run", turn_id="turn", index=0, call_id="c", name=call, arguments={"text": "Sent."}, raw="",
            assistant_message_id="assistant", state="finished", result=result,
        )  # fmt: skip
        return [record] if call else []

    context = MemoryRun(StreamedModel([]), tools=[complete]).context()
    end = await recover_result(history, calls, context)
    assert (end and end.reply and end.reply.whole_text) == reply
