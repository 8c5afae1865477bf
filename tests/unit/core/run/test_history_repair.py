"""What is made up for after a worker has died in the middle of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.approval import (
    APPROVE_ONCE,
    DENY,
    EXPIRED,
    NOBODY_APPROVED,
    ONE_BY_ONE,
    Approval,
    CallToApprove,
    Cause,
)
from core.domain.call_consent import Reach
from core.domain.errors import ApprovalExpired
from core.domain.events import AgentEvent, Cursor, RunEvent, ToolFinished, TurnFinished, TurnStarted
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message, ToolCall
from core.domain.sources import SOURCES_KEY, dump_sources, parse_sources, sources_read_now
from core.domain.threads import Ask, Person, Reply, ToolCallRecord
from core.loop.calls import CAUSE_KEY, REPLY_KEY, stored_reply
from core.run.history_repair import (
    INTERRUPTED,
    NEVER_STARTED,
    RepairContext,
    RepairedHistory,
    end_open_turns,
    repair_history,
)
from core.tools.replies import complete
from core.tools.tool import Tool, ToolContext, ToolOutput, ToolSet, prepare_call
from tests.fakes.memory_run import MemoryRunLog
from tests.support.narrow import require_type


def begun(turn_id: str) -> TurnStarted:
    return TurnStarted(turn_id=turn_id, number=1)


def ended(turn_id: str) -> TurnFinished:
    return TurnFinished(turn_id=turn_id)


@pytest.mark.parametrize(
    ("events", "made_up"),
    [
        ([], []),
        ([begun("1"), ended("1")], []),
        ([begun("1")], ["1"]),
        ([begun("1"), ended("1"), begun("2")], ["2"]),
        ([begun("1"), begun("2"), ended("1")], ["2"]),
        ([ended("0"), begun("1")], ["1"]),
    ],
)
def test_each_turn_that_was_begun_has_an_end(events: list[AgentEvent], made_up: list[str]) -> None:
    stored = [RunEvent(run_id="r", thread_id="t", cursor=Cursor(1, n), event=event) for n, event in enumerate(events)]
    log = MemoryRunLog()
    end_open_turns(stored, log)
    assert log.events == [TurnFinished(turn_id=turn_id, is_mended=True) for turn_id in made_up]


class Text(BaseModel):
    """Takes a text."""

    text: str = "a"


ALICE = Person(person_id="U1", name="alice")
DONE: JsonObject = {"success": True, "output": "it is done", "error": None}
BROKEN: JsonObject = {"success": False, "output": None, "error": "it broke"}
FETCHED = dump_sources(sources_read_now(("page", "https://a.example/")))


@dataclass
class Repair:
    """One repair over a journal in memory. `ran` has each call that was run, with who approved it."""

    history: Sequence[Message] = ()
    answer: Ask | None = None
    granted: frozenset[str] = frozenset()
    runs_calls: bool = True
    ran: list[tuple[str, Person | None]] = field(default_factory=list[tuple[str, Person | None]])
    log: MemoryRunLog = field(default_factory=MemoryRunLog)

    def __post_init__(self) -> None:
        async def no_sandbox() -> Any:
            raise AssertionError("no sandbox is needed here")

        def tool(name: str, *, is_idempotent: bool = False, is_asked: bool = False) -> Tool[Text]:
            async def run(_params: Text, context: ToolContext) -> ToolOutput:
                assert not is_asked or self.log.records["turn", "c0"].state == "started"
                self.ran.append((name, context.approved_by))
                image = Message(type="image_context", content={}, is_llm_message=False, thread_id="thread")
                return ToolOutput(output=f"{name} ran", messages=(image,))

            return Tool(
                name=name, effect="acts", reach=Reach("connects", targets=("b.example",)), params=Text, run=run,
                title=lambda _params: name, is_idempotent=is_idempotent,
                needs_approval=(lambda _params: f"Do {name}?") if is_asked else None,
            )  # fmt: skip

        tools = [tool("write"), tool("look", is_idempotent=True), tool("send", is_asked=True), complete]
        self.tools = ToolSet({each.name: each for each in tools})
        self.context = ToolContext(thread_id="thread", run_id="run", sandbox=no_sandbox)

    async def play(self, *records: ToolCallRecord) -> RepairedHistory:
        self.log.records = {(each.turn_id, each.call_id): each for each in records}
        self.log.durable = {*self.log.records}
        repair = RepairContext(
            toolbox=self.tools, context=self.context, run_log=self.log, answer=self.answer,
            granted=self.granted,
        )  # fmt: skip
        return await repair_history(
            self.history, records, repair if self.runs_calls else replace(repair, runs_calls=False)
        )

    @property
    def results(self) -> list[str]:
        return [str(message.content["content"]) for message in self.log.messages if message.type == "tool"]


State = Literal["awaiting", "started", "finished"]


def record(name: str, state: State = "started", index: int = 0, **changes: Any) -> ToolCallRecord:
    values: dict[str, Any] = {
        "run_id": "run", "turn_id": "turn", "assistant_message_id": "said", "arguments": {}, "call_id": f"c{index}",
        "raw": f'<invoke name="{name}">\n</invoke>', "name": name, "state": state, "index": index,
    }  # fmt: skip
    return ToolCallRecord(**{**values, **changes})


def to_approve(index: int) -> CallToApprove:
    return prepare_call("send", {}, Repair().tools).to_approve(index)


def asked(answer: str, *indexes: int, state: Any = "answered", turn_id: str = "turn") -> Ask:
    subject = Approval(turn_id=turn_id, calls=tuple(map(to_approve, indexes))).subject
    return Ask(ask_id="a", run_id="run", text="?", kind="approval", answer=answer, answered_by=ALICE, subject=subject,
               state=state)  # fmt: skip


def assistant(content: JsonObject, run_id: str = "run", message_id: str = "said") -> Message:
    return Message(type="assistant", content=content, is_llm_message=True, thread_id="thread", run_id=run_id,
                   message_id=message_id, metadata={"thread_run_id": "turn"})  # fmt: skip


@pytest.mark.parametrize(
    ("call", "state", "changes", "settings", "outcome", "parts"),
    [
        ("write", "started", {}, {}, "error", [INTERRUPTED]),
        ("gone", "started", {}, {}, "error", [INTERRUPTED, "no tool named"]),
        ("gone", "awaiting", {}, {}, "error", ["no tool named"]),
        ("look", "started", {}, {}, "completed", ["look ran"]),
        ("look", "started", {}, {"runs_calls": False}, "error", [INTERRUPTED]),
        ("write", "finished", {"result": DONE}, {}, "completed", ["it is done"]),
        ("write", "finished", {"result": BROKEN}, {}, "failed", ["it broke"]),
        ("complete", "finished", {"result": BROKEN}, {}, "failed", ["it broke"]),
        ("send", "awaiting", {}, {"runs_calls": False}, "error", [NEVER_STARTED]),
        ("send", "awaiting", {}, {"answer": asked(APPROVE_ONCE, 0)}, "completed", ["send ran"]),
        ("send", "awaiting", {}, {"answer": asked(DENY, 0)}, "error", ["alice denied it"]),
        ("send", "awaiting", {}, {"answer": asked("", 0, state="withdrawn")}, "error", [NOBODY_APPROVED]),
        ("send", "awaiting", {}, {"granted": frozenset([to_approve(0).grant])}, "completed", ["send ran"]),
    ],
)
async def test_a_call_has_one_result(
    call: str, state: State, changes: JsonObject, settings: dict[str, Any], outcome: str, parts: list[str]
) -> None:
    repair = Repair(**settings)
    mended = await repair.play(record(call, state, metadata={SOURCES_KEY: FETCHED}, **changes))
    assert mended.approval is None
    *images, lost, result = mended.messages
    assert lost.message_id == "said"
    assert str(lost.content).count(call) == 1
    assert [part for part in [*parts, call] if part not in repair.results[0]] == []
    assert (INTERRUPTED in repair.results[0]) is (INTERRUPTED in parts)
    (end,) = [event for event in repair.log.events if isinstance(event, ToolFinished)]
    assert (end.outcome, end.index, end.tool_message_id) == (outcome, 0, result.message_id)
    assert result.metadata["assistant_message_id"] == "said"
    assert bool(parse_sources(result.metadata[SOURCES_KEY]).read) is (state == "finished")
    runs, is_asked = outcome == "completed" and state != "finished", state == "awaiting"
    approver = ALICE if is_asked and repair.answer else None
    assert repair.ran == ([(call, approver)] if runs else [])
    started = ["tool_started"] if runs and is_asked else []
    assert len(images) == runs
    image = ["message_added"] if runs else []
    around = ["turn_started", *started, *image, "message_added", "tool_finished", "message_added", "turn_finished"]
    assert repair.log.kinds() == around
    assert repair.log.events[-1] == TurnFinished(turn_id="turn", is_mended=True)
    assert repair.log.records["turn", "c0"].state == "finished"
    assert repair.context.opened_hosts == ({"host:b.example"} if runs or changes.get("result") == DONE else set())


@pytest.mark.parametrize("answer", [None, asked(ONE_BY_ONE, 0, 2), asked(APPROVE_ONCE, 0, 2, turn_id="earlier")])
async def test_people_are_asked_about_what_nobody_has_asked_yet_and_the_others_have_results(answer: Ask | None) -> None:
    repair = Repair(answer=answer)
    cause = Cause(because="a page", unnamed=("b.example",))
    waits = record("send", "awaiting", 2, metadata={CAUSE_KEY: cause.dump()})
    mended = await repair.play(record("send", "awaiting"), record("write", index=1), waits)
    question = mended.approval
    assert isinstance(question, Approval)
    is_one_by_one = answer is not None and answer.answer == ONE_BY_ONE
    assert question.calls == (to_approve(0), replace(to_approve(2), cause=cause))[: 1 if is_one_by_one else 2]
    assert question.turn_id == "turn"
    assert [message.type for message in mended.messages] == ["assistant"]
    assert [repair.log.records["turn", call].state for call in ("c0", "c1", "c2")] == [
        "awaiting",
        "finished",
        "awaiting",
    ]
    assert repair.log.kinds() == ["turn_started", "message_added", "turn_finished"]
    assert repair.log.events[-1] == TurnFinished(turn_id="turn", is_mended=True)


async def test_an_approval_that_expired_ends_the_run_after_the_repair() -> None:
    repair = Repair(answer=asked("", 0, state="expired"))
    with pytest.raises(ApprovalExpired, match=EXPIRED[:20]):
        await repair.play(record("send", "awaiting"))
    assert NOBODY_APPROVED in repair.results[0]


async def test_a_stored_result_is_not_made_again_and_its_reply_stays() -> None:
    calls = [ToolCall(name=name, arguments={}, call_id=f"c{at}") for at, name in enumerate(("write", "complete"))]
    said = assistant(NativeDialect().assistant_content("I wrote.", calls))
    repair = Repair(
        history=[assistant({"content": "x"}, message_id="1"), assistant({"content": "x"}, "other", "2"), said]
    )
    end = record("complete", "finished", 1, result=DONE, metadata={REPLY_KEY: {"kind": "answer", "text": "Ready."}})
    mended = await repair.play(record("write", "finished", result=BROKEN), end)
    assert repair.log.events[0] == TurnStarted(turn_id="turn", number=2)
    assert [message.type for message in mended.messages] == ["tool", "tool"]
    assert stored_reply(repair.log.records["turn", "c1"]) == Reply(kind="answer", text="Ready.")


@pytest.mark.parametrize(
    ("dialect", "count"), [*((NativeDialect(), count) for count in range(3)), (XmlDialect(), 1), (XmlDialect(), 2)]
)
async def test_a_call_that_is_in_no_journal_was_never_started(dialect: Dialect, count: int) -> None:
    form: JsonObject = {"format": dialect.name}
    named = enumerate(("write", "look"))
    records = [record(name, "finished", at, result=DONE, metadata=form) for at, name in named]
    calls = [ToolCall(name=each.name, arguments={}, call_id=each.call_id, raw=each.raw) for each in records]
    written = f"<function_calls>\n{''.join(call.raw for call in calls)}</function_calls>"
    text = "" if dialect.name == "native" else written
    repair = Repair(history=[assistant(dialect.assistant_content(text, calls))])
    await repair.play(*records[:count])
    assert [NEVER_STARTED in result for result in repair.results] == [False] * count + [True] * (2 - count)
    answered = Repair(history=[*repair.history, *repair.log.messages])
    assert (await answered.play(*records[:count])).messages == ()


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
async def test_a_lost_message_is_written_again_from_its_calls_and_is_the_newest_turn(dialect: Dialect) -> None:
    repair = Repair(history=[assistant({"content": "first"}, message_id="1")])
    thought: JsonObject = {"format": dialect.name, REASONING_KEY: {"content": "hm"}}
    records = [record("write", metadata=thought), record("look", index=1)]
    lost = next(each for each in (await repair.play(*records)).messages if each.type == "assistant")
    assert repair.log.events[0] == TurnStarted(turn_id="turn", number=2)
    assert (lost.content[REASONING_KEY], lost.run_id, lost.is_llm_message) == (thought[REASONING_KEY], "run", True)
    assert lost.token_count
    written = "\n".join(each.raw for each in records)
    is_text = dialect.name == "xml"
    assert lost.content["content"] == (f"<function_calls>\n{written}\n</function_calls>" if is_text else None)


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
async def test_a_result_is_written_in_the_dialect_of_its_call(dialect: Dialect) -> None:
    call = ToolCall(name="look", arguments={}, call_id="c0", raw="look")
    repair = Repair(history=[assistant(dialect.assistant_content("look", [call]))])
    await repair.play(record("look", metadata=dialect.parsing_details(call)))
    (result,) = [message for message in repair.log.messages if message.type == "tool"]
    assert result.content["role"] == ("tool" if dialect.name == "native" else "user")
    assert require_type(result.metadata["parsing_details"], dict)["format"] == dialect.name
