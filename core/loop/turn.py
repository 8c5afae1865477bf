"""One turn of the agent loop: a streamed model call and the tool calls in its response."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import assert_never

from pydantic import JsonValue

from core.context.role_alternation import with_passing_message
from core.dialects.dialect import CallComplete, CallParser, CallProgress, DisplayText, ParsedPart
from core.domain.answer_links import LinkGate, LinkRule, hide_links
from core.domain.approval import Approval
from core.domain.errors import AnswerRejected, ModelRejected, ModelUnavailable
from core.domain.events import (
    ActivityChanged,
    FinishReached,
    MessageAdded,
    ResponseStarted,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    TurnFinished,
    TurnStarted,
)
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message
from core.domain.sources import join_sources
from core.domain.threads import FinishReason, Reply, Usage
from core.llm.error_mapping import ANSWER_BROKE_OFF, CONTENT_REJECTED
from core.loop.calls import CallOutcome, CallRunner, result_message, tool_finished_event, turn_message
from core.loop.repetition import EndlessTextDetector
from core.loop.run_context import AskModel, RunContext
from core.model_usage import stream_with_charge, text_written_in
from core.ports import (
    ModelDelta,
    ModelFinished,
    ModelRequest,
    ModelRetried,
    ReasoningSnapshot,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from core.stores import UsageEntry
from core.tasks import call_every


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn. `text` is the part of the response that users may read. If there are `outcomes`, the model
    must see them in another turn.

    With `approval` the turn is unfinished: it waits for users, and history repair completes it with their answer."""

    finish_reason: FinishReason
    text: str
    messages: tuple[Message, ...]
    outcomes: tuple[CallOutcome, ...] = ()
    reply: Reply | None = None
    approval: Approval | None = None

    @property
    def has_calls(self) -> bool:
        return bool(self.outcomes)


class EmptyResponse(ModelUnavailable):
    """The model's response contained neither text nor calls, several times."""


log = logging.getLogger(__name__)
RESTARTS_MAX = 2
WAIT_TOLD_SECONDS = 10.0
"""The status shows how long users have waited for the model after this many seconds, and updates at the same
interval."""
SIGN_SECONDS = 30.0
"""A model that has sent any data within this time counts as working on its answer."""
BYTES_PER_TOKEN = 4
ANSWER_BYTES_MAX = 8 * 1024 * 1024
CALLS_READ_MAX = 512
"""Reading ends after this many calls of one answer, most of which do not run anyway."""
CUT_OFF = "cut_off"
"""The metadata key of an assistant message without calls whose text reached the length limit."""
_CALL_CUT_OFF = (
    "Not run: your answer was cut off inside this call, because it reached its limit of {limit}. Write less in one "
    "answer: write a long file in several calls, the first part now and each further part in an answer of its own."
)
_NOTHING_BEFORE_LIMIT = (
    "Your answer reached its length limit before it contained any text or call. Think less, and begin with the answer "
    "or the next call."
)
_NOTHING_SAID = "Your answer was empty. Go on with the next call, or write your answer to the people."
_UNREADABLE_ANSWER = (
    "Your answer could not be read, and nothing of it was run: {reason}. Write it again. Make each call a proper tool "
    "call whose arguments are one JSON object."
)
ALWAYS_EMPTY = "The model gave an empty answer several times. Try again, or reword the request."
ALWAYS_CUT_OFF = (
    "The model reached its length limit several times before it said anything. Ask for less at once, or choose another "
    "model."
)
CUT_BY_FILTER = "\n\n(The content filter of the model's service has cut this answer off here.)"


def _with_note(request: ModelRequest, text: str) -> ModelRequest:
    """Returns the request with a note for the model at its end, which is not stored."""
    content = f"[Note from the system, not from a person] {text}"
    return with_passing_message(request, {"role": "user", "content": content})


@dataclass(slots=True)
class _Response:
    """The part of the model's response that has been read. `visible` are the pieces that users may read, `thinking`
    those of its reasoning.

    `thinking_since` is the monotonic time of the first thinking, and `told_seconds` its duration as last shown.
    `delta_at` and `sign_at` are the times of the last delta and of the last data, with or without content. `is_waiting`
    is true while the status shows that users wait for the model."""

    parser: CallParser
    gate: LinkGate | None
    delta_at: float = field(default_factory=lambda: time.monotonic())
    sign_at: float = -SIGN_SECONDS
    is_thinking: bool = True
    thinking_since: float = 0
    told_seconds: int = -1
    visible: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    endless: EndlessTextDetector = field(default_factory=EndlessTextDetector)
    sequence: int = 0
    size_bytes: int = 0
    has_begun: bool = False
    is_waiting: bool = False

    @property
    def text(self) -> str:
        """The visible text. Spaces at its ends are kept, because the rest of the answer may follow."""
        return "".join(self.visible)

    def has_room_for(self, delta: ModelDelta) -> bool:
        text = text_written_in(delta)
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self.size_bytes += size
        return self.size_bytes <= ANSWER_BYTES_MAX

    def note_sign_of_life(self) -> None:
        self.sign_at = time.monotonic()

    def start_over(self, parser: CallParser, gate: LinkGate | None) -> None:
        self.parser, self.gate = parser, gate
        self.visible.clear()
        self.thinking.clear()
        self.sequence = self.size_bytes = 0
        self.thinking_since, self.told_seconds, self.is_thinking = 0, -1, True

    def wait_text(self) -> str:
        """Returns what to show to users who wait for the model, or an empty string if the model is writing or has just
        sent something.

        Hidden reasoning is recognized only by data without content."""
        now = time.monotonic()
        if now - self.delta_at < WAIT_TOLD_SECONDS:
            return ""
        if now - self.sign_at >= SIGN_SECONDS:
            return f"Waiting for the model, {now - self.delta_at:.0f} s"
        since = self.thinking_since or self.delta_at
        return f"Thinking, {now - since:.0f} s" if self.is_thinking else ""

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence - 1


@dataclass(slots=True)
class Turn:
    """The state of one turn while it runs: the response read so far and the running calls.

    `notes` returns extra metadata for the assistant message about how the model call was made. `links` returns which
    addresses the response may link to, by the sources of what the model has read."""

    number: int
    context: RunContext
    ask_model: AskModel
    notes: Callable[[], JsonObject] = dict[str, JsonValue]
    links: Callable[[], LinkRule] = LinkRule
    turn_id: str = field(default_factory=new_id)
    assistant_message_id: str = field(default_factory=new_id)
    _rule: LinkRule = field(default_factory=LinkRule)
    _response: _Response | None = None
    _runner: CallRunner | None = None
    _waiting: list[CallComplete] = field(default_factory=list[CallComplete])
    _messages: list[Message] = field(default_factory=list[Message])

    async def run(self, request: ModelRequest) -> TurnResult:
        """Runs the turn. Errors that end the run, for example a ModelError, are raised inside an ExceptionGroup."""
        self.context.run_log.emit(TurnStarted(turn_id=self.turn_id, number=self.number))
        self.context.run_log.emit(ResponseStarted())
        links = self.links()
        self._rule = replace(links, sources=join_sources([links.sources, self.context.toolbox.sources()]))
        async with asyncio.TaskGroup() as group:
            self._runner = CallRunner(
                turn_id=self.turn_id,
                assistant_message_id=self.assistant_message_id,
                context=self.context,
                group=group,
                sources=links.sources,
            )
            with call_every(WAIT_TOLD_SECONDS, self._tell_wait, after_seconds=WAIT_TOLD_SECONDS):
                reason = await self._read_whole(request, self._runner)
            self._show_rest()
            if reason == "xml_tool_limit_reached":
                self.context.run_log.emit(FinishReached(reason=reason))
            self._add_assistant(is_cut_off=reason == "length")
            for waiting in self._waiting:
                self._runner.add(waiting.call)
            outcomes = await self._runner.wait_for_calls()
        return self._end(reason, outcomes, self._runner.reply)

    def stop(self, why: str) -> None:
        """Completes a turn that was stopped: keeps its text, and gives calls without a result the reason as their
        result."""
        if self._response is None or self._runner is None:
            return
        if not self._messages:
            self._take(self._response.parser.close(is_whole=False), is_live=False)
            # these calls never start, but providers want a result for each call in the history
            self._runner.calls += [waiting.call for waiting in self._waiting]
            self._waiting.clear()
            if self._runner.calls or self._response.text.strip():
                self._add_assistant()
        self._add_results(self._runner.fail_unfinished_calls(why))
        self.context.run_log.emit(FinishReached(reason="stopped"))
        self.context.run_log.emit(TurnFinished(turn_id=self.turn_id))

    async def _read_whole(self, request: ModelRequest, runner: CallRunner) -> FinishReason:
        """Reads the model's response. Starts over if it is empty or unreadable before any call is complete.

        If the stream breaks off, `ask_model` has already retried, so the error is raised."""
        reason: FinishReason = "stop"
        for restart in range(RESTARTS_MAX + 1):
            if restart:
                self.context.run_log.emit(ResponseStarted())
            self._response = response = _Response(self._new_parser(), self._new_gate())
            runner.reasoning = None
            try:
                sent = replace(request, on_received=response.note_sign_of_life)
                reason = await self._read(sent, response, runner)
            except (ModelUnavailable, AnswerRejected) as error:
                if self._count_calls(runner):
                    self._take(response.parser.close(is_whole=False))
                    return "tool_calls"
                if restart == RESTARTS_MAX or not isinstance(error, AnswerRejected):
                    raise
                request = _with_note(request, _UNREADABLE_ANSWER.format(reason=error.detail))
                continue
            if not self._has_said(runner):
                # some servers report a whole answer as reasoning: calls in it count, and so does its text in a second
                # attempt
                is_answer = restart > 0 and reason != "length"
                parser, thoughts = self._new_parser(), TextDelta(text="".join(response.thinking))
                parsed = [*parser.feed(thoughts), *parser.close(is_whole=True)]
                if is_answer or any(isinstance(part, CallComplete) for part in parsed):
                    response.parser = parser
                    self._take([part for part in parsed if is_answer or not isinstance(part, DisplayText)])
            if self._has_said(runner):
                return reason
            note = _NOTHING_BEFORE_LIMIT if reason == "length" else _NOTHING_SAID
            request = request if restart else _with_note(request, note)
        raise EmptyResponse(ALWAYS_CUT_OFF if reason == "length" else ALWAYS_EMPTY)

    async def _read(self, request: ModelRequest, response: _Response, runner: CallRunner) -> FinishReason:
        charged = stream_with_charge(self.ask_model(request), request, self._charge)
        async with aclosing(charged) as stream:
            async for delta in stream:
                self._follow_attempts(delta, response, runner)
                limit = "" if response.has_room_for(delta) else f"{ANSWER_BYTES_MAX // 1024**2} MB"
                if not limit and self._count_calls(runner) >= CALLS_READ_MAX:
                    limit = f"{CALLS_READ_MAX} calls"
                if limit:
                    log.warning("an answer was cut off at %s", limit)
                    return self._cut_off(response, limit)
                match delta:
                    case TextDelta() | ToolCallDelta():
                        self._take(response.parser.feed(delta))
                        if self._is_limit_reached(runner):
                            return "xml_tool_limit_reached"
                    case ThinkingDelta(text=text):
                        response.thinking.append(text)
                        now = time.monotonic()
                        response.thinking_since = response.thinking_since or now
                        seconds, shows_text = int(now - response.thinking_since), self.context.policy.shows_reasoning
                        if shows_text or seconds != response.told_seconds:
                            response.told_seconds, sequence = seconds, response.next_sequence()
                            shown = text if shows_text else ""
                            thought = ThinkingStreamed(text=shown, seconds=seconds, sequence=sequence)
                            self.context.run_log.emit(thought)
                    case ModelFinished():
                        return self._finish(delta, response, runner)
                    case ReasoningSnapshot() | ModelRetried():
                        pass
                    case _:
                        assert_never(delta)
        raise ModelUnavailable(ANSWER_BROKE_OFF)

    def _new_parser(self) -> CallParser:
        return self.context.dialect.parser(self.context.toolbox.specs, calls_max=self._calls_max)

    def _new_gate(self) -> LinkGate | None:
        """Returns the gate that holds back the text of a response until its links are judged, or None if the model has
        read nothing from outside."""
        return LinkGate(self._rule) if self._rule.sources.outside else None

    def _follow_attempts(self, delta: ModelDelta, response: _Response, runner: CallRunner) -> None:
        """Shows users each new attempt to reach a model, and that the model thinks once it answers. Keeps its
        reasoning, and withdraws an answer that starts over."""
        if isinstance(delta, ReasoningSnapshot):
            runner.reasoning = delta.content
        if isinstance(delta, TextDelta) and delta.replaces_earlier:
            # the text so far was thinking, but calls in it that already run are kept
            response.visible.clear()
            response.gate = self._new_gate()
            if not self._count_calls(runner):
                response.parser, response.sequence = self._new_parser(), 0
                self.context.run_log.emit(ResponseStarted())
        if isinstance(delta, ModelRetried):
            if response.has_begun:
                # the answer broke off; it starts over unless it contains calls, which cannot be undone
                if self._count_calls(runner):
                    raise ModelUnavailable(ANSWER_BROKE_OFF)
                response.start_over(self._new_parser(), self._new_gate())
                runner.reasoning = None
                self.context.run_log.emit(ResponseStarted())
            self.context.run_log.emit(ActivityChanged(text=delta.text))
        elif response.is_waiting:
            self.context.run_log.emit(ActivityChanged(text="Thinking"))
        response.is_waiting = isinstance(delta, ModelRetried)
        response.has_begun = not response.is_waiting
        if response.has_begun:
            response.delta_at = time.monotonic()
            response.is_thinking = isinstance(delta, ThinkingDelta)

    def _tell_wait(self) -> None:
        """Shows users for how long the model has sent nothing."""
        if self._response is not None and (text := self._response.wait_text()):
            self._response.is_waiting = True
            self.context.run_log.emit(ActivityChanged(text=text))

    def _finish(self, finished: ModelFinished, response: _Response, runner: CallRunner) -> FinishReason:
        if finished.finish_reason == "length":
            written = finished.usage.output_tokens if finished.usage else 0
            tokens = written or response.size_bytes // BYTES_PER_TOKEN
            return self._cut_off(response, f"{tokens:,} tokens")
        self._take(response.parser.close(is_whole=True))
        if self._is_limit_reached(runner):
            return "xml_tool_limit_reached"
        if finished.finish_reason == "content_filter":
            if not self._has_said(runner):
                raise ModelRejected(CONTENT_REJECTED, detail="content_filter")
            self._take([DisplayText(text=CUT_BY_FILTER)])  # a notice for users, which the model never sees
        return "stop"

    def _cut_off(self, response: _Response, limit: str) -> FinishReason:
        """Ends an answer that reached a limit. If a call was cut off, its result tells the model which limit it was."""
        cut = _CALL_CUT_OFF.format(limit=limit)
        self._take(response.parser.close(is_whole=False, cut=cut))
        return "length"

    def _has_said(self, runner: CallRunner) -> bool:
        return bool(self._count_calls(runner) or self._text.strip())

    def _count_calls(self, runner: CallRunner) -> int:
        return len(runner.calls) + len(self._waiting)

    @property
    def _text(self) -> str:
        return self._response.text if self._response else ""

    def _charge(self, model: str, usage: Usage) -> None:
        self.context.run_log.record_usage(UsageEntry(turn_id=self.turn_id, model=model, usage=usage))

    @property
    def _calls_max(self) -> int:
        return 0 if self.context.dialect.name == "native" else self.context.policy.xml_calls_max

    def _is_limit_reached(self, runner: CallRunner) -> bool:
        return 0 < self._calls_max <= self._count_calls(runner)

    def _take(self, parsed: Sequence[ParsedPart], *, is_live: bool = True) -> None:
        runner, response = self._runner, self._response
        assert response is not None  # noqa: S101 - set before anything is parsed
        for item in parsed:
            if is_live and response.gate and not isinstance(item, DisplayText):
                self._stream(response.gate.flush(), response)
            match item:
                case DisplayText(text=text):
                    response.visible.append(text)
                    if is_live:
                        self._stream(response.gate.feed(text) if response.gate else text, response)
                        response.endless.check(text)
                case CallProgress():
                    progress = ToolCallStreamed(
                        index=item.index,
                        call_id=item.call_id,
                        name=item.name,
                        arguments=item.arguments,
                        sequence=response.next_sequence(),
                    )
                    self.context.run_log.emit(progress)
                case CallComplete(call=call):
                    if not is_live or (runner and self._is_limit_reached(runner)):
                        continue
                    if runner and self.context.policy.executes_on_stream:
                        runner.add(call)
                    else:
                        self._waiting.append(item)
                case _:
                    assert_never(item)

    def _stream(self, text: str, response: _Response) -> None:
        if text:
            self.context.run_log.emit(TextStreamed(text=text, sequence=response.next_sequence()))

    def _show_rest(self) -> None:
        """Shows the part of the response that was held back until it was complete. Addresses that must not be links are
        shown as code."""
        if self._response is None or self._response.gate is None:
            return
        whole, rest = self._response.gate.close(self._response.text)
        self._response.visible = [whole]
        if rest is None:
            self.context.run_log.emit(ResponseStarted())
        self._stream(whole if rest is None else rest, self._response)

    def _add_assistant(self, *, is_cut_off: bool = False) -> None:
        assert self._response is not None and self._runner is not None  # noqa: S101, PT018 - set by play()
        calls = [*self._runner.calls, *(waiting.call for waiting in self._waiting)]
        text = self._response.parser.raw_answer
        is_judged = self._response.gate is not None and self.context.dialect.name == "native"
        shown = hide_links(text, self._rule) if is_judged else text
        content: JsonObject = self.context.dialect.assistant_content(shown, calls)
        if self._runner.reasoning is not None:
            content = {**content, REASONING_KEY: self._runner.reasoning}
        metadata: JsonObject = {CUT_OFF: True} if is_cut_off and not calls else {}
        metadata |= self.notes()
        message = turn_message("assistant", content, self.turn_id, metadata, context=self.context.tool_context)
        self._add(replace(message, message_id=self.assistant_message_id))

    def _add_results(self, outcomes: Sequence[CallOutcome]) -> None:
        for index, outcome in enumerate(outcomes):
            self._messages.extend(outcome.messages)
            message = result_message(
                outcome,
                self.assistant_message_id,
                self.turn_id,
                dialect=self.context.dialect,
                context=self.context.tool_context,
            )
            self.context.run_log.emit(tool_finished_event(index, outcome, message.message_id))
            self._add(message)

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self.context.run_log.emit(MessageAdded(message=message))

    def _end(self, reason: FinishReason, outcomes: Sequence[CallOutcome], reply: Reply | None) -> TurnResult:
        if self._runner is not None and self._runner.awaiting:
            approval, messages = self._runner.take_approval(), tuple(self._messages)
            self.context.run_log.emit(TurnFinished(turn_id=self.turn_id))
            return TurnResult(finish_reason="tool_calls", text="", messages=messages, approval=approval)
        self._add_results(outcomes)
        if reply is not None:
            reason = "agent_terminated"
            self.context.run_log.emit(FinishReached(reason=reason))
        elif reason != "xml_tool_limit_reached":
            reason = "tool_calls" if outcomes else reason
            self.context.run_log.emit(FinishReached(reason=reason))
        self.context.run_log.emit(TurnFinished(turn_id=self.turn_id))
        return TurnResult(
            finish_reason=reason, text=self._text, messages=tuple(self._messages), outcomes=tuple(outcomes), reply=reply
        )
