"""What people see of the turn that ends a run: the text beside the call, and the reply."""

import pytest

from bots.delivery.run_view import RunView, apply_event
from core.domain.events import RunFinished, TextStreamed, ToolFinished, ToolStarted
from core.domain.threads import QUESTION_CHARACTERS_MAX, Reply
from core.run.run_end import build_delivery_drafts
from core.tools.replies import AskParams, ask, complete
from core.tools.tool import ToolSet, prepare_call
from tests.fakes.memory_run import MemoryRun
from tests.fakes.streamed_model import StreamedModel, calls

LONG = "The revenue of May grew by 12 % against April because two new shops opened in the north."
FINDINGS = "The revenue grew by 12 %.\n\n| month | EUR |\n|---|---|\n| May | 7 |"


async def ended_with(name: str, arguments: str, said: str) -> Reply:
    run = MemoryRun(StreamedModel([calls((name, arguments), said=said)]), tools=[ask, complete])
    end = await run.start("go")
    assert isinstance(end, RunFinished)
    assert end.reply is not None
    return end.reply


async def test_what_is_written_beside_complete_stands_before_the_reply() -> None:
    reply = await ended_with("complete", '{"text": "Done, see above."}', FINDINGS)
    (answer,) = build_delivery_drafts(reply, 0)
    assert answer.body == {"text": f"{FINDINGS}\n\nDone, see above."}


async def test_facts_and_a_short_question_are_one_message() -> None:
    reply = await ended_with("ask", '{"text": "Which colour?", "options": ["red"]}', "Two fit.")
    (question,) = build_delivery_drafts(reply, 0)
    assert question.body == {"text": "Two fit.\n\nWhich colour?", "options": ["red"]}


async def test_a_long_text_beside_a_question_is_a_message_of_its_own() -> None:
    long = "word " * QUESTION_CHARACTERS_MAX
    reply = await ended_with("ask", '{"text": "Which colour?"}', long)
    answer, question = build_delivery_drafts(reply, 0)
    assert (answer.slot, answer.body["text"]) == ("answer", long.strip())
    assert (question.slot, question.body["text"]) == ("ask", "Which colour?")


async def test_attached_addresses_are_added_to_the_text() -> None:
    reply = await ended_with(
        "complete", '{"text": "Done.", "attachments": "HTTPS://a.example/x, https://b.example/"}', ""
    )
    (answer,) = build_delivery_drafts(reply, 0)
    assert answer.body == {"text": "Done.\nHTTPS://a.example/x\nhttps://b.example/"}


@pytest.mark.parametrize(
    ("beside", "text", "shown"),
    [
        ("It is done.", "**It is done**", "It is done."),
        ("Yes.", "Yes. The file is in place.", "Yes. The file is in place."),
        ("All 3 checks pass: it is done.", "It is done.", "All 3 checks pass: it is done."),
        ("All done", "", "All done"),
        ("", "Hello", "Hello"),
        ("look", "ok", "look\n\nok"),
        (LONG, LONG.replace("grew", "rose"), LONG.replace("grew", "rose")),
        (LONG, "In short: two new shops.", f"{LONG}\n\nIn short: two new shops."),
        ("終わりました", "確認してください", "終わりました\n\n確認してください"),
    ],
)
def test_what_says_the_same_is_said_once(beside: str, text: str, shown: str) -> None:
    assert Reply(kind="answer", text=text, preface=beside).whole_text == shown


def test_narration_is_the_line_of_its_step() -> None:
    view = RunView()
    said = TextStreamed(text="I have the file.\n\nNow I count\nthe rows.", sequence=0)
    started = ToolStarted(index=0, call_id="a", name="execute_command", title="Running wc")
    for event in (said, started):
        view = apply_event(view, event)
    assert (view.activity, view.preview) == ("Now I count the rows.", "")
    (task,) = view.tasks
    assert (task.title, task.detail) == ("Running wc", "Now I count the rows.")
    second = ToolStarted(index=1, call_id="b", name="execute_command", title="Running sort")
    done = ToolFinished(
        index=0, call_id="a", name="execute_command", outcome="completed", message="",
        tool_message_id="m", terminates=False,
    )  # fmt: skip
    for event in (second, done):
        view = apply_event(view, event)
    assert [task.detail for task in view.tasks] == ["Now I count the rows.", ""]


def test_the_text_of_the_reply_is_not_repeated_in_the_status() -> None:
    view = apply_event(RunView(), TextStreamed(text="The answer is 4.", sequence=0))
    started = ToolStarted(index=0, call_id="a", name="complete", title="Finishing")
    assert not any(task.detail for task in apply_event(view, started).tasks)


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (["yes", ""], ("yes",)),
        ([" ", ""], ()),
        (["red", "red ", "blue"], ("red", "blue")),
        ("red, red, blue", ("red", "blue")),
        ('["red", "", "red"]', ("red",)),
        ([1, 2.5, 1], ("1", "2.5")),
        (["only one"], ("only one",)),
        (["x" * 300 + "1", "x" * 300 + "2"], ("x" * 300 + "1", "x" * 300 + "2")),
    ],
)
def test_each_option_of_a_question_is_offered_once_and_none_is_blank(given: object, offered: tuple[str, ...]) -> None:
    prepared = prepare_call("ask", {"text": "Which?", "options": given}, ToolSet({"ask": ask}))
    assert isinstance(prepared.params, AskParams)
    assert prepared.params.options == offered
