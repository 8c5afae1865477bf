"""One turn of the agent loop: a streamed model call and the tool calls in its response."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import JsonValue

from core.context.tokens import with_token_count
from core.dialects.dialect import (
    CallComplete,
    CallParser,
    CallProgress,
    Dialect,
    DisplayText,
    ParsedPart,
)
from core.domain.approval import Approval
from core.domain.errors import ModelRejected, ModelUnavailable
from core.domain.events import (
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
from core.domain.messages import JsonObject, Message
from core.domain.threads import FinishReason, Reply, Usage
from core.llm.errors import CONTENT_REJECTED
from core.loop.calls import CallOutcome, CallRunner, RunLog, tool_finished_event
from core.loop.run_context import LoopPolicy
from core.model_usage import record_model_usage
from core.ports import (
    ModelDelta,
    ModelFinished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from core.stores import UsageEntry
from core.tools.tool import ToolContext, ToolSet


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn. `text` is the part of the response that people may read. If there are `outcomes`, the model
    must see them in another turn.

    With `approval` the turn is unfinished: it waits for people, and history repair completes it with their answer.
    """

    finish_reason: FinishReason
    text: str
    messages: tuple[Message, ...]
    outcomes: tuple[CallOutcome, ...] = ()
    reply: Reply | None = None
    approval: Approval | None = None

    @property
    def has_calls(self) -> bool:
        return bool(self.outcomes)


log = logging.getLogger(__name__)
RESTARTS_MAX = 2
CUT_BY_FILTER = "\n\n(The content filter of the model's service has cut this answer off here.)"

AskModel = Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]]


@dataclass(slots=True)
class Turn:
    """The state of one turn while it runs: the response read so far and the running calls.

    `notes` returns extra metadata for the assistant message about how the model call was made.
    """

    number: int
    dialect: Dialect
    toolbox: ToolSet
    context: ToolContext
    policy: LoopPolicy
    run_log: RunLog
    ask_model: AskModel
    notes: Callable[[], JsonObject] = dict[str, JsonValue]
    turn_id: str = field(default_factory=new_id)
    assistant_message_id: str = field(default_factory=new_id)
    _visible: list[str] = field(default_factory=list[str])
    _parser: CallParser | None = None
    _runner: CallRunner | None = None
    _waiting: list[CallComplete] = field(default_factory=list[CallComplete])
    _sequence: int = 0
    _has_started: bool = False
    _has_begun: bool = False
    _messages: list[Message] = field(default_factory=list[Message])

    async def play(self, request: ModelRequest) -> TurnResult:
        """Runs the turn. Errors that end the run, for example a ModelError, are raised inside an ExceptionGroup."""
        self._has_started = True
        self.run_log.emit(TurnStarted(turn_id=self.turn_id, number=self.number))
        self.run_log.emit(ResponseStarted())
        async with asyncio.TaskGroup() as group:
            self._runner = CallRunner(
                turn_id=self.turn_id,
                assistant_message_id=self.assistant_message_id,
                toolbox=self.toolbox,
                context=self.context,
                run_log=self.run_log,
                is_sequential=self.policy.is_sequential,
                group=group,
                metadata_of=self.dialect.parsing_details,
            )
            reason = await self._read_whole(request, self._runner)
            if reason == "xml_tool_limit_reached":
                self.run_log.emit(FinishReached(reason=reason))
            self._add_assistant()
            for waiting in self._waiting:
                self._runner.add(waiting.call)
            outcomes = await self._runner.settle()
        return self._end(reason, outcomes, self._runner.reply)

    def cut_short(self, why: str) -> tuple[Message, ...]:
        """Completes a turn that was stopped: keeps its text, and gives calls without a result the reason as their
        result."""
        if self._parser is None or self._runner is None:
            if self._has_started:
                self.run_log.emit(TurnFinished(turn_id=self.turn_id))
            return ()
        if not self._messages:
            self._take(self._parser.close(is_whole=False), is_live=False)
            if self._runner.calls or "".join(self._visible).strip():
                self._add_assistant()
        self._add_results(self._runner.unfinished(why))
        self.run_log.emit(FinishReached(reason="stopped"))
        self.run_log.emit(TurnFinished(turn_id=self.turn_id))
        return tuple(self._messages)

    async def _read_whole(self, request: ModelRequest, runner: CallRunner) -> FinishReason:
        """Reads the model's response. Starts over if the stream breaks off, or the response is empty, before any call
        is complete.

        If the stream breaks off before its first delta, the error is raised, because `ask_model` has already retried.
        """
        for restart in range(RESTARTS_MAX + 1):
            if restart:
                self.run_log.emit(ResponseStarted())
            self._parser = self.dialect.parser(self.toolbox.specs, calls_max=self._calls_max)
            self._visible.clear()
            self._sequence, self._has_begun = 0, False
            try:
                reason = await self._read(request, self._parser, runner)
            except ModelUnavailable:
                if not runner.calls and not self._waiting:
                    if restart == RESTARTS_MAX or not self._has_begun:
                        raise
                    continue
                self._take(self._parser.close(is_whole=False))
                return "tool_calls"
            if self._has_said(runner):
                return reason
        raise ModelUnavailable(
            "The model gave an empty answer several times. Try again, or reword the request."
        )

    async def _read(
        self, request: ModelRequest, parser: CallParser, runner: CallRunner
    ) -> FinishReason:
        charged = record_model_usage(self.ask_model(request), request, self._charge)
        async with aclosing(charged) as stream:
            async for delta in stream:
                self._has_begun = True
                match delta:
                    case TextDelta() | ToolCallDelta():
                        self._take(parser.feed(delta))
                        if self._is_limit_reached(runner):
                            return "xml_tool_limit_reached"
                    case ThinkingDelta(text=text):
                        self.run_log.emit(ThinkingStreamed(text=text, sequence=self._next()))
                    case ModelFinished(finish_reason=reason):
                        self._take(parser.close(is_whole=reason != "length"))
                        if self._is_limit_reached(runner):
                            return "xml_tool_limit_reached"
                        if reason == "content_filter":
                            self._tell_of_filter(runner)
                        return "length" if reason == "length" else "stop"
                    case _:
                        assert_never(delta)
        raise ModelUnavailable("The model's answer broke off.")

    def _tell_of_filter(self, runner: CallRunner) -> None:
        """Keeps the text before the content filter's cut and appends a notice for people, which the model never sees.

        Raises ModelRejected if the response contains neither text nor calls.
        """
        if not self._has_said(runner):
            raise ModelRejected(CONTENT_REJECTED, detail="content_filter")
        self._take([DisplayText(text=CUT_BY_FILTER)])

    def _has_said(self, runner: CallRunner) -> bool:
        return bool(runner.calls or self._waiting or "".join(self._visible).strip())

    def _charge(self, model: str, usage: Usage) -> None:
        self.run_log.used(UsageEntry(turn_id=self.turn_id, model=model, usage=usage))

    @property
    def _calls_max(self) -> int:
        return 0 if self.dialect.name == "native" else self.policy.xml_calls_max

    def _is_limit_reached(self, runner: CallRunner) -> bool:
        return 0 < self._calls_max <= len(runner.calls) + len(self._waiting)

    def _take(self, parsed: Sequence[ParsedPart], *, is_live: bool = True) -> None:
        runner = self._runner
        for item in parsed:
            match item:
                case DisplayText(text=text):
                    self._visible.append(text)
                    if is_live:
                        self.run_log.emit(TextStreamed(text=text, sequence=self._next()))
                case CallProgress():
                    progress = ToolCallStreamed(
                        index=item.index,
                        call_id=item.call_id,
                        name=item.name,
                        arguments=item.arguments,
                        sequence=self._next(),
                    )
                    self.run_log.emit(progress)
                case CallComplete(call=call):
                    if not is_live or (runner and self._is_limit_reached(runner)):
                        continue
                    if runner and self.policy.executes_on_stream:
                        runner.add(call)
                    else:
                        self._waiting.append(item)
                case _:
                    assert_never(item)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    def _add_assistant(self) -> None:
        assert self._parser is not None and self._runner is not None  # noqa: S101, PT018 - set by play()
        calls = [*self._runner.calls, *(waiting.call for waiting in self._waiting)]
        self._add(
            Message(
                type="assistant",
                content=self.dialect.assistant_content(self._parser.text, calls),
                is_llm_message=True,
                thread_id=self.context.thread_id,
                run_id=self.context.run_id,
                message_id=self.assistant_message_id,
                metadata={
                    "stream_status": "complete",
                    "thread_run_id": self.turn_id,
                    **self.notes(),
                },
            )
        )

    def _add_results(self, outcomes: Sequence[CallOutcome]) -> None:
        for index, outcome in enumerate(outcomes):
            for extra in outcome.messages:
                self._add(extra)
            message = self._tool_message(outcome)
            self.run_log.emit(tool_finished_event(index, outcome, message.message_id))
            self._add(message)

    def _tool_message(self, outcome: CallOutcome) -> Message:
        return Message(
            type="tool",
            content=self.dialect.result_content(outcome.call, outcome.result),
            is_llm_message=True,
            thread_id=self.context.thread_id,
            run_id=self.context.run_id,
            metadata={
                "assistant_message_id": self.assistant_message_id,
                "parsing_details": self.dialect.parsing_details(outcome.call),
                "thread_run_id": self.turn_id,
            },
        )

    def _add(self, message: Message) -> None:
        message = with_token_count(message)
        self._messages.append(message)
        self.run_log.emit(MessageAdded(message=message))

    def _end(
        self, reason: FinishReason, outcomes: Sequence[CallOutcome], reply: Reply | None
    ) -> TurnResult:
        if self._runner is not None and self._runner.awaiting:
            return self._waits_for(self._runner.approval())
        self._add_results(outcomes)
        if reply is not None:
            reason = "agent_terminated"
            self.run_log.emit(FinishReached(reason=reason))
        elif reason != "xml_tool_limit_reached":
            reason = "tool_calls" if outcomes else reason
            self.run_log.emit(FinishReached(reason=reason))
        self.run_log.emit(TurnFinished(turn_id=self.turn_id))
        return TurnResult(
            finish_reason=reason,
            text="".join(self._visible).strip(),
            messages=tuple(self._messages),
            outcomes=tuple(outcomes),
            reply=reply,
        )

    def _waits_for(self, approval: Approval) -> TurnResult:
        self.run_log.emit(TurnFinished(turn_id=self.turn_id))
        messages = tuple(self._messages)
        return TurnResult(finish_reason="tool_calls", text="", messages=messages, approval=approval)
