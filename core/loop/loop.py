"""The agent loop: calls the model and runs its tool calls, until the model answers or asks, or a limit or a person
ends the run."""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from core.context.tokens import count_message, count_tools
from core.context.window import ContextWindow
from core.dialects.selection import write_calls_as_text
from core.domain.approval import Approval
from core.domain.errors import AnswerRejected, BudgetExceeded, ContextOverflow, ModelRejected
from core.domain.events import RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply, Usage
from core.loop.background_commands import BackgroundCommands
from core.loop.repetition import STUCK_MESSAGE, RepetitionDetector
from core.loop.run_answer import NOTHING_WRITTEN, WrittenText
from core.loop.run_context import RunContext
from core.loop.turn import CUT_OFF, EmptyResponse, Turn, TurnResult
from core.model_usage import read_text, stream_with_charge
from core.ports import ModelDelta, ModelRequest, ModelRetried, ResponseText
from core.stores import UsageEntry
from core.tasks import Stopped, await_ungrouped

log = logging.getLogger(__name__)

CALLS_TOLD_MAX = 3
STOPPED = "What was done so far is kept; write to go on."
CALL_STOPPED = "Stopped by a person before it was finished."
WITHDRAWN = "The request was deleted before it was read."
TURNS_LEFT_TOLD = frozenset((0, 1, 2, 4, 9))
"""The model is told the turn's number if one of these numbers of turns is left after it."""
REST_WANTED = (
    "[Note from the system, not from a person] Your answer reached its length limit. Continue exactly where it stopped,"
    " in the middle of the word if need be. Repeat nothing and announce nothing: both parts are joined as they are."
)


async def run_agent(
    history: Sequence[Message], context: RunContext, *, turns_done: int = 0, written: WrittenText = NOTHING_WRITTEN
) -> RunFinished | Approval:
    """Runs turns until the run ends or needs approval. Returns the terminal event or the approval. `written` is what
    earlier turns of the answer have written.

    The terminal event is not emitted, because the caller emits it in the transaction that ends the run. Raises an
    RunError if the run fails. Cancelling this function does not end the run, so another worker can continue it.
    """
    blank = base_request(context)
    window = build_window(blank, context)
    await window.load(history)
    ask_model = partial(_asked, context=context, window=window)
    continuations, watch, calls = 0, RepetitionDetector(), Counter[str]()
    commands = BackgroundCommands(history, context.tool_context, context.toolbox)
    for number in range(turns_done + 1, context.policy.turns_max + 1):
        turn = Turn(
            number=number, context=context, ask_model=ask_model, notes=window.take_cut_notes, links=lambda: window.links
        )
        try:
            end = await _ended_turn(turn, blank, window, watch, commands)
        except EmptyResponse:
            if not written.may_end:
                raise
            return written.finish("", "stop")
        if not isinstance(end, TurnResult):
            if written.is_answered and isinstance(end, RunFinished) and end.message == WITHDRAWN:
                return written.finish("", "stop")
            if isinstance(end, RunFinished) and end.finish_reason == "budget":
                return add_work_done(end, number - 1, calls, written.carried)
            return end
        window.add(end.messages)
        calls.update(outcome.call.name for outcome in end.outcomes)
        commands.record_turn(end.outcomes)
        is_cut = end.finish_reason == "length" and continuations < context.policy.continuations_max
        if end.reply is not None or not (end.has_calls or is_cut):
            return written.finish(end.text, end.finish_reason, end.reply)
        continuations += not end.has_calls
        written = written.after_turn(end.text, has_calls=end.has_calls)
        if watch.is_stuck_after(end.text, end.outcomes):
            return add_work_done(_cut_off("stop", STUCK_MESSAGE), number, calls, written.carried)
    limit = context.policy.turns_max
    ended = _cut_off("max_iterations", f"The limit of {limit} turns is reached.")
    return add_work_done(ended, limit, calls, written.carried)


async def _ended_turn(
    turn: Turn, blank: ModelRequest, window: ContextWindow, watch: RepetitionDetector, commands: BackgroundCommands
) -> TurnResult | RunFinished | Approval:
    """Runs one turn. Returns its result, the approval that it waits for, or the terminal event if a limit or a stop
    request ends the run."""
    try:
        async with turn.context.switch.stoppable():
            start = await turn.context.begin_turn()
            newest = window.newest
            wants_rest = newest is not None and bool(newest.metadata.get(CUT_OFF))
            window.add(start.heard)
            is_answered = newest is None or (newest.type == "assistant" and not wants_rest)
            if is_answered and not start.heard:  # the only request was deleted while its run began
                return RunFinished(status="stopped", finish_reason="stopped", message=WITHDRAWN)
            rest = (REST_WANTED,) if wants_rest else ()
            notes = (*rest, *watch.notes(start.heard), *await commands.take_notes())
            state = {
                **turn.context.prompt.state_in_time_zone(window.time_zone),
                "turns": turn_notice(turn.number, turn.context.policy.turns_max),
                "budget": start.budget_left,
            }
            request = await window.request(blank, notes, state=state)
            with turn.context.tool_context.metrics.time_step("turn"):
                end = await await_ungrouped(turn.run(request))
        return end.approval or end
    except BudgetExceeded as limit:
        return budget_used_up(limit)
    except Stopped:
        turn.stop(CALL_STOPPED)
        return RunFinished(status="stopped", finish_reason="stopped", message=STOPPED)


def turn_notice(number: int, turns_max: int) -> str:
    """Returns a sentence with the turn's number if TURNS_LEFT_TOLD contains the number of turns left, else an empty
    string."""
    is_told = turns_max - number in TURNS_LEFT_TOLD
    return f"This is turn {number} of at most {turns_max}." if is_told else ""


def _cut_off(reason: FinishReason, message: str, *, can_continue: bool = True) -> RunFinished:
    """Returns the terminal event of a run that a limit ended."""
    return RunFinished(status="completed", finish_reason=reason, message=message, can_continue=can_continue)


def budget_used_up(limit: BudgetExceeded) -> RunFinished:
    """Returns the terminal event of a run whose budget is used up."""
    return _cut_off("budget", str(limit), can_continue=limit.can_continue)


def add_work_done(ended: RunFinished, turns: int, calls: Counter[str], carried: str) -> RunFinished:
    """Adds what was done before the limit to the message for users. `calls` counts the tool calls by name.

    `carried` is the text of an incomplete answer, which becomes the reply."""
    if carried.strip():
        ended = replace(ended, reply=Reply(kind="answer", text=carried.strip()))
    if not turns:
        return replace(ended, message=f"{ended.message} Nothing was done in this run.")
    most = ", ".join(f"`{name}` {count}x" for name, count in calls.most_common(CALLS_TOLD_MAX))
    used = f", mostly {most}" if len(calls) > CALLS_TOLD_MAX else f": {most}" if calls else ""
    done = f"Done so far: {_count(turns, 'turn')} with {_count(calls.total(), 'tool call')}{used}. It is kept."
    return replace(ended, message=f"{ended.message} {done}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def build_window(blank: ModelRequest, context: RunContext) -> ContextWindow:
    """Returns an empty context window that accounts for the tokens of the system prompt and the tools."""
    system = sum(count_message(one) for one in blank.messages)

    async def complete(request: ModelRequest) -> ResponseText:
        """Calls the model outside a turn and returns the text. Records the usage in the ledger."""

        def charge(model: str, usage: Usage) -> None:
            context.run_log.record_usage(UsageEntry(turn_id=new_id(), model=model, usage=usage))

        return await read_text(stream_with_charge(context.ask_model(request), request, charge))

    return ContextWindow(
        model=context.model,
        run_id=context.tool_context.run_id,
        policy=context.context_policy,
        overhead_tokens=system + count_tools(blank.tools),
        complete=complete,
        emit=context.run_log.emit,
        is_native=context.dialect.name == "native",
    )


async def _asked(
    request: ModelRequest, *, context: RunContext, window: ContextWindow
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the model's response. If the model rejects the request before it responds, the request is sent again:
    shorter if it was too long, then with a summary in place of the conversation, or without its pictures."""
    remedies: list[Callable[[ModelRequest], Awaitable[ModelRequest]]] = [window.shorten, window.start_over]
    while True:
        has_begun = False
        written = write_calls_as_text(request, context.dialect.name)
        written = replace(written, can_be_shortened=bool(remedies))
        try:
            async with aclosing(context.ask_model(written)) as deltas:
                async for delta in deltas:
                    has_begun = not isinstance(delta, ModelRetried)
                    yield delta
                return
        except ContextOverflow as error:
            if has_begun or not remedies:
                raise window.build_overflow_error(error) from error
            log.warning("the request is too long for %s: %s", request.model, error.detail)
            request = await remedies.pop(0)(request)
        except ModelRejected as error:
            is_unreadable = isinstance(error, AnswerRejected)
            if has_begun or is_unreadable or not window.shows_pictures:
                raise
            log.warning("%s refused a request with pictures: %s", request.model, error.detail)
            request = await window.without_pictures(request)


def base_request(context: RunContext) -> ModelRequest:
    """Returns a model request without the conversation: the system prompt with the dialect's instructions, and the
    tools."""
    schemas, tools_text = context.dialect.request_parts(tuple(context.toolbox.specs.values()))
    system = "\n\n".join(part for part in (context.prompt.system, tools_text) if part)
    return ModelRequest(
        model=context.model,
        messages=({"role": "system", "content": system},),
        tools=schemas,
        stop_sequences=context.dialect.stop_sequences,
        is_streamed=context.policy.is_streamed,
        options=context.options,
    )
