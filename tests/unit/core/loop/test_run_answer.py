"""The answer of a run: what its turns wrote, and what counts for the worker that takes it over."""

from dataclasses import replace
from typing import Any

import pytest

from core.context.background_messages import FLOW_KEY
from core.domain.json import JsonObject
from core.domain.messages import Message, MessageType
from core.domain.threads import Reply, ToolCallRecord
from core.loop.calls import REPLY_KEY
from core.loop.run_answer import WrittenText, recover_answer
from core.loop.turn import CUT_OFF
from core.tools.replies import complete
from tests.fakes.memory_run import THREAD_ID, MemoryRun
from tests.fakes.streamed_model import StreamedModel

SENT: JsonObject = {"kind": "answer", "text": "Sent.", "attachments": ["a.png"], "options": [], "preface": ""}


def message(kind: MessageType, text: str = "", *, is_llm_message: bool = True, **metadata: Any) -> Message:
    return Message(
        type=kind, content={"content": text}, is_llm_message=is_llm_message, thread_id=THREAD_ID, run_id="run",
        message_id=text, metadata=metadata,
    )  # fmt: skip


def said(text: str) -> Message:
    return message("assistant", text)


def cut(text: str) -> Message:
    return message("assistant", text, **{CUT_OFF: True})


def result(of: str) -> Message:
    return message("tool", "{}", assistant_message_id=of)


LEFT = replace(message("status", is_llm_message=False), content={"status_type": "reply_left"})
STEP = message("user", "Do step 2.", **{FLOW_KEY: {"phase": "step"}})
IMAGE = message("image_context", is_llm_message=False)
OTHER = replace(said("Of another run."), run_id="other")
HERE = [said("Here:"), result("Here:")]


@pytest.mark.parametrize(
    ("history", "reply", "answer", "written"),
    [
        ([said("All done.")], None, "All done.", WrittenText()),
        ([said("All done."), IMAGE], None, "All done.", WrittenText()),
        ([OTHER], None, None, WrittenText()),
        ([message("user", "Go on.")], None, None, WrittenText()),
        ([cut("The first ha")], None, None, WrittenText("The first ha", is_cut=True, newest="The first ha")),
        ([cut("The first ha"), said("lf. ")], None, "The first half.",
         WrittenText("The first ha", is_cut=True, newest="The first ha")),
        ([cut("The first "), *HERE, said("Done.")], None, "The first Here:\n\nDone.",
         WrittenText("The first Here:\n\n", newest="Here:")),
        ([*HERE, said("Done.")], None, "Done.", WrittenText(newest="Here:")),
        (HERE, SENT, "Here:\n\nSent.", WrittenText()),
        (HERE, {**SENT, "text": ""}, "Here:", WrittenText()),
        ([said("Look:"), result("Look:"), said(""), result("")], {**SENT, "text": ""}, "Look:",
         WrittenText(newest="Look:")),
        (HERE, None, None, WrittenText(newest="Here:")),
        ([said("Here:")], SENT, "Here:", WrittenText()),
        ([cut("Left al"), said("ready."), LEFT, said("New.")], None, "New.", WrittenText()),
        ([said("Ready."), LEFT, message("user", "thanks!")], None, None, WrittenText()),
        ([said("Of step 1."), STEP], None, None, WrittenText()),
        ([cut("Of step"), STEP, said("Of step 2.")], None, "Of step 2.", WrittenText()),
        ([], None, None, WrittenText()),
    ],
)  # fmt: skip
async def test_the_answer_of_an_interrupted_run_is_what_it_wrote_since_its_newest_reply(
    history: list[Message], reply: JsonObject | None, answer: str | None, written: WrittenText
) -> None:
    async def calls() -> list[ToolCallRecord]:
        record = ToolCallRecord(
            run_id="run", turn_id="turn", index=0, call_id="c", name="any", arguments={}, raw="",
            assistant_message_id=history[-1].metadata.get("assistant_message_id", "") if history else "",
            metadata={} if reply is None else {REPLY_KEY: reply},
        )  # fmt: skip
        return [replace(record, assistant_message_id="earlier"), record]

    context = MemoryRun(StreamedModel([]), tools=[complete]).context()
    found, end = await recover_answer(history, calls, context)
    assert found == written
    assert (end and end.reply and end.reply.whole_text) == answer
    if reply and end and end.finish_reason == "agent_terminated":
        assert end.reply is not None
        assert end.reply.attachments == ("a.png",)


@pytest.mark.parametrize(
    ("written", "text", "reply", "parts"),
    [
        (WrittenText(), "Done. ", None, ("", "Done.")),
        (WrittenText("One, ", is_cut=True, newest="One,"), "two.", None, ("", "One, two.")),
        (WrittenText("One, ", is_cut=True, newest="One,"), "", None, ("", "One,")),
        (WrittenText(newest="Earlier."), "", None, ("", "Earlier.")),
        (WrittenText(newest="Earlier."), "", Reply(kind="answer", text=""), ("", "Earlier.")),
        (WrittenText(newest="Earlier."), "", Reply(kind="answer", text="Late."), ("", "Late.")),
        (WrittenText("One.\n\n"), "So:", Reply(kind="ask", text="Which?"), ("One.\n\nSo:", "Which?")),
        (WrittenText("One.\n\n"), "So:", Reply(kind="silence", text=""), ("", "")),
    ],
)
def test_a_run_ends_with_all_that_its_answer_has_written(
    written: WrittenText, text: str, reply: Reply | None, parts: tuple[str, str]
) -> None:
    end = written.finish(text, "stop", reply)
    assert end.reply is not None
    assert (end.reply.preface, end.reply.text) == parts
    assert end.reply.kind == (reply.kind if reply else "answer")
