"""Detects a run that repeats itself: its latest turns contain only calls, results and text that occurred before."""

import json
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from core.context.todo_file import TODO_PATH, writes_todo
from core.domain.errors import AnswerRejected
from core.domain.messages import Message
from core.llm.error_mapping import ENDLESS
from core.loop.calls import CallOutcome, leaves_command_running

REPEATS_BEFORE_WARNING = 2
TURNS_REMEMBERED = 4
"""The longest cycle of turns that is detected. A repeat of an older turn is allowed, because its result may no
longer be in the model's context."""

PASSAGE_CHARACTERS_MAX = 2_000
ENDLESS_CHARACTERS = 160_000
"""About 40,000 tokens. Users may ask for a long text of equal lines, but hardly for one of this size."""
STUCK_MESSAGE = (
    "The same steps came back again and again without anything new, so I stopped. "
    "Tell me what to do differently, or let me go on."
)
WARNING = (
    "[Note from the system, not from a person] Your last turns repeated what you had done before, with the same "
    "results. Doing it again will change nothing. Take another way: other arguments, another tool, or tell the "
    "people what is in the way and ask them."
)


class RepetitionDetector:
    """Remembers the latest turns of one run and counts repeated turns in a row. A turn with anything new resets the
    count."""

    def __init__(self) -> None:
        self._turns: deque[frozenset[bytes]] = deque(maxlen=TURNS_REMEMBERED)
        self._repeats = 0

    def notes(self, new_messages: Sequence[Message]) -> tuple[str, ...]:
        """Returns notes for the model's next turn: a warning if the run repeats itself.

        New messages from users reset the count, because trying the same steps again may then make sense."""
        if new_messages:
            self._turns.clear()
            self._repeats = 0
        return (WARNING,) if self._repeats == REPEATS_BEFORE_WARNING else ()

    def is_stuck_after(self, text: str, outcomes: Sequence[CallOutcome]) -> bool:
        """Records a turn. Returns whether the run still repeats itself after the warning.

        The text of a turn counts only if the turn has no calls. Waiting for a command that still runs is no repetition.
        """
        words = _mark(" ".join(text.split()))
        # changing a plan is no progress, so all changes of todo.md count as the same call
        done = (
            TODO_PATH
            if writes_todo(one.call.name, one.call.arguments)
            else [one.call.name, one.call.arguments or one.call.raw, one.result]
            for one in outcomes
        )
        marks = frozenset(map(_mark, done)) or frozenset((words,))
        is_new = bool(marks.difference(*self._turns)) or any(map(leaves_command_running, outcomes))
        self._turns.append(marks)
        self._repeats = 0 if is_new else self._repeats + 1
        return self._repeats > REPEATS_BEFORE_WARNING


class EndlessTextDetector:
    """Detects an answer whose newest text repeats one passage over and over. Takes linear time."""

    def __init__(self) -> None:
        self._recent: list[str] = []
        self._characters = 0

    def check(self, text: str) -> None:
        """Takes the next piece of the text. Raises AnswerRejected if the text repeats itself."""
        self._recent.append(text)
        self._characters += len(text)
        if self._characters >= ENDLESS_CHARACTERS:
            recent = "".join(self._recent)[-ENDLESS_CHARACTERS:]
            self._recent, self._characters = [], 0
            period = recent.find(recent[:PASSAGE_CHARACTERS_MAX], 1)
            if 0 < period <= PASSAGE_CHARACTERS_MAX and recent[period:] == recent[:-period]:
                raise AnswerRejected(ENDLESS, detail="it repeats one passage over and over")


def _mark(value: object) -> bytes:
    written = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()
