"""Separates a model's thinking from its answer where both arrive in one streamed text."""

import re
from string import ascii_letters, digits
from typing import Literal

from core.context.code_tracker import MarkdownCodeTracker
from core.ports import TextDelta, ThinkingDelta

_MARK = re.compile(
    r"(?i)</?(?:think|thinking|thought|reasoning|seed:think)>|\[/?think\]|◁/?think▷|<channel\|>|<\|channel>thought"
    r"|<\|(?:start_thinking|end_thinking|start_response|begin_of_thought|end_of_thought|begin_of_solution)\|>"
)
_IS_END = re.compile(r"(?i)./|<channel|<\|end_|<\|start_response|<\|begin_of_solution")
_MAY_BE_MARK = re.compile(r"(?:[<\[◁][|/\w:]{0,20}|<\|channel>\w{0,7})\Z")
_BARE_START = re.compile(r"analysis(?=[A-Z])")
_BARE_MARK = re.compile(r"assistant(?:(?:analysis|final)(?=\S)|commentary(?: to=|(?=[A-Z])))")
_MAY_BE_BARE = re.compile(r"a[a-z]{0,18}(?: (?:t|to)?)?\Z")
"""The channels of gpt-oss as servers write them that leave its special tokens out."""
_LAST_OF_WORD = frozenset(f"{ascii_letters}{digits}.!?…。！？")
_SPACE_MAX = 200
Deltas = list[TextDelta | ThinkingDelta]
ThinkingHabit = Literal["unknown", "late", "plain", "field"]
"""Where a model's thinking arrives. "late": in the text, and each complete answer so far had the end mark only, because
the chat template writes the first mark. "field": in a field of the response. "plain": some answer had neither."""


class ThinkingReader:
    """Separates thinking inside marks such as `<think>` and `</think>` from the text of one answer.

    Some chat templates write the first mark, so that only the second one arrives: then all text before it was thinking,
    and the next TextDelta replaces it. Texts of strangers may name a mark, so this counts only for a mark that begins a
    line or follows a word without a space, as templates write it, and never if the server sends the thinking in a
    field. Other second marks are text, and are dropped at the end of the answer. A first mark in the middle of the
    answer counts if the second one follows. Marks in code are text.

    If the habit is "late", all text counts as thinking until the second mark. If that mark never comes, the text is
    returned at the end, unless the answer is cut off."""

    def __init__(self, habit: ThinkingHabit = "unknown") -> None:
        self.habit: ThinkingHabit = habit
        self._held: str = ""
        self._lead: str = ""
        self._is_thinking = self._expects_end = habit == "late"
        self.has_thought = self.has_end_only = False
        self._doubt = [""] if self._expects_end else []
        self._withdrawn = 0
        self._mark, self._may_be_mark = _MARK, _MAY_BE_MARK
        self._opening: str | None = ""
        self._begin_text()

    @property
    def has_text(self) -> bool:
        return self._has_said

    def follow_field(self) -> None:
        """Notes that the server sends the thinking in a field."""
        self.habit, self.has_thought = "field", True
        if self._expects_end:
            self._expects_end = self._is_thinking = False

    def read(self, text: str) -> Deltas:
        """Returns the deltas for the next piece of the answer. The pieces may be split at any character."""
        if self._opening is not None:
            self._opening += text
            if "analysis".startswith(self._opening[:8]) and len(self._opening) < len("analysisX"):
                return []
            text, self._opening = self._opening, None
            if _BARE_START.match(text):
                # the first channel of gpt-oss: all text is thinking from now on, and the answer if no other one follows
                self._mark, self._may_be_mark = _BARE_MARK, _MAY_BE_BARE
                self._is_thinking, self._doubt, text = True, [text[:8]], text[8:]
        is_inside = self._has_said and not (self._held or self._is_thinking or self._end_mark)
        is_inside = is_inside and self._mark is _MARK
        # most of an answer cannot contain a mark
        if is_inside and "<" not in text and "[" not in text and "◁" not in text:
            deltas: Deltas = []
            self._say(text, deltas)
            return deltas
        whole, self._held = self._held + text, ""
        deltas = []
        place = self._withdrawn = 0
        for mark in self._mark.finditer(whole):
            self._pass(whole[place : mark.start()], deltas)
            self._take_mark(mark.group(), deltas)
            place = mark.end()
        if held := self._may_be_mark.search(whole, place):
            self._held = held.group()
        self._pass(whole[place : len(whole) - len(self._held)], deltas)
        return deltas

    def flush(self, *, is_cut_off: bool = False) -> Deltas:
        """Returns the text that was held back, after the answer has ended or was cut off at its length limit."""
        deltas: Deltas = []
        self._withdrawn = 0
        self._pass((self._opening or "") + self._held, deltas)
        if self._doubt and (self._has_said or not is_cut_off):
            self._say("".join(self._doubt), deltas)
        return deltas

    def _begin_text(self) -> None:
        self._has_said = False
        self._is_blank_line, self._follows_word = True, False
        self._end_mark: str = ""
        self._code = MarkdownCodeTracker()

    def _take_mark(self, mark: str, deltas: Deltas) -> None:
        if self._mark is _BARE_MARK:
            self._is_thinking, self.has_thought, self._doubt = mark.endswith("analysis"), True, []
            if mark.endswith("to="):
                self._say("<|channel|>commentary to=", deltas)
            return
        is_end = _IS_END.match(mark) is not None
        if self._is_thinking and is_end:
            self.has_end_only |= self._expects_end
            self._doubt = []
            self._is_thinking, self.has_thought = False, True
            return
        if self._is_thinking:
            self._pass(mark, deltas)
            return
        end_mark, self._end_mark = self._end_mark, ""
        self._say(end_mark, deltas)
        if self._code.is_code:
            self._say(mark, deltas)
        elif not is_end:
            self._is_thinking = True
            self._doubt = [mark] if self._has_said else []
        elif not self._has_said:
            self.has_thought = True
        elif self.has_thought or self.habit == "field" or not (self._is_blank_line or self._follows_word):
            self._end_mark = mark
        else:
            self._withdraw_text(deltas)

    def _pass(self, text: str, deltas: Deltas) -> None:
        if not text:
            return
        if not self._is_thinking:
            self._say(text, deltas)
            return
        deltas.append(ThinkingDelta(text=text))
        if self._doubt:
            self._doubt.append(text)

    def _say(self, text: str, deltas: Deltas) -> None:
        if self._end_mark:
            is_end = not text.strip() and len(self._end_mark) < _SPACE_MAX
            text, self._end_mark = self._end_mark + text, ""
            if is_end:
                self._end_mark = text
                return
        if not text:
            return
        if not self._has_said:
            text = text.lstrip() if self.has_thought else self._lead + text
            self._has_said = bool(text.strip()) or len(text) > _SPACE_MAX
            self._lead = text
        if not self._has_said:
            return
        self._code.feed(text)
        _, newline, line = text.rpartition("\n")
        self._is_blank_line = not line.strip() and bool(newline or self._is_blank_line)
        self._follows_word = text[-1] in _LAST_OF_WORD
        deltas.append(TextDelta(text=text))

    def _withdraw_text(self, deltas: Deltas) -> None:
        """Turns all text so far into thinking."""
        for place in range(self._withdrawn, len(deltas)):
            deltas[place] = ThinkingDelta(text=deltas[place].text)
        deltas.append(TextDelta(text="", replaces_earlier=True))
        self._withdrawn, self.has_thought, self.has_end_only = len(deltas), True, True
        self._begin_text()
