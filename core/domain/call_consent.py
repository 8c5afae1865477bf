"""Decides whether a tool call may send anything out of the thread. The decision depends on where the call goes and on
what the model had read.

As long as the model has read only what users wrote to it, every call is allowed. Text from anywhere else can make the
model call a tool, so then a user must have named the target of the call, or must agree to it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from core.domain.approval import Cause, escape_invisible
from core.domain.call_targets import is_local, normalize_address, normalize_target
from core.domain.sources import Origin, Source, SourceKind, Sources, newest_first

ReachKind = Literal["none", "reads_outside", "writes_outside", "connects", "talks_elsewhere", "spends"]
"""What a call does outside of its thread. `reads_outside`: it fetches something, and the address can carry data out.
`writes_outside`: it sends or changes something. `connects`: programs may send anything until the run ends.
`talks_elsewhere`: it writes to users elsewhere, or later. `spends`: it costs money."""
OPEN_PAGE = "the page that is open in the browser"
LATER_RUN = "a run that begins by itself later"
"""Targets without a name. Each consists of too many words to match anything that a user wrote."""
PAGE_MOVES = (
    "Not run: a call before it in your answer may have opened another page. Look at the page first, then call it again."
)
TARGET_CHARACTERS_MAX = 2_000
CAUSES_SHOWN_MAX = 3
_SHOWN_CHARACTERS_MAX = 100
_KINDS: dict[SourceKind, str] = {
    "person": "",
    "choice": "",
    "app": "the app",
    "quote": "a message that was quoted or forwarded",
    "chat": "messages in the thread that were not for me",
    "file": "the file",
    "page": "the page",
    "browser": "the page",
    "internet": "what programs fetched from the internet",
    "search": "the results of a search",
    "service": "the data of",
    "server": "the tool server",
    "document": "the documents of the knowledge base",
    "unknown": "a text of unknown origin",
}
_NAMELESS = frozenset({"quote", "chat", "internet", "search", "document", "unknown"})


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a call goes, and which text it returns.

    `targets` are the places that the call chooses: addresses, recipients, accounts. A call without targets goes only to
    services that the operator has chosen. `brings` are the sources of the text that the call returns. `moves_page` is
    true if a different page may be open in the browser after the call."""

    kind: ReachKind
    targets: tuple[str, ...] = ()
    brings: tuple[Origin, ...] = ()
    moves_page: bool = False


STAYS = Reach("none")
"""The reach of a call that stays within its thread and returns no text from outside."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class AskUsers:
    """The call needs a user's consent, because no user named these targets."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call must not run. The reason is written for the model."""

    reason: str


Verdict = Allow | AskUsers | Refuse
ALLOW = Allow()


def judge_target(reach: ReachKind, target: str, sources: Sources, named_by_people: frozenset[str]) -> Verdict:
    """Decides about one target of a call, given the reach of the call and the sources that the model had read when it
    wrote the call."""
    if reach == "none" or not sources.outside:
        return ALLOW
    if why := _explain_hidden_target(target):
        return Refuse(why)
    is_offered = reach == "reads_outside" and normalize_address(target) in sources.offered
    return ALLOW if is_offered or normalize_target(target) in named_by_people else AskUsers((target,))


def judge_call(reach: Reach, sources: Sources, earlier: Iterable[Reach] = ()) -> Verdict:
    """Decides about a whole call. If any of its targets is refused or has to be asked about, so is the call.

    `earlier` are the calls before it in the same response. After a call that moves the page, it is unknown which page
    an action in the browser would affect."""
    if OPEN_PAGE in reach.targets and sources.outside and any(call.moves_page for call in earlier):
        return Refuse(PAGE_MOVES)
    page = _find_open_page(sources)
    targets = [page if target == OPEN_PAGE else target for target in reach.targets]
    if page in targets and is_local(page):
        targets.remove(page)
    verdicts = [judge_target(reach.kind, target, sources, sources.named) for target in targets]
    refused = next((verdict for verdict in verdicts if isinstance(verdict, Refuse)), None)
    unnamed = tuple(target for verdict in verdicts if isinstance(verdict, AskUsers) for target in verdict.targets)
    return refused or (AskUsers(unnamed) if unnamed else ALLOW)


def explain_consent(ask: AskUsers, sources: Sources, now: datetime) -> Cause:
    """Returns in words, for users, why they are asked."""
    shown = sources.outside[:CAUSES_SHOWN_MAX]
    more = len(sources.outside) - len(shown)
    because = "; ".join([*(describe_source(source, now) for source in shown), *([f"and {more} more"] if more else [])])
    return Cause(because=because, unnamed=tuple(map(_target_text, ask.targets)))


def describe_source(source: Source, now: datetime) -> str:
    """Returns in words, for users, what a source is and when it was read."""
    place = source.name.partition("?")[0] if "://" in source.name else source.name
    name = "" if source.kind in _NAMELESS or not place else f" `{_plain(place.partition('://')[2] or place)}`"
    age = "" if source.kind == "unknown" else f", read {_age_text(source.read_at, now)}"
    return f"{_KINDS[source.kind]}{name}{age}"


def _explain_hidden_target(target: str) -> str:
    """Returns why users could not check the target, or an empty text if they can."""
    authority = target.partition("://")[2].partition("/")[0]
    if len(target) > TARGET_CHARACTERS_MAX:
        return f"Not run: its target is longer than {TARGET_CHARACTERS_MAX:,} characters, so nobody can check it."
    if escape_invisible(target) != target:
        return "Not run: its target has characters that nobody can see."
    if "\\" in authority or "@" in authority or " " in authority:
        return "Not run: its address does not show clearly to which host it leads. Write it without a user name."
    return ""


def _find_open_page(sources: Sources) -> str:
    """Returns the address of the page that is open in the browser, or OPEN_PAGE if it is unknown."""
    return next((source.name for source in newest_first(sources.read) if source.kind == "browser"), OPEN_PAGE)


def _age_text(read_at: datetime, now: datetime) -> str:
    minutes = int((now - read_at).total_seconds() // 60)
    for length, unit in ((24 * 60, "day"), (60, "hour"), (1, "minute")):
        if (count := minutes // length) > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _target_text(target: str) -> str:
    """Returns the value of a target for users. Look-alike letters in a host name are shown in their encoded form."""
    kind, _, value = normalize_target(target).partition(":")
    if kind != "word" and not value.isascii():
        value = value.encode("ascii", "backslashreplace").decode()
    return _plain(value or target)


def _plain(text: str) -> str:
    """Returns a text that others wrote, shortened and safe to put between backticks."""
    shown = escape_invisible(text).replace("`", "'")
    return shown if len(shown) <= _SHOWN_CHARACTERS_MAX else f"{shown[: _SHOWN_CHARACTERS_MAX - 1]}…"
