"""Noticing that a run goes in circles: turns whose calls, results and words have all been there before."""

import json
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from core.domain.messages import JsonObject, Message
from core.loop.calls import CallOutcome

REPEATS_BEFORE_WARNING = 2
POLLS_MAX = 20
"""How often a run may look at something that has not changed: waiting for a build is no circle yet."""

POLLING_TOOLS = frozenset({"check_command_output"})
TURNS_REMEMBERED = 4
"""The longest circle that is seen; what was read long ago may be read again, since it may be out of sight by now."""

STUCK_MESSAGE = (
    "The same steps came back again and again without anything new, so I stopped. "
    "Tell me what to do differently, or let me go on."
)
WARNING: JsonObject = {
    "role": "user",
    "content": (
        "[Note from the system, not from a person] Your last turns repeated what you had done before, with the same "
        "results. Doing it again will change nothing. Take another way: other arguments, another tool, or tell the "
        "people what is in the way and ask them."
    ),
}


class RepetitionDetector:
    """What one run has done lately. A turn that brings anything new clears the count."""

    def __init__(self) -> None:
        self._turns: deque[frozenset[bytes]] = deque(maxlen=TURNS_REMEMBERED)
        self._repeats = 0

    def notes(self, heard: Sequence[Message]) -> tuple[JsonObject, ...]:
        """What the next request says to the model, and no history keeps. After a person's words the count is cleared:
        trying the same again may make sense now."""
        if heard:
            self._turns.clear()
            self._repeats = 0
        return (WARNING,) if self._repeats == REPEATS_BEFORE_WARNING else ()

    def is_stuck_after(self, text: str, outcomes: Sequence[CallOutcome]) -> bool:
        """Counts a turn; whether the model was warned and did the same again.

        Words beside calls do not matter; of a turn without calls the words are what it did.
        """
        words = _mark(" ".join(text.split()))
        marks = frozenset(map(_mark_of_call, outcomes)) or frozenset((words,))
        is_new = bool(marks.difference(*self._turns))
        self._turns.append(marks)
        self._repeats = 0 if is_new else self._repeats + 1
        is_polling = bool(outcomes) and all(one.call.name in POLLING_TOOLS for one in outcomes)
        return self._repeats > (POLLS_MAX if is_polling else REPEATS_BEFORE_WARNING)


def _mark_of_call(outcome: CallOutcome) -> bytes:
    return _mark([outcome.call.name, outcome.call.arguments or outcome.call.raw, outcome.result])


def _mark(value: object) -> bytes:
    written = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()
