"""Tool calls that need approval: what users see of them, which answers are valid, and what an answer allows.

An answer applies to exactly the calls that users saw. Each call is identified by a digest of its tool and its
arguments."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.outside_text import utf16_length
from core.domain.threads import Ask

APPROVE_ONCE = "Approve once"
APPROVE_ALWAYS = "Always in this thread"
DENY = "Deny"
CHOICES = (APPROVE_ONCE, APPROVE_ALWAYS, DENY)
APPROVE_ALL = "Approve all"
ONE_BY_ONE = "One by one"
DENY_ALL = "Deny all"
CHOICES_OF_SEVERAL = (APPROVE_ALL, ONE_BY_ONE, DENY_ALL)
NOBODY_APPROVED = "Not run: no one has approved it. Call it again if it is still needed."
CHANGED = "Not run: it is not the call that people approved. Call it again if it is still needed."
TOO_LONG = (
    "Not run: it needs an approval, and is too long for people to check. Make smaller calls, or put the text into a"
    " file and name the file."
)
ADMIN_TOOLS = frozenset({"edit_agent"})
"""Tools whose calls only admins may approve."""
ADMINS_APPROVE = "Only admins of this bot can approve that."
EXPIRED = "No one approved it in time, so I did not do it. Press Retry if it is still needed."
CARD_CHARACTERS_MAX = 1400
"""Limits the text about the calls, so that the question fits into one message on every platform. The rest is in a
file."""
CARD_CALLS_MAX = 16
UNNAMED_SHOWN_MAX = 5
WHOLE_CHARACTERS_MAX = 50_000
"""Limits how much users are asked to check at once."""
_HEADLINE_CHARACTERS_MAX = 300
_TAIL_CHARACTERS = 24
_LINE_CHARACTERS = 160
_TEXTS = frozenset(["text", "body", "message", "content", "comment", "html", "markdown", "caption"])
"""Arguments that "always" covers whatever their text is, if another argument says where the call goes."""
_HEADINGS = frozenset(["subject", "title"])
"""Arguments that are treated as texts only in a call with a recipient. In other calls they may say what is changed."""
_RECIPIENTS = frozenset(
    "to recipient recipients channel chat conversation room user email address phone".split()  # noqa: SIM905 - a word list
)
_TARGETS = _RECIPIENTS | frozenset(
    "id number path file filename folder url uri repo repository owner project issue ticket thread".split()  # noqa: SIM905 - a word list
)
_EMPTY: tuple[JsonValue, ...] = ("", None, [])
_NAME_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
# characters that are invisible although their category says that they are letters or marks
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why users are asked about a call that would not need approval otherwise: the sources of the text that the model
    had read, in words, and the targets of the call that no user named."""

    because: str
    unnamed: tuple[str, ...]

    @classmethod
    def parse(cls, value: JsonValue) -> "Cause | None":
        """Returns the cause that `dump` wrote, or None for anything else."""
        match value:
            case {"because": str(because), "unnamed": list(unnamed)}:
                return cls(because, tuple(map(str, unnamed)))
            case _:
                return None

    def dump(self) -> JsonObject:
        return {"because": self.because, "unnamed": [*self.unnamed]}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallToApprove:
    """A tool call that needs approval, with its validated arguments.

    `index` is its place in the turn. `given` names the arguments that the model wrote, or is None if it wrote all of
    them. `in_headline` names the arguments that the headline already contains. If `is_asked_each_time` is true, the
    call cannot be allowed permanently; neither can a call that has a `cause`. `commands` maps labels of buttons to the
    commands that change what the call does once it is approved."""

    index: int
    tool: str
    headline: str
    arguments: JsonObject
    given: frozenset[str] | None = None
    in_headline: frozenset[str] = frozenset()
    is_asked_each_time: bool = False
    cause: Cause | None = None
    commands: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def digest(self) -> str:
        """Identifies exactly this call, even in a later version of the program whose tool has other default values."""
        given = {name: value for name, value in self.arguments.items() if self.given is None or name in self.given}
        return _digest([self.tool, given])

    @property
    def target(self) -> JsonObject:
        """The arguments that say where the call goes: all arguments except free text, or all of them if it is unclear
        which are the target. An object or a list counts as a target, because it may contain one."""
        free = frozenset[str]()
        for name, value in self.arguments.items():
            # its name says that it is a target, and its value is a text or a number
            words = [word.lower() for word in _NAME_WORD.findall(name)]
            is_place = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
            if words and words[-1] in _TARGETS and is_place:
                free |= _TEXTS
                if next((word for word in reversed(words) if word != "id"), "") in _RECIPIENTS:
                    free |= _HEADINGS
        return {name: value for name, value in self.arguments.items() if name not in free or not isinstance(value, str)}

    @property
    def grant(self) -> str:
        """The same for all calls that one "always" allows: same tool and same target, but any text. Empty if "always"
        is not possible."""
        if self.is_asked_each_time or self.cause:
            return ""
        free: list[JsonValue] = [*sorted(self.arguments.keys() - self.target.keys())]
        return _digest([self.tool, free, self.target])

    @property
    def line(self) -> str:
        """The complete call on one line of Markdown."""
        values = [f"{_name(name)} `{_on_one_line(value)}`" for name, value in self._shown.items()]
        return self._headed + (f", with {', '.join(values)}" if values else "")

    @property
    def whole(self) -> str:
        """The complete call as plain text, with the lines of each argument."""
        parts = [self._headed]
        for name, value in self._shown.items():
            parts.append(f"  {escape_invisible(name)}:")
            for line in map(escape_invisible, _spelled(value).split("\n")):
                # wrapped, so that nothing is so far to the right that users miss it
                starts = range(0, max(1, len(line)), _LINE_CHARACTERS)
                pieces = (
                    f"> {line[at : at + _LINE_CHARACTERS]}" if at else f"| {line[:_LINE_CHARACTERS]}" for at in starts
                )
                parts += [f"    {piece}" for piece in pieces]
        return "\n".join(parts)

    @property
    def _shown(self) -> JsonObject:
        """The arguments, without those in the headline and without empty ones that the model did not write."""
        given = self.given if self.given is not None else self.arguments.keys()
        hidden = self.in_headline if utf16_length(self.headline) <= _HEADLINE_CHARACTERS_MAX else frozenset[str]()
        return {
            name: value
            for name, value in self.arguments.items()
            if name not in hidden and (name in given or value not in _EMPTY)
        }

    @property
    def _headed(self) -> str:
        return _cut(escape_invisible(self.headline).replace("`", "'"), _HEADLINE_CHARACTERS_MAX)

    def cut_line(self, length_max: int) -> str:
        """Returns the line if it fits. Otherwise returns its beginning, how much is missing, and how the missing part
        ends."""
        if utf16_length(self.line) <= length_max:
            return self.line
        parts: list[str] = [_cut(self._headed, length_max // 2)]
        room = length_max - utf16_length(parts[0]) - 50
        names = list(self._shown)
        share = max(room // max(1, len(names)), 110)
        for at, name in enumerate(names):
            part = f"{_name(name)} {_cut_value(self.arguments[name], share - 90)}"
            room -= utf16_length(part) + 2
            if room < 0:
                parts.append(f"**and {len(names) - at} more values that do not fit here**")
                break
            parts.append(part)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The tool calls of one turn that need approval."""

    turn_id: str
    calls: tuple[CallToApprove, ...]

    @property
    def card(self) -> str:
        """The question that users see in chat. It mentions the file if something did not fit."""
        shown = self.calls[:CARD_CALLS_MAX]
        share = CARD_CHARACTERS_MAX // max(1, len(shown))
        if self._fits:
            share = CARD_CHARACTERS_MAX
        lines = ["May I do this?", *(f"- {call.cut_line(share)}" for call in shown)]
        if len(self.calls) > len(shown):
            lines.append(f"- **and {len(self.calls) - len(shown)} more calls that do not fit here**")
        if not self._fits:
            count = self._whole.count("\n")
            lines.append(
                f"\n**This is not everything.** The file `{self.file_name}` ({count} lines) shows it whole:"
                " read it before you approve."
            )
        if self.cause:
            lines.append(f"\n{self.cause}")
        if APPROVE_ALWAYS in self.options:
            call = self.calls[0]
            free = [_name(name) for name in call.arguments if name not in call.target]
            same = ", ".join(_name(name) for name in call.target) or "no arguments"
            but = f"; {', '.join(free)} may differ" if free else ""
            always = f"“{APPROVE_ALWAYS}” allows `{call.tool}` with the same {same}{but}."
            lines.append(f"\n{_cut(always, 250)}")
        return "\n".join(lines)

    @property
    def cause(self) -> str:
        """Why users are asked, if the reason is text that the model has read. Otherwise empty."""
        causes = [call.cause for call in self.calls if call.cause]
        if not causes:
            return ""
        unnamed = list(dict.fromkeys(target for cause in causes for target in cause.unnamed))
        shown = ", ".join(f"`{target}`" for target in unnamed[:UNNAMED_SHOWN_MAX])
        more = f" and {len(unnamed) - UNNAMED_SHOWN_MAX} more" if len(unnamed) > UNNAMED_SHOWN_MAX else ""
        return f"Because of: {causes[-1].because}. Nobody in this thread named {shown}{more}."

    @property
    def file_name(self) -> str:
        return f"approval-{_digest(self.file_text)[:8]}.txt"

    @property
    def file_text(self) -> str:
        """All calls in full, as the file that the card mentions if something did not fit. Otherwise empty."""
        return "" if self._fits else self._whole

    @property
    def text(self) -> str:
        """Everything that users are asked to approve, for places that cannot show files."""
        return self.card if self._fits else f"{self.card}\n\n{self._whole}"

    @property
    def is_too_long(self) -> bool:
        return len(self._whole) > WHOLE_CHARACTERS_MAX

    @property
    def summary(self) -> str:
        """The calls that need approval, in one line."""
        first = self.calls[0].line if self.calls else "a tool"
        more = f" and {len(self.calls) - 1} more" if len(self.calls) > 1 else ""
        return f"{_cut(first, 120)}{more}"

    @property
    def options(self) -> tuple[str, ...]:
        if len(self.calls) > 1:
            return CHOICES_OF_SEVERAL
        return CHOICES if all(call.grant for call in self.calls) else (APPROVE_ONCE, DENY)

    @property
    def commands(self) -> Mapping[str, str]:
        """The commands for the buttons of the approved card. Empty if it would be unclear which call they are about."""
        commands = [call.commands for call in self.calls if call.commands]
        return commands[0] if len(commands) == 1 else {}

    @property
    def subject(self) -> str:
        """The turn and its calls, as stored with the ask."""
        calls = [[call.index, call.tool, call.digest, call.grant] for call in self.calls]
        return json.dumps([self.turn_id, calls])

    @property
    def _fits(self) -> bool:
        if any(call.tool in ADMIN_TOOLS for call in self.calls):
            return False  # a draft has to be read with its line breaks
        lengths = (utf16_length(call.line) + 3 for call in self.calls)
        return len(self.calls) <= CARD_CALLS_MAX and sum(lengths) <= CARD_CHARACTERS_MAX

    @property
    def _whole(self) -> str:
        count = len(self.calls)
        head = "Characters that cannot be seen are written as \\uXXXX. A line that begins with > goes on."
        calls = (f"Call {at} of {count}: {call.whole}" for at, call in enumerate(self.calls, start=1))
        return "\n\n".join([head, *calls]) + "\n"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call as it is stored with an ask."""

    tool: str
    digest: str
    grant: str


def _asked_calls(ask: Ask) -> tuple[str, Mapping[int, _Asked]]:
    """Returns the turn and the calls that the ask is about. Asks of earlier versions do not contain calls."""
    try:
        turn_id, calls = json.loads(ask.subject)
        return str(turn_id), {int(one[0]): _Asked(*map(str, one[1:])) for one in calls}
    except (ValueError, TypeError, IndexError):
        return "", {}


def asked_tools(ask: Ask) -> tuple[str, ...]:
    """Returns the names of the tools that the ask is about, without repeats."""
    return tuple(dict.fromkeys(call.tool for call in _asked_calls(ask)[1].values()))


def is_for_admins(ask: Ask) -> bool:
    """Returns whether the ask is an approval that only admins may give."""
    return ask.kind == "approval" and not ADMIN_TOOLS.isdisjoint(asked_tools(ask))


def grants_of_always(ask: Ask) -> frozenset[str]:
    """Returns the `CallToApprove.grant` of each call if the answer is "always". Otherwise returns an empty set."""
    calls = _asked_calls(ask)[1]
    is_always = ask.kind == "approval" and find_choice(ask) == APPROVE_ALWAYS
    return frozenset(call.grant for call in calls.values() if call.grant) if is_always else frozenset()


def parse_choice(answer: str) -> str | None:
    """Returns the label of the button that the answer names, or None. Callers take any other answer for a denial with a
    reason."""
    said = " ".join(answer.split()).casefold()
    labels = (*CHOICES, *CHOICES_OF_SEVERAL)
    return next((choice for choice in labels if choice.casefold() == said), None)


def find_choice(ask: Ask) -> str | None:
    """Returns the choice that the answer makes. If there are several calls, a choice for a single call means that users
    are asked about each of them."""
    choice = parse_choice(ask.answer or "") if ask.state == "answered" else None
    if len(_asked_calls(ask)[1]) > 1 and choice in (APPROVE_ONCE, APPROVE_ALWAYS):
        return ONE_BY_ONE
    return choice


def is_allowed(ask: Ask) -> bool:
    """Returns whether the answer approves the calls."""
    return find_choice(ask) in (APPROVE_ONCE, APPROVE_ALWAYS, APPROVE_ALL)


def is_denied(ask: Ask) -> bool:
    """Returns whether the answer denies the calls, by a button or in words."""
    return ask.state == "answered" and not is_allowed(ask) and find_choice(ask) != ONE_BY_ONE


def answerer_name(ask: Ask) -> str:
    """Returns the name of the user who answered. Only users of the HTTP API have no name."""
    if ask.answered_by is None:
        return "Somebody"
    return ask.answered_by.name or "A person over HTTP"


def is_one_by_one(ask: Ask | None, turn_id: str) -> bool:
    """Returns whether users want to be asked about each of the turn's calls separately."""
    return ask is not None and _asked_calls(ask)[0] == turn_id


def needs_question(ask: Ask | None, turn_id: str, index: int) -> bool:
    """Returns whether users still have to be asked about the turn's call. `ask` is the newest ask of the run."""
    if ask is None:
        return True
    asked_turn, calls = _asked_calls(ask)
    if asked_turn != turn_id:
        return True
    if ask.state != "answered":
        return False
    return index not in calls or find_choice(ask) == ONE_BY_ONE


def refusal_reason(ask: Ask | None, turn_id: str, call: CallToApprove) -> str | None:
    """Returns the reason why the turn's call may not run, written for the model, or None if it may run."""
    if ask is None or ask.state != "answered":
        return NOBODY_APPROVED
    asked_turn, calls = _asked_calls(ask)
    asked = calls.get(call.index)
    if asked_turn != turn_id or asked is None:
        return NOBODY_APPROVED
    if asked.digest != call.digest:
        return CHANGED
    if is_allowed(ask):
        return None
    because = f" It was asked about because of: {call.cause.because}." if call.cause else ""
    return f"{denial_reason(ask)}{because}"


def denial_reason(ask: Ask) -> str:
    """Returns the result of a call that users denied, written for the model."""
    who = answerer_name(ask)
    if find_choice(ask) in (DENY, DENY_ALL):
        return f"Not run: {who} denied it. Do not try it again; find another way or ask."
    return f"Not run: {who} denied it, with the words: {ask.answer}"


def escape_invisible(text: str) -> str:
    """Returns the text with every character that is invisible, or that changes how others are shown, as `\\uXXXX`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape_if_invisible, text))


@lru_cache(1 << 14)
def _escape_if_invisible(char: str) -> str:
    # printable: no separators except the space, and no control, format, private or unassigned characters
    is_selector = "\ufe00" <= char <= "\ufe0f" or "\u180b" <= char <= "\u180f" or char >= "\U000e0000"
    if char.isprintable() and not is_selector and char not in _BLANK:
        return char
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def _digest(value: JsonValue) -> str:
    """Returns a digest of the value's canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _spelled(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _on_one_line(value: JsonValue) -> str:
    """Returns the value with invisible characters escaped and without backticks, which would end inline code in
    Markdown."""
    return escape_invisible(_spelled(value)).replace("`", "\\u0060") or " "


def _name(name: str) -> str:
    """Returns an argument's name, as code if it contains Markdown."""
    is_plain = name.replace("-", "").isalnum() and name.isascii()
    return name if is_plain and len(name) <= 60 else f"`{_cut(_on_one_line(name), 60)}`"


def _cut_value(value: JsonValue, length_max: int) -> str:
    """Returns the value as inline code. Of a long value, returns the beginning, how much is left out, and the end."""
    text = _on_one_line(value)
    if utf16_length(text) <= length_max:
        return f"`{text}`"
    head = _cut(text, max(8, length_max - _TAIL_CHARACTERS))
    lines = _spelled(value).count("\n") + 1
    tail = text[-_TAIL_CHARACTERS:]
    tail = tail[utf16_length(tail) - len(tail) :]
    missing = f"{len(text) - len(head) - len(tail):,} more characters" + (f" of {lines:,} lines" if lines > 1 else "")
    return f"`{head}` **… {missing} …** `{tail}`"


def _cut(text: str, length_max: int) -> str:
    if utf16_length(text) <= length_max:
        return text
    kept = text[: length_max - 1]
    return f"{kept[: 2 * len(kept) - utf16_length(kept)]}…"
