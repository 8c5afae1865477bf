"""Thoughts inside an answer: served without a field for them, reasoning models write them between tags before it."""

from collections.abc import Sequence
from typing import Literal

from core.ports import TextDelta, ThinkingDelta

_OPEN, _CLOSE = "<think>", "</think>"
_SPACE_MAX = 200


class Thoughts:
    """Tells what is thought from what is said. State: where the reading stands, and text that may be part of a tag."""

    __slots__ = ("_held", "_place")

    def __init__(self) -> None:
        self._held = ""
        self._place: Literal["start", "thought", "after", "answer"] = "start"

    def read(self, text: str) -> Sequence[TextDelta | ThinkingDelta]:
        """The next piece of the answer, however it was cut."""
        match self._place:
            case "answer":
                return (TextDelta(text=text),)
            case "start":
                return self._begun(self._held + text)
            case "thought":
                return self._thought(self._held + text)
            case "after":
                said = text.lstrip()
                self._place = "answer" if said else "after"
                return (TextDelta(text=said),) if said else ()

    def rest(self) -> Sequence[TextDelta | ThinkingDelta]:
        """What waited for a tag that did not come."""
        held, self._held = self._held, ""
        if not held:
            return ()
        return (ThinkingDelta(text=held) if self._place == "thought" else TextDelta(text=held),)

    def _begun(self, whole: str) -> Sequence[TextDelta | ThinkingDelta]:
        first = whole.lstrip()
        if first.startswith(_OPEN):
            self._place, self._held = "thought", ""
            return self._thought(first[len(_OPEN) :])
        if _OPEN.startswith(first) and len(whole) < _SPACE_MAX:
            self._held = whole
            return ()
        self._place, self._held = "answer", ""
        return (TextDelta(text=whole),)

    def _thought(self, whole: str) -> Sequence[TextDelta | ThinkingDelta]:
        thought, tag, said = whole.partition(_CLOSE)
        if tag:
            self._place, self._held = "after", ""
            return (*_thinking(thought), *self.read(said))
        held = next(size for size in range(len(_CLOSE), -1, -1) if whole.endswith(_CLOSE[:size]))
        self._held = whole[len(whole) - held :]
        return _thinking(whole[: len(whole) - held])


def _thinking(text: str) -> Sequence[ThinkingDelta]:
    return (ThinkingDelta(text=text),) if text else ()
