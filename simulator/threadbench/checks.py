"""Checks what the agent has left behind when a task is over: its messages, files and tool calls."""

import csv
import fnmatch
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from simulator.threadbench.files import picture_size, read_text

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedFile:
    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message of the agent to people, other than a status. `after_act` counts the acts of people before it."""

    text: str
    after_act: int
    files: tuple[HandedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool call of the agent, with its result as text."""

    name: str
    arguments: JsonValue
    succeeded: bool
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalState:
    """What a task has left behind. `acts` is how many acts of people there were. `files` are of the workspace, by
    path; those that do not exist are missing. `elsewhere` are the agent's messages outside the thread."""

    acts: int = 1
    posts: tuple[Post, ...] = ()
    elsewhere: tuple[str, ...] = ()
    calls: tuple[ToolUse, ...] = ()
    run_statuses: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextCheck(_Strict):
    """Conditions of a text. `contains` and `lacks` ignore case and emphasis; of `any_of`, one text is enough.

    `matches` is a regular expression.
    """

    contains: Texts = ()
    any_of: Texts = ()
    lacks: Texts = ()
    matches: str = ""
    characters_max: int | None = None

    @field_validator("contains", "lacks", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("matches")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from error
        return value

    def text_problems(self, text: str, where: str) -> Iterator[str]:
        plain = _plain(text)
        yield from (f"{where} lacks {one!r}" for one in self.contains if _plain(one) not in plain)
        yield from (f"{where} holds {one!r}" for one in self.lacks if _plain(one) in plain)
        if self.any_of and not any(_plain(one) in plain for one in self.any_of):
            yield f"{where} has none of {', '.join(map(repr, self.any_of))}"
        if self.matches and not re.search(self.matches, text):
            yield f"{where} does not match {self.matches!r}"
        if self.characters_max is not None and len(text) > self.characters_max:
            yield f"{where} has {len(text)} characters, more than {self.characters_max}"


class Reply(TextCheck):
    """The agent's messages after the act with this number, counted from 1; by default, the last one."""

    to_act: int | None = None

    def problems(self, state: FinalState) -> Iterator[str]:
        act = self.to_act or state.acts
        posts = [one.text for one in state.posts if one.after_act == act]
        if not posts:
            yield f"there is no reply to act {act}"
            return
        yield from self.text_problems("\n".join(posts), f"the reply to act {act}")


class Silent(_Strict):
    """The agent posts nothing after the act with this number."""

    to_act: int

    def problems(self, state: FinalState) -> Iterator[str]:
        if said := [one.text for one in state.posts if one.after_act == self.to_act]:
            yield f"after act {self.to_act} the agent says {said[0][:80]!r}"


class FileCheck(TextCheck):
    """Conditions of a file's content. `rows` and `columns` are those of a CSV file, whose first row is its header.

    `cells` maps "first cell of the row/column" to a value, which may be a number. `json_values` maps a path such as
    `total` or `items.0.name` to a value. `width_min` is the least width of a picture in pixels.
    """

    rows: int | None = None
    columns: Texts = ()
    cells: Mapping[str, str | float] = Field(default_factory=dict[str, str | float])
    json_values: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    width_min: int | None = None

    def content_problems(self, name: str, content: bytes) -> Iterator[str]:
        text = read_text(name, content)
        yield from self.text_problems(text, name)
        if self.rows is not None or self.columns or self.cells:
            yield from self._table_problems(name, text)
        for path, wanted in self.json_values.items():
            if (found := _json_value(text, path)) != wanted:
                yield f"{name}: {path} is {found!r}, not {wanted!r}"
        if self.width_min is not None and picture_size(content)[0] < self.width_min:
            yield f"{name} is no picture of at least {self.width_min} pixels width"

    def _table_problems(self, name: str, text: str) -> Iterator[str]:
        try:
            first, *rest = [row for row in csv.reader(text.splitlines()) if row]
        except (csv.Error, ValueError):
            yield f"{name} is no table"
            return
        header = [cell.strip() for cell in first]
        if self.rows is not None and len(rest) != self.rows:
            yield f"{name} has {len(rest)} rows, not {self.rows}"
        if missing := [one for one in self.columns if one not in header]:
            yield f"{name} lacks the columns {', '.join(missing)}"
        for place, wanted in self.cells.items():
            key, _, column = place.rpartition("/")
            row = next((one for one in rest if one[0].strip() == key), list[str]())
            at = header.index(column) if column in header else len(row)
            found = row[at].strip() if at < len(row) else None
            if not _is_same(found, wanted):
                yield f"{name}: {place} is {found!r}, not {wanted!r}"


class Posted(FileCheck):
    """The agent has handed over a file whose name matches the pattern (`*.csv`)."""

    name: str

    def problems(self, state: FinalState) -> Iterator[str]:
        handed = [
            one for post in state.posts for one in post.files if fnmatch.fnmatch(one.name.lower(), self.name.lower())
        ]
        if not handed:
            yield f"no file {self.name} was handed over"
            return
        yield from self.content_problems(handed[-1].name, handed[-1].content)


class InWorkspace(FileCheck):
    """The workspace has this file; with `is_missing` it has not."""

    path: str
    is_missing: bool = False

    def problems(self, state: FinalState) -> Iterator[str]:
        content = state.files.get(self.path)
        if self.is_missing != (content is None):
            yield f"{self.path} {'exists' if self.is_missing else 'does not exist'}"
        elif content is not None:
            yield from self.content_problems(self.path, content)


class Called(_Strict):
    """How often the agent has called a tool whose name matches the pattern, with arguments that match `arguments`.

    `succeeded` counts only calls that ended so.
    """

    tool: str
    arguments: str = ""
    succeeded: bool | None = None
    at_least: int = 0
    at_most: int | None = None

    def problems(self, state: FinalState) -> Iterator[str]:
        count = sum(self._counts(call) for call in state.calls)
        if count < self.at_least:
            yield f"{self.tool} was called {count} times, not at least {self.at_least}"
        if self.at_most is not None and count > self.at_most:
            yield f"{self.tool} was called {count} times, more than {self.at_most}"

    def _counts(self, call: ToolUse) -> bool:
        told = json.dumps(call.arguments, ensure_ascii=False)
        return (
            fnmatch.fnmatch(call.name, self.tool)
            and (self.succeeded is None or call.succeeded is self.succeeded)
            and re.search(self.arguments, told) is not None
        )


class Asked(_Strict):
    """Whether the agent asks people a question (an approval is none). `to_act`: in its reply to this act."""

    expected: bool = True
    to_act: int | None = None

    def problems(self, state: FinalState) -> Iterator[str]:
        if self.to_act is None:
            asks = any(call.name == "ask" and call.succeeded for call in state.calls)
        else:
            posts = [one.text for one in state.posts if one.after_act == self.to_act]
            asks = any("?" in one or "？" in one for one in posts)
        if asks is not self.expected:
            yield "the agent asks a question" if asks else "the agent does not ask"


class Ended(_Strict):
    """The last run has this status."""

    status: Literal["completed", "failed", "stopped"]

    def problems(self, state: FinalState) -> Iterator[str]:
        last = state.run_statuses[-1] if state.run_statuses else "missing"
        if last != self.status:
            yield f"the last run is {last}, not {self.status}"


class StaysInThread(_Strict):
    """The agent posts nothing outside its thread. This is checked for every task."""

    def problems(self, state: FinalState) -> Iterator[str]:
        yield from (f"the agent says elsewhere: {one[:80]!r}" for one in state.elsewhere)


class _Check(Protocol):
    def problems(self, state: FinalState) -> Iterator[str]: ...


class Check(_Strict):
    """One check of a task: exactly one of the fields is set."""

    reply: Reply | None = None
    silent: Silent | None = None
    posted: Posted | None = None
    file: InWorkspace | None = None
    called: Called | None = None
    asked: Asked | None = None
    ended: Ended | None = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> "Check":
        if len(self._kinds()) != 1:
            raise ValueError("a check has exactly one kind")
        return self

    @property
    def kind(self) -> _Check:
        return self._kinds()[0]

    def _kinds(self) -> list[_Check]:
        kinds = (self.reply, self.silent, self.posted, self.file)
        return [one for one in (*kinds, self.called, self.asked, self.ended) if one is not None]


def find_problems(checks: Sequence[Check], state: FinalState) -> tuple[str, ...]:
    """Returns a sentence for each condition that does not hold; none if the task is done."""
    kinds = (*(check.kind for check in checks), StaysInThread())
    return tuple(problem for kind in kinds for problem in kind.problems(state))


def checked_paths(checks: Sequence[Check]) -> tuple[str, ...]:
    """Returns the paths of the workspace whose content the checks need."""
    return tuple(check.file.path for check in checks if check.file is not None)


def _plain(text: str) -> str:
    return re.sub(r"[*_`\u200b\u2060]|(?<=\d),(?=\d{3})", "", text).casefold()


def _is_same(found: str | None, wanted: str | float) -> bool:
    if found is None or isinstance(wanted, str):
        return found == wanted
    try:
        return abs(float(found) - wanted) < 0.005
    except ValueError:
        return False


def _json_value(text: str, path: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return None
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
