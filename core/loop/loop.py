"""The agent loop: calls the model and runs its tool calls, until the model answers or asks, or a limit or a person
ends the run."""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from core.context.background_messages import FLOW_KEY
from core.context.tokens import count_message, count_tools
from core.context.window import ContextWindow
from core.dialects.dialect import DisplayText, parse_message, visible_text
from core.dialects.selection import write_calls_as_text
from core.domain.approval import Approval
from core.domain.errors import AnswerRejected, BudgetExceeded, ContextOverflow, ModelRejected
from core.domain.events import RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply, Usage
from core.loop.background_commands import BackgroundCommands
from core.loop.repetition import STUCK_MESSAGE, RepetitionDetector
from core.loop.run_context import RunContext
from core.loop.turn import CUT_OFF, EmptyResponse, Turn, TurnResult
from core.model_usage import read_text, stream_with_charge
from core.ports import ModelDelta, ModelRequest, ModelRetried, ResponseText
from core.stores import UsageEntry
from core.tasks import Stopped, await_ungrouped

log = logging.getLogger(__name__)

CALLS_TOLD_MAX = 3
STOPPED = "What was done so far is kept; write to go on."
WITHDRAWN = "The request was deleted before it was read."
TURNS_LEFT_TOLD = frozenset((0, 1, 2, 4, 9))
"""The model is told the turn's number if one of these numbers of turns is left after it."""
REST_WANTED = (
    "[Note from the system, not from a person] Your answer reached its length limit. Continue exactly where it stopped,"
    " in the middle of the word if need be. Repeat nothing and announce nothing: both parts are joined as they are."
)


async def run_agent(history: Sequence[Message], context: RunContext, *, turns_done: int = 0) -> RunFinished | Approval:
    """Runs turns until the run ends or needs approval. Returns the terminal event or the approval.

    The terminal event is not emitted, because the caller emits it in the transaction that ends the run. Raises an
    RunError if the run fails. Cancelling this function does not end the run, so another worker can continue it.
    """
    blank = base_request(context)
    window = build_window(blank, context)
    await window.load(history)
    ask_model = partial(_asked, context=context, window=window)
    continuations, (carried, is_cut) = 0, resume_cut_off_answer(history, context)
    run_id, dialect, specs = context.tool_context.run_id, context.dialect, context.toolbox.specs
    own = (one for one in reversed(history) if one.type == "assistant" and one.run_id == run_id)
    said = next(filter(None, (visible_text(message, dialect, specs).strip() for message in own)), "")
    watch, calls = RepetitionDetector(), Counter[str]()
    commands = BackgroundCommands(history, context.tool_context, context.toolbox)
    for number in range(turns_done + 1, context.policy.turns_max + 1):
        turn = Turn(
            number=number, context=context, ask_model=ask_model, notes=window.take_cut_notes, links=lambda: window.links
        )
        try:
            end = await _ended_turn(turn, blank, window, watch, commands)
        except EmptyResponse:
            if not said:
                raise
            reply = Reply(kind="answer", text=said)
            return RunFinished(status="completed", finish_reason="stop", reply=reply)
        if not isinstance(end, TurnResult):
            if isinstance(end, RunFinished) and end.finish_reason == "budget":
                return add_work_done(end, number - 1, calls, carried)
            return end
        window.add(end.messages)
        calls.update(outcome.call.name for outcome in end.outcomes)
        commands.record_turn(end.outcomes)
        if end.reply is not None:
            return run_finished_event(end, carried, said)
        said = end.text.strip() or said
        if end.has_calls:
            carried = f"{(carried + end.text).rstrip()}\n\n" if is_cut else carried
            is_cut = False
        elif end.finish_reason == "length" and continuations < context.policy.continuations_max:
            continuations, carried, is_cut = continuations + 1, carried + end.text, True
        else:
            return run_finished_event(end, carried)
        if watch.is_stuck_after(end.text, end.outcomes):
            return add_work_done(_cut_off("stop", STUCK_MESSAGE), number, calls, carried)
    limit = context.policy.turns_max
    ended = _cut_off("max_iterations", f"The limit of {limit} turns is reached.")
    return add_work_done(ended, limit, calls, carried)


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
        async with turn.context.switch.stoppable():
            rest = (REST_WANTED,) if wants_rest else ()
            notes = (*rest, *watch.notes(start.heard), *await commands.take_notes())
            state = {
                **turn.context.prompt.state_in_time_zone(window.time_zone),
                "turns": turn_notice(turn.number, turn.context.policy.turns_max),
                "budget": start.budget_left,
            }
            request = await window.request(blank, notes, state=state)
        with turn.context.tool_context.metrics.time_step("turn"):
            async with turn.context.switch.stoppable():
                end = await await_ungrouped(turn.run(request))
        return end.approval or end
    except BudgetExceeded as limit:
        return _cut_off("budget", str(limit), can_continue=limit.can_continue)
    except Stopped:
        turn.stop("Stopped by a person before it was finished.")
        return RunFinished(status="stopped", finish_reason="stopped", message=STOPPED)


def turn_notice(number: int, turns_max: int) -> str:
    """Returns a sentence with the turn's number if TURNS_LEFT_TOLD contains the number of turns left, else an empty
    string."""
    is_told = turns_max - number in TURNS_LEFT_TOLD
    return f"This is turn {number} of at most {turns_max}." if is_told else ""


def _cut_off(reason: FinishReason, message: str, *, can_continue: bool = True) -> RunFinished:
    """Returns the terminal event of a run that a limit ended."""
    return RunFinished(status="completed", finish_reason=reason, message=message, can_continue=can_continue)


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


def resume_cut_off_answer(history: Sequence[Message], context: RunContext) -> tuple[str, bool]:
    """Returns the text of an answer that an earlier attempt of the run began and that reached its length limit, with
    its continuation so far, and whether the rest is still missing. Each step of a flow has its own answer."""
    carried, is_cut = "", False
    for message in history:
        is_own = message.type == "assistant" and message.run_id == context.tool_context.run_id
        if message.metadata.get(FLOW_KEY):
            carried, is_cut = "", False
        elif is_own and (is_cut or message.metadata.get(CUT_OFF)):
            parsed = parse_message(message, context.dialect, context.toolbox.specs)
            carried += "".join(one.text for one in parsed if isinstance(one, DisplayText))
            is_cut = bool(message.metadata.get(CUT_OFF))
            carried = carried if is_cut else f"{carried.rstrip()}\n\n"
    return carried, is_cut


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


def run_finished_event(end: TurnResult, carried: str, earlier_text: str = "") -> RunFinished:
    """Returns the terminal event of a run whose last turn ended with an answer or a question. `said` is what an earlier
    turn wrote, which is the answer if the last one wrote nothing."""
    text = (carried + end.text).strip()
    if not text and end.reply is not None and not end.reply.text:
        text = earlier_text
    if end.reply is not None and end.reply.kind == "silence":
        reply = end.reply
    elif end.reply is None or not end.reply.text:
        reply = replace(end.reply or Reply(kind="answer", text=""), text=text)
    else:
        reply = replace(end.reply, preface=text)
    return RunFinished(status="completed", finish_reason=end.finish_reason, reply=reply)
