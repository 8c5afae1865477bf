"""Every pattern of the product scans hostile text in linear time: a slow one lets a single message stall the process.

The patterns are found, not listed: those in the modules' and classes' names, and those written in calls of `re`.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bots
import core
import sandbox
import storage
from bots.inbound.commands.short_replies import CHARACTERS_MAX
from core.context.todo_file import ITEM_CHARACTERS_MAX
from tests.fakes.cpu_seconds import seconds_of

LENGTH = 40_000
"""The longest message that Slack delivers."""
SECONDS_MAX = 0.05
SLOW_MACHINE_SECONDS_MAX = 0.2
_ANCHORED = frozenset({"match", "fullmatch"})
_EVERYWHERE = ("sub",)
"""Searches again after every match, and so does all the work of the other methods."""
_RE_FUNCTIONS = frozenset({"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"})
_NOT_IMPORTED = ("storage.migrations.env", "storage.migrations.versions", "__main__")
_ENDS = ("\n\0", "")


@dataclass(frozen=True)
class Used:
    """A pattern, where it stands, and the methods that the product calls on it."""

    place: str
    pattern: "re.Pattern[Any]"
    methods: tuple[str, ...]


def _modules() -> list[ModuleType]:
    found: list[ModuleType] = []
    for package in (bots, core, sandbox, storage):
        found.append(package)
        found += [
            importlib.import_module(one.name)
            for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
            if not any(part in one.name for part in _NOT_IMPORTED)
        ]
    return found


def _named(module: ModuleType) -> "Iterator[tuple[str, re.Pattern[Any]]]":
    """Yields the patterns in the names of a module and of its classes, also those inside tuples and mappings."""
    owners: list[tuple[str, object]] = [("", module)]
    owners += [
        (f"{name}.", value)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    for prefix, owner in owners:
        for name, value in list(vars(owner).items()):
            yield from ((f"{prefix}{name}", one) for one in _inside(value, 3))


def _inside(value: object, depth: int) -> "Iterator[re.Pattern[Any]]":
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        yield from (one for item in value.items() for one in _inside(item, depth - 1))
    elif depth and isinstance(value, tuple | list | frozenset | set):
        yield from (one for item in value for one in _inside(item, depth - 1))


def _text_of(node: ast.expr, names: dict[str, Any]) -> str | bytes | None:
    """Returns the text of a constant expression. An unknown part of an f-string counts as a word."""
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return text
        case ast.JoinedStr(values=parts):
            texts = [_text_of(part, names) for part in parts]
            return "".join(one if isinstance(one, str) else "word" for one in texts)
        case ast.FormattedValue(value=ast.Name(id=name)):
            value = names.get(name)
            return value if isinstance(value, str) else "word"
        case ast.Name(id=name):
            value = names.get(name)
            return value if isinstance(value, str | bytes) else None
        case _:
            return None


def _written(module: ModuleType, nodes: Sequence[ast.AST]) -> Iterator[Used]:
    """Yields the patterns written in calls such as `re.sub("...", ...)`."""
    scope = {**vars(module), **_local_texts(nodes, vars(module))}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name), args=[first, *_]) if (
                name in _RE_FUNCTIONS
            ):
                text = _text_of(first, scope)
                if text is not None:
                    methods = (name,) if name in _ANCHORED else _EVERYWHERE
                    place = f"{module.__name__}:{node.lineno}"
                    if name != "compile":
                        yield Used(place, re.compile(text, _flags(node)), methods)
            case _:
                pass


def _local_texts(nodes: Sequence[ast.AST], names: dict[str, Any]) -> dict[str, Any]:
    """Returns the texts assigned to names anywhere in the module, such as the parts of an f-string."""
    return {
        target.id: text
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and (text := _text_of(node.value, names)) is not None
    }


def _flags(call: ast.Call) -> int:
    said = " ".join(ast.unparse(part) for part in [*call.args[1:], *call.keywords])
    named = re.findall(r"re\.([A-Z]+)\b", said)
    return sum(int(getattr(re, name)) for name in dict.fromkeys(named))


def _methods_by_name(nodes: Sequence[ast.AST]) -> dict[str, set[str]]:
    """Returns the methods called on each name. A name that is used in another way counts as used in every way."""
    found: dict[str, set[str]] = {}
    called = {
        id(node.value): node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr not in ("pattern", "flags")
    }
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found.setdefault(name, set()).add(called.get(id(node), "search"))
    return found


def find_patterns() -> list[Used]:
    modules = {
        module: list(ast.walk(ast.parse(Path(module.__file__ or "").read_text("utf-8")))) for module in _modules()
    }
    by_module = {module: _methods_by_name(nodes) for module, nodes in modules.items()}
    public: dict[str, set[str]] = {}
    for methods in by_module.values():
        for name, called in methods.items():
            public.setdefault(name, set()).update(called)
    found: list[Used] = []
    for module, nodes in modules.items():
        for name, pattern in _named(module):
            plain = name.rpartition(".")[2]
            used = (by_module[module] if plain.startswith("_") else public).get(plain, set())
            is_anchored = bool(used) and used <= _ANCHORED
            ways = tuple(sorted(used)) if is_anchored else _EVERYWHERE
            found.append(Used(f"{module.__name__}.{name}", pattern, ways))
        found += _written(module, nodes)
    unique = {(one.pattern.pattern, one.pattern.flags, one.methods): one for one in found}
    return list(unique.values())


def _sample(tree: Any, repeats: int = 1) -> str:
    """Returns a text that the parsed pattern matches, more or less: assertions and negations are left out."""
    return "".join(_sample_of(op, value, repeats) for op, value in tree)


def _sample_of(op: Any, value: Any, repeats: int) -> str:
    match str(op):
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return "x" if value != ord("x") else "y"
        case "IN":
            return _member(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, body = value
            return _sample(body) * max(int(least), min(repeats, int(most)))
        case "SUBPATTERN":
            return _sample(value[3], repeats)
        case "ATOMIC_GROUP":
            return _sample(value, repeats)
        case "BRANCH":
            return _sample(value[1][0], repeats)
        case _:
            return ""


def _member(choices: list[Any]) -> str:
    first = str(choices[0][0])
    if first == "NEGATE":
        excluded = {chr(value) for op, value in choices if str(op) == "LITERAL"}
        return next(char for char in "x \n" if char not in excluded)
    op, value = choices[0]
    match str(op):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case _:
            return {
                "CATEGORY_DIGIT": "1",
                "CATEGORY_SPACE": " ",
                "CATEGORY_WORD": "a",
                "CATEGORY_NOT_SPACE": "x",
                "CATEGORY_NOT_WORD": "-",
                "CATEGORY_NOT_DIGIT": "x",
            }[str(value)]


def _parts(op: Any, value: Any) -> list[Any]:
    """Returns the parsed patterns inside one part of a pattern."""
    match str(op):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [value[2]]
        case "SUBPATTERN":
            return [value[3]]
        case "ATOMIC_GROUP":
            return [value]
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case "BRANCH":
            return list(value[1])
        case _:
            return []


def _repeated(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yields each unbounded repetition of the pattern as a text that leads to it and the text that it repeats."""
    for op, value in tree:
        for part in _parts(op, value):
            if str(op).endswith("_REPEAT") and int(value[1]) > 50:
                yield from ((before, one) for one in _bodies(part))
            yield from _repeated(part, before)
        before += _sample_of(op, value, 1)


def _bodies(tree: Any) -> list[str]:
    """Returns texts that a repetition's body may match: for a set of characters, up to four of its members."""
    if len(tree) == 1 and str(tree[0][0]) == "IN" and str(tree[0][1][0][0]) != "NEGATE":
        return list(dict.fromkeys(_member([one]) for one in tree[0][1][:4]))
    return [_sample(tree), _sample(tree, 2)]


def _literals(tree: Any) -> Iterator[str]:
    for op, value in tree:
        if str(op) == "LITERAL":
            yield chr(value)
        elif str(op) == "IN":
            yield from (chr(one[1]) for one in value if str(one[0]) == "LITERAL")
        for part in _parts(op, value):
            yield from _literals(part)


@dataclass(frozen=True)
class Hostile:
    """A text that repeats what a pattern repeats, after what leads there, with an end that does not match."""

    before: str
    body: str
    end: str

    def text(self, length: int) -> str:
        return (self.before + self.body * (length // len(self.body)))[: length - len(self.end)] + self.end


def hostile_texts(source: str, flags: int) -> list[Hostile]:
    """Returns texts built from the parts of the pattern."""
    tree = importlib.import_module("re._parser").parse(source, flags)
    units: dict[tuple[str, str], None] = {}
    leads: dict[str, None] = {}
    for before, body in _repeated(tree):
        leads[before] = None
        units[before, body or "x"] = None
        units["", (before + body) or "x"] = None
    marks = list(dict.fromkeys([*islice(dict.fromkeys(_literals(tree)), 5), " ", "x"]))
    for start in dict.fromkeys([*leads, *marks]):
        for mark in ("", *marks) if units else ("",):
            if start + mark:
                units["", start + mark] = None
    return [
        Hostile(before, body, end) for before, body in units for end in _ENDS[: 2 if before or len(body) == 1 else 1]
    ]


def run_pattern(pattern: "re.Pattern[Any]", method: str, text: str) -> None:
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    if method == "sub":
        pattern.sub(subject[:0], subject)
    else:
        getattr(pattern, method)(subject)


SHORTER = {"core.context.todo_file": 2 * ITEM_CHARACTERS_MAX, "bots.inbound.commands.short_replies": 2 * CHARACTERS_MAX}
"""The longest text that the patterns of a module see, if the module cuts texts first."""


def seconds_if_slow(pattern: "re.Pattern[Any]", method: str, hostile: Hostile, length: int = LENGTH) -> float | None:
    """Returns the CPU seconds for a text of that length if they are too many, or None.

    Work that grows with the cube of the length takes 64 times as long for four times the length, so a quarter that is
    fast enough for that needs no further measurement. On a machine that is slow at the moment, a pattern may take
    longer than SECONDS_MAX. If it is linear, it takes half of that for half of the text; a quadratic one takes a
    quarter.
    """

    def seconds(length: int, seconds_max: float) -> float:
        return seconds_of(partial(run_pattern, pattern, method, hostile.text(length)), seconds_max=seconds_max)

    if seconds(length // 4, SECONDS_MAX / 64) <= SECONDS_MAX / 64:
        return None
    whole = seconds(length, SECONDS_MAX)
    if SECONDS_MAX < whole < SLOW_MACHINE_SECONDS_MAX:
        is_linear = whole < 3 * seconds(length // 2, SECONDS_MAX)
        return None if is_linear else whole
    return whole if whole > SECONDS_MAX else None


def test_every_pattern_takes_linear_time():
    slow: list[str] = []
    patterns = find_patterns()
    assert len(patterns) > 100
    for used in patterns:
        source, flags = used.pattern.pattern, used.pattern.flags
        text = source if isinstance(source, str) else source.decode("latin-1")
        length = min((n for at, n in SHORTER.items() if used.place.startswith(at)), default=LENGTH)
        for hostile in hostile_texts(text, flags):
            for method in used.methods:
                seconds = seconds_if_slow(used.pattern, method, hostile, length)
                if seconds is not None:
                    slow.append(f"{used.place} {source!r} {method} {hostile}: {seconds:.2f} s")
        if len(slow) > 20:
            break
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize(
    "source", [r"[ \t]*<@U1>", r"!\[([^\]]*)\]\(", r"(`+)(?:.|\n)*?\1", r"^#+\s+(.+?)\s*#*$", r"(a+)+b"]
)
def test_a_quadratic_pattern_is_found(source: str):
    pattern = re.compile(source)
    assert any(seconds_if_slow(pattern, "sub", hostile) is not None for hostile in hostile_texts(source, pattern.flags))
