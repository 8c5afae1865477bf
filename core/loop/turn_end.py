"""What a turn leaves behind."""

from dataclasses import dataclass

from core.domain.approval import Approval
from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply
from core.loop.calls import CallOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """`text` is what a person may read; with `outcomes` the model wants to see them.

    With `approval` the turn is not over: it waits for people, and mending makes it whole with their answer.
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
