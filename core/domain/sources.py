"""Records where the text of a conversation comes from, whether that text may instruct the agent, and what users named
in it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from pydantic import JsonValue

from core.domain.call_targets import is_local, normalize_address
from core.domain.json import JsonObject
from core.domain.outside_text import is_quotation, single_line
from core.domain.threads import ThreadInput

SourceKind = Literal[
    "person",
    "choice",
    "app",
    "quote",
    "chat",
    "file",
    "page",
    "browser",
    "internet",
    "search",
    "service",
    "server",
    "document",
    "unknown",
]
"""The kinds of sources. A `person` may give the agent requests: only the person's own words instruct it, and their
`choice` among answers that the agent has written, which names nothing. A `quote` is what they quote or forward. A
`chat` is what was written in the thread, but not to the agent. A page in the `browser` can be acted on, other pages
cannot. The `internet` is what programs in the sandbox may have fetched."""
_KINDS: Mapping[str, SourceKind] = {kind: kind for kind in get_args(SourceKind)}
Origin = tuple[SourceKind, str]
"""The kind and the name of a source."""
SOURCES_KEY = "sources"
"""The metadata key of a message under which the sources of its text are stored."""
SOURCES_MAX = 100
NAMED_STORED_MAX = 3_000
OFFERED_MAX = 500
NAME_CHARACTERS_MAX = 300
"""No host name is longer, so no host name is truncated."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a text that the model was given, and when it was read."""

    kind: SourceKind
    name: str
    read_at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", single_line(self.name, NAME_CHARACTERS_MAX))

    @property
    def may_instruct(self) -> bool:
        return self.kind in ("person", "choice")

    @property
    def is_outside(self) -> bool:
        """Whether its text comes from outside and must not instruct the agent. A page of the sandbox has the thread's
        sources."""
        return not self.may_instruct and not (self.kind == "browser" and is_local(self.name))


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a text. `named` are the values that users named in it (`core.domain.call_targets`), and `offered`
    the addresses that a search, users in the chat or the program itself provided in full."""

    read: frozenset[Source] = frozenset()
    named: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()

    @property
    def outside(self) -> tuple[Source, ...]:
        """The sources that must not instruct the agent, newest first."""
        return tuple(newest_first(source for source in self.read if source.is_outside))


NO_SOURCES = Sources()
_UNKNOWN = Source("unknown", "", datetime.fromtimestamp(0, UTC))
UNKNOWN_SOURCES = Sources(frozenset({_UNKNOWN}))


def sources_read_now(*origins: Origin) -> Sources:
    """Returns the sources of a text that is read now."""
    now = datetime.now(UTC)
    return Sources(frozenset(Source(kind, name, now) for kind, name in origins))


def offer_addresses(addresses: Iterable[str]) -> Sources:
    """Returns the sources of a text that provides these addresses in full and contains nothing else from outside."""
    return Sources(offered=frozenset(map(normalize_address, addresses)))


def sources_of_input(thread_input: ThreadInput) -> Sources:
    """Returns the sources of what a user wrote to the agent: the user, and everything that they attached, quoted or
    forwarded."""
    author: SourceKind = (
        "app" if thread_input.author.is_app else "choice" if thread_input.kind == "answer" else "person"
    )
    files: list[Origin] = [("file", file.name) for file in thread_input.files]
    quotes: list[Origin] = [("quote", "")] if is_quotation(thread_input.text) else []
    return sources_read_now((author, thread_input.author.name), *files, *quotes)


def join_sources(parts: Iterable[Sources]) -> Sources:
    """Returns the combined sources of all parts. If a source was read several times, the newest reading counts. If
    there are too many, the oldest are left out, users first, so that the program never forgets that text came from
    outside."""
    parts = [*dict.fromkeys(part for part in parts if part != NO_SOURCES)]
    if len(parts) == 1 and len(parts[0].read) <= SOURCES_MAX:
        return parts[0]
    newest: dict[Origin, Source] = {}
    for source in newest_first(source for part in parts for source in part.read):
        newest.setdefault((source.kind, source.name), source)
    by_worth = sorted(newest.values(), key=lambda source: source.may_instruct)
    return Sources(
        frozenset(by_worth[:SOURCES_MAX]), _union(part.named for part in parts), _union(part.offered for part in parts)
    )


def dump_sources(sources: Sources) -> JsonObject:
    """Returns the sources in the form in which a message's metadata stores them."""
    read: list[JsonValue] = [
        [source.kind, source.name, source.read_at.isoformat()] for source in newest_first(sources.read)
    ]
    named: list[JsonValue] = [*sorted(sources.named, key=_storage_order)[:NAMED_STORED_MAX]]
    offered: list[JsonValue] = [*sorted(sources.offered)[:OFFERED_MAX]]
    fields: JsonObject = {"read": read, "named": named, "offered": offered}
    return {name: value for name, value in fields.items() if value}


def parse_sources(value: JsonValue) -> Sources:
    """Returns the sources that a message's metadata stores. Anything that cannot be parsed becomes an unknown
    source."""
    match value:
        case dict():
            read = map(_parse_source, _list(value.get("read")))
            return Sources(frozenset(read), _texts(value.get("named")), _texts(value.get("offered")))
        case _:
            return UNKNOWN_SOURCES


def _parse_source(value: JsonValue) -> Source:
    match value:
        case [str(kind), str(name), str(read_at)] if kind in _KINDS:
            return Source(_KINDS[kind], name, datetime.fromisoformat(read_at))
        case _:
            return _UNKNOWN


def newest_first(sources: Iterable[Source]) -> Sequence[Source]:
    """Returns the sources, newest first, always in the same order."""
    return sorted(sources, key=lambda source: (source.read_at, source.kind, source.name), reverse=True)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Returns the union. Returns the same object if all others are empty, as with most messages."""
    first, *others = [values for values in sets if values] or [frozenset[str]()]
    return first.union(*others) if others else first


def _storage_order(value: str) -> tuple[bool, str]:
    return value.startswith("word:"), value


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _texts(value: JsonValue) -> frozenset[str]:
    return frozenset(text for text in _list(value) if isinstance(text, str))
