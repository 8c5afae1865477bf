"""What an attempt that was cut off has come to already, read from what it left."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from core.dialects.dialect import DisplayText
from core.domain.events import RunFinished
from core.domain.messages import Message, ToolCall
from core.domain.threads import Lease, Reply, ToolCallRecord
from core.flow.messages import newest_sign
from core.flow.planner import draft_tool, new_draft, with_tools
from core.flow.setup import Flow
from core.loop.calls import ENDING_TOOLS, executed
from core.loop.loop import Surroundings
from core.ports import TextDelta
from core.run.engine import Engine
from core.tools.tool import prepare

Calls = Callable[[], Awaitable[Sequence[ToolCallRecord]]]
"""The calls of the run on record."""


async def around_of(flow: Flow, history: Sequence[Message]) -> Surroundings:
    """What the calls were made in that the newest words of the flow have led to."""
    sign = newest_sign(history)
    if sign is not None and sign.phase == "step" and sign.agent in flow.team:
        return flow.team[sign.agent].around
    draft = new_draft(flow, history)
    plan = await flow.plan()
    if sign is not None and sign.phase == "review" and plan is not None:
        draft = replace(draft, plan_id=plan.plan_id)
    return with_tools(flow.planner, tuple(flow.planner.toolbox.tools), draft_tool(draft))


async def ended_before(lease: Lease, engine: Engine, around: Surroundings) -> RunFinished | None:
    """The end that a run without a plan had come to: its last turn ended by itself, and the run was not ended."""
    told = await engine.conversations.messages(lease.thread_id)
    own = [one for one in told if one.run_id == lease.run_id]
    reasons = [one.content.get("finish_reason") for one in own if one.type == "status"]
    if [one for one in reasons if one][-1:] not in (["stop"], ["agent_terminated"]):
        return None
    return await left_over(own, partial(engine.journal.calls, lease.run_id), around)


async def left_over(
    history: Sequence[Message], calls: Calls, around: Surroundings
) -> RunFinished | None:
    """The end that the newest part had come to, where nothing but its being noted down is missing."""
    messages = [one for one in history if one.is_llm_message]
    if not messages:
        return None
    last = messages[-1]
    if last.type == "assistant" and not last.content.get("tool_calls"):
        reply = Reply(kind="answer", text=_visible(str(last.content.get("content") or ""), around))
        return RunFinished(status="completed", finish_reason="stop", reply=reply)
    if last.type == "tool":
        return await _ended_by_call(last, calls, around)
    return None


async def _ended_by_call(last: Message, calls: Calls, around: Surroundings) -> RunFinished | None:
    assistant_id = last.metadata.get("assistant_message_id")
    for record in await calls():
        if record.assistant_message_id != assistant_id or record.name not in ENDING_TOOLS:
            continue
        if (record.result or {}).get("success") and record.name in around.toolbox.tools:
            return await _again(record, around)
    return None


async def _again(record: ToolCallRecord, around: Surroundings) -> RunFinished | None:
    """These tools only say how a run ends, so asking them again changes nothing."""
    call = ToolCall(name=record.name, arguments=record.arguments, call_id=record.call_id)
    prepared = prepare(record.name, record.arguments, around.toolbox)
    outcome = await executed(call, prepared, around.context)
    if outcome.reply is None:
        return None
    return RunFinished(status="completed", finish_reason="agent_terminated", reply=outcome.reply)


def _visible(text: str, around: Surroundings) -> str:
    parser = around.dialect.parser(around.toolbox.specs)
    parsed = [*parser.feed(TextDelta(text=text)), *parser.close(is_whole=True)]
    return "".join(one.text for one in parsed if isinstance(one, DisplayText)).strip()
