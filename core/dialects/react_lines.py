"""The labels of the ReAct dialect: where a line begins one, and where more text is needed to know."""

import re
from typing import Literal, cast

Label = Literal["Thought", "Action", "Action Input", "Observation", "Final Answer"]
_NAMES = ("Thought", "Action Input", "Action", "Observation", "Final Answer")
_NAME = "|".join(_NAMES)
_START = r"[ \t]{0,8}(?:#{1,4} )?"
_LABEL = re.compile(
    rf"{_START}(?:\*\*(?P<bold>{_NAME})(?:\*\*[ \t]{{0,2}}:|[ \t]{{0,2}}:\*\*)|(?P<plain>{_NAME})[ \t]{{0,2}}:)"
)
_FENCE = re.compile(r"[ \t]{0,3}```")


def _prefixes(word: str) -> str:
    """A pattern for every beginning of the word, the empty one too."""
    pattern = ""
    for character in reversed(word):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return pattern


_PARTIAL = re.compile(
    rf"[ \t]{{0,8}}(?:#{{0,4}}|#{{1,4}} (?:{'|'.join(_prefixes(name) for name in _NAMES)})"
    rf"|\*{{0,2}}(?:{'|'.join(_prefixes(name) for name in _NAMES)})"
    rf"|(?:#{{1,4}} )?\*{{0,2}}(?:{_NAME})\*{{0,2}}[ \t]{{0,2}}:?\*?|#{{1,4}} \*{{0,2}}"
    rf"(?:{'|'.join(_prefixes(name) for name in _NAMES)})|`{{0,2}})"
)


def label_at(text: str, at: int) -> tuple[Label, int] | None:
    """The label that begins at this start of a line, and where it ends."""
    match = _LABEL.match(text, at)
    if match is None:
        return None
    return cast(Label, match["bold"] or match["plain"]), match.end()


def may_become_label(text: str, at: int) -> bool:
    """Whether the rest of the text, the start of a line, is too short to tell. It has a bounded length then."""
    return _PARTIAL.fullmatch(text, at) is not None


def is_fence(text: str, at: int) -> bool:
    """Whether the line that begins here opens or closes a block of code."""
    return _FENCE.match(text, at) is not None
