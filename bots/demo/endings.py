"""How a story ends: what a reader waits for, in the order in which it is looked for, and what was counted."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bots.demo.transcript import buttons_of, text_of, transcript
from bots.demo.watch import CROSSES, TICKS, Watch
from simulator.view import SeenMessage

OPEN_STEP, DONE_STEP = "☐", "☑"
UNDONE_STEPS = (OPEN_STEP, "▣")


class Ending(NamedTuple):
    """Something that a reader waits for, in words and as a test."""

    what: str
    holds: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One telling of a story. `runs` and `edits` were counted on the screen: status messages, and their changes."""

    runs: int
    edits: int
    files: int
    seconds: float
    transcript: str


async def told(watch: Watch, endings: Sequence[Ending], started: float) -> Played:
    """Waits for each ending, and for those that every story has. Raises StoryBroken."""
    for what, holds in (*endings, *_always(watch)):
        await watch.until(lambda holds=holds: holds() or watch.signs(CROSSES), what)
        if not holds():
            raise watch.broken(f"{what}: it failed before that.")
    seconds = time.monotonic() - started
    if max((len(watch.shown[one]) for one in watch.status_ids), default=0) < 3:
        raise watch.broken("no status message was seen to change twice")
    return Played(
        runs=len(watch.status_ids),
        edits=watch.edits(),
        files=sum(len(message.files) for message in watch.messages if message.is_bot),
        seconds=round(seconds, 2),
        transcript=transcript(watch.messages),
    )


def is_answered(
    watch: Watch, question: SeenMessage, person: str, answer: str
) -> Callable[[], bool]:
    """Whether the question shows who has answered what."""

    def holds() -> bool:
        shown = next((o for o in watch.messages if o.message_id == question.message_id), None)
        text = text_of(shown).casefold().replace("*", "") if shown is not None else ""
        return f"{person} answered" in text and answer.casefold() in text

    return holds


def has_ticked(watch: Watch) -> Callable[[], bool]:
    """Whether a plan was seen with steps to do, and now stands with all of them done."""

    def holds() -> bool:
        shown = [watch.shown[one] for one in watch.status_ids]
        was_open = any(OPEN_STEP in text for texts in shown for text in texts)
        newest = [texts[-1] for texts in shown if DONE_STEP in texts[-1]]
        return was_open and any(not set(UNDONE_STEPS) & set(text) for text in newest)

    return holds


def _always(watch: Watch) -> tuple[Ending, ...]:
    def is_over() -> bool:
        return not any(
            button.label == "Stop" for one in watch.messages for button in buttons_of(one)
        )

    return (
        Ending("the work ends", is_over),
        Ending("the request's only reaction is a tick", lambda: watch.signs(TICKS)),
    )
