"""The answer of a run, from the texts of its turns. There is one rule for a run that ends now, and for one whose end a
crash prevented from being stored."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from core.context.background_messages import FLOW_KEY
from core.dialects.dialect import visible_text
from core.domain.events import RunFinished
from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply, ToolCallRecord
from core.loop.calls import stored_reply
from core.loop.run_context import RunContext
from core.loop.turn import CUT_OFF

Calls = Callable[[], Awaitable[Sequence[ToolCallRecord]]]
"""Returns the tool calls that a run has recorded."""


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The text for users that the model has written since the run left its newest reply.

    `carried` is the text of answers that reached their length limit, with what continued them. `is_cut` is true while
    the rest is missing. `newest` is the newest text that is not empty. `is_answered` is true if the run has left a
    reply before."""

    carried: str = ""
    is_cut: bool = False
    newest: str = ""
    is_answered: bool = False

    @property
    def may_end(self) -> bool:
        """Whether the run may end without another word from the model."""
        return bool(self.newest) or self.is_answered

    def after_turn(self, text: str, *, has_calls: bool) -> "WrittenText":
        """Returns the text after a turn that does not end the run. A turn without calls has reached its length
        limit."""
        carried = self.carried + text if self.is_cut or not has_calls else self.carried
        if self.is_cut and has_calls:
            carried = f"{carried.rstrip()}\n\n"
        return replace(self, carried=carried, is_cut=not has_calls, newest=text.strip() or self.newest)

    def finish(self, text: str, reason: FinishReason, reply: Reply | None = None) -> RunFinished:
        """Returns the end of a run whose last turn wrote the text. `reply` is that of a call that ended the run."""
        text = (self.carried + text).strip()
        if reply is None or (reply.kind != "silence" and not reply.text):
            reply = replace(reply or Reply(kind="answer", text=""), text=text or self.newest)
        elif reply.kind != "silence":
            reply = replace(reply, preface=text)
        return RunFinished(status="completed", finish_reason=reason, reply=reply)


NOTHING_WRITTEN = WrittenText()


def messages_since_reply(messages: Sequence[Message], run_id: str) -> Sequence[Message]:
    """Returns the run's own messages after its newest reply that was left."""
    own = [message for message in messages if message.run_id == run_id]
    return _after_last(own, lambda message: message.content.get("status_type") == "reply_left")


async def recover_answer(
    messages: Sequence[Message], calls: Calls, context: RunContext
) -> tuple[WrittenText, RunFinished | None]:
    """Returns what an interrupted run has written since its newest reply, or in a plan since the newest part of the
    plan began. Also returns its end, or None if the run must continue.

    The newest message shows the end: a final answer of the model, or the result of a call that left a reply."""
    own = messages_since_reply(messages, context.tool_context.run_id)
    sent = [message for message in _after_last(own, lambda each: FLOW_KEY in each.metadata) if message.is_llm_message]
    called_by = {str(message.metadata.get("assistant_message_id")) for message in sent if message.type == "tool"}
    written = NOTHING_WRITTEN
    for message in sent:
        if message.type != "assistant":
            continue
        text = visible_text(message, context.dialect, context.toolbox.specs)
        has_calls = message.message_id in called_by
        is_answer = not has_calls and not message.metadata.get(CUT_OFF)
        if is_answer and message is sent[-1]:
            return written, written.finish(text, "stop")
        if sent[-1].metadata.get("assistant_message_id") == message.message_id:
            replies = [stored_reply(call) for call in await calls() if call.assistant_message_id == message.message_id]
            if (reply := next(filter(None, replies), None)) is not None:
                return written, written.finish(text, "agent_terminated", reply)
        written = written.after_turn(text, has_calls=has_calls or is_answer)
    return written, None


def _after_last(messages: Sequence[Message], is_boundary: Callable[[Message], bool]) -> Sequence[Message]:
    last = max((at for at, message in enumerate(messages) if is_boundary(message)), default=-1)
    return messages[last + 1 :]
