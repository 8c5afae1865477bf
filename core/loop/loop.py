"""The agent loop: calls the model and runs its tool calls, until the model answers or asks, or a limit or a person
ends the run."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from core.context.tokens import count_message, count_tools
from core.context.window import ContextPolicy, ContextWindow
from core.dialects.dialect import Dialect
from core.dialects.selection import write_calls_as_text
from core.domain.approval import Approval
from core.domain.errors import BudgetExceeded, ContextOverflow, ModelRejected
from core.domain.events import RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply, Usage
from core.loop.calls import RunLog
from core.loop.repetition import STUCK_MESSAGE, RepetitionDetector
from core.loop.run_context import LoopPolicy
from core.loop.turn import AskModel, Turn, TurnResult
from core.model_usage import record_model_usage
from core.ports import ModelDelta, ModelRequest, TextDelta
from core.stores import UsageEntry
from core.tasks import Stopped, StopSwitch, unwrap_exception_group
from core.tools.tool import ToolContext, ToolSet

log = logging.getLogger(__name__)

TakeSteering = Callable[[], Awaitable[Sequence[Message]]]
"""Stores, emits and returns the messages that people have written since the last turn, oldest first."""

CheckBudget = Callable[[], Awaitable[None]]
"""Raises BudgetExceeded if the budget is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The settings and services that all turns of a run share."""

    model: str
    system_prompt: str
    dialect: Dialect
    toolbox: ToolSet
    context: ToolContext
    policy: LoopPolicy
    run_log: RunLog
    ask_model: AskModel
    take_steering: TakeSteering
    check_budget: CheckBudget
    switch: StopSwitch
    context_policy: ContextPolicy = field(default_factory=ContextPolicy)


async def run_agent(
    history: Sequence[Message], around: RunContext, *, turns_done: int = 0
) -> RunFinished | Approval:
    """Runs turns until the run ends or needs approval. Returns the terminal event or the approval.

    The terminal event is not emitted, because the caller emits it in the transaction that ends the run. Raises an
    AgentError if the run fails. Cancelling this function does not end the run, so another worker can continue it.
    """
    blank = base_request(around)
    window = new_window(blank, around)
    await window.load(history)
    continuations, carried = 0, ""
    watch = RepetitionDetector()
    for number in range(turns_done + 1, around.policy.turns_max + 1):
        end = await _ended_turn(new_turn(number, around, window), blank, around, window, watch)
        if not isinstance(end, TurnResult):
            return end
        window.add(end.messages)
        if end.reply is not None:
            return run_finished_event(end, carried)
        if end.finish_reason == "length" and continuations < around.policy.continuations_max:
            continuations, carried = continuations + 1, carried + end.text
        elif not end.has_calls:
            return run_finished_event(end, carried)
        if watch.is_stuck_after(end.text, end.outcomes):
            return _cut_off("stop", STUCK_MESSAGE)
    return _cut_off("max_iterations", f"The limit of {around.policy.turns_max} turns is reached.")


async def _ended_turn(
    turn: Turn,
    blank: ModelRequest,
    around: RunContext,
    window: ContextWindow,
    watch: RepetitionDetector,
) -> TurnResult | RunFinished | Approval:
    """Runs one turn. Returns its result, the approval that it waits for, or the terminal event if a limit or a stop
    request ends the run."""
    try:
        async with around.switch.stoppable():
            heard = await around.take_steering()
            await around.check_budget()
        window.add(heard)
        async with around.switch.stoppable():
            request = await window.request(blank, watch.notes(heard))
        with around.context.figures.timed("turn"):
            end = await _played(turn, request, around.switch)
        return end.approval or end
    except BudgetExceeded as limit:
        return _cut_off("budget", str(limit), can_continue=False)
    except Stopped:
        turn.cut_short("Stopped by a person before it was finished.")
        return RunFinished(
            status="stopped", finish_reason="stopped", message=stop_summary(turn.number)
        )


def _cut_off(reason: FinishReason, message: str, *, can_continue: bool = True) -> RunFinished:
    """Returns the terminal event of a run that a limit ended."""
    return RunFinished(
        status="completed", finish_reason=reason, message=message, can_continue=can_continue
    )


async def _played(turn: Turn, request: ModelRequest, switch: StopSwitch) -> TurnResult:
    ends: list[TurnResult] = []

    async def play() -> None:
        ends.append(await turn.play(request))

    async with switch.stoppable():
        await unwrap_exception_group(play())
    return ends[0]


def new_turn(number: int, around: RunContext, window: ContextWindow) -> Turn:
    return Turn(
        number=number,
        dialect=around.dialect,
        toolbox=around.toolbox,
        context=around.context,
        policy=around.policy,
        run_log=around.run_log,
        ask_model=partial(_asked, around=around, window=window),
        notes=window.notes,
    )


def new_window(blank: ModelRequest, around: RunContext) -> ContextWindow:
    """Returns an empty context window that accounts for the tokens of the system prompt and the tools."""
    system = sum(count_message(one) for one in blank.messages)
    return ContextWindow(
        model=around.model,
        run_id=around.context.run_id,
        policy=around.context_policy,
        overhead_tokens=system + count_tools(blank.tools),
        complete=partial(_completed, around=around),
        emit=around.run_log.emit,
    )


async def _asked(
    request: ModelRequest, *, around: RunContext, window: ContextWindow
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the model's response. If the model rejects the request before it responds, the request is sent once
    more: shorter if it was too long, else without its pictures."""
    has_begun = False
    try:
        async with aclosing(
            around.ask_model(write_calls_as_text(request, around.dialect.name))
        ) as deltas:
            async for delta in deltas:
                has_begun = True
                yield delta
            return
    except (ContextOverflow, ModelRejected) as error:
        if has_begun:
            raise
        request = await _otherwise(request, error, window)
    try:
        async with aclosing(
            around.ask_model(write_calls_as_text(request, around.dialect.name))
        ) as deltas:
            async for delta in deltas:
                yield delta
    except ContextOverflow as error:
        raise window.refused(error) from error


async def _otherwise(
    request: ModelRequest, error: ContextOverflow | ModelRejected, window: ContextWindow
) -> ModelRequest:
    """Returns the request to send instead of a rejected one. Raises the error if there is no alternative."""
    if isinstance(error, ContextOverflow):
        log.warning("the request is too long for %s: %s", request.model, error.detail)
        return await window.smaller(request)
    if not window.shows_pictures:
        raise error
    log.warning("%s refused a request with pictures: %s", request.model, error.detail)
    return await window.blind(request)


async def _completed(request: ModelRequest, *, around: RunContext) -> str:
    """Returns the text of a model call outside the turns. Its usage is recorded in the ledger."""

    def charge(model: str, usage: Usage) -> None:
        around.run_log.used(UsageEntry(turn_id=new_id(), model=model, usage=usage))

    async with aclosing(record_model_usage(around.ask_model(request), request, charge)) as deltas:
        return "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])


def base_request(around: RunContext) -> ModelRequest:
    """Returns a model request without the conversation: the system prompt with the dialect's instructions, and the
    tools."""
    schemas, tools_text = around.dialect.request_parts(tuple(around.toolbox.specs.values()))
    system = "\n\n".join(part for part in (around.system_prompt, tools_text) if part)
    return ModelRequest(
        model=around.model,
        messages=({"role": "system", "content": system},),
        tools=schemas,
        stop_sequences=around.dialect.stop_sequences,
        is_streamed=around.policy.is_streamed,
    )


def run_finished_event(end: TurnResult, carried: str) -> RunFinished:
    """Returns the terminal event of a run whose last turn ended with an answer or a question."""
    text = (carried + end.text).strip()
    reply = end.reply or Reply(kind="answer", text=text)
    if reply.kind == "answer" and not reply.text:
        reply = replace(reply, text=text)
    return RunFinished(status="completed", finish_reason=end.finish_reason, reply=reply)


def stop_summary(turns: int) -> str:
    """Returns a sentence that tells the people in the thread that the run was stopped."""
    return f"Stopped in turn {turns}. What was done so far is kept; write to go on."
