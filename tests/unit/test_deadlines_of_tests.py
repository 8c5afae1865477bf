"""A test waits for an event, for as long as a slow machine may need. A shorter deadline fails for no other reason."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

SECONDS_MIN = 30
MEANT_TO_PASS_SECONDS_MAX = 1
"""A deadline up to this is the subject of its test, or is tried again."""
POSITIONS = {"timeout": 0, "settimeout": 0, "wait": 0, "wait_for": 1, "set_default_timeout": 0}
"""Functions that take a deadline, and its place among their arguments."""
KEYWORDS = frozenset({"timeout", "timeout_seconds"})
WAITS = frozenset({"until", "eventually", "run"})
"""Functions of the tests whose `seconds` is a deadline."""
BROWSER_WAITS = ("set_default_timeout", "wait_for_", "to_be_", "to_have_", "to_contain_")
"""How the browser's functions begin. They count in milliseconds."""
CLOCKS = frozenset({"monotonic", "time"})
MARKS = ("timeout", "wait(", "wait_for(", "seconds=", "() + ", "() - ")
"""A file without any of these has no deadline, and is not parsed."""
NOT_TESTS = ("tests/bench/", "tests/load/")
Constants = Mapping[str, float]


def short_deadlines(tree: ast.Module, constants: Constants) -> Iterator[str]:
    for node in _in_real_time(tree):
        for value in _deadlines(node):
            seconds = _number(value, constants)
            if seconds is not None and MEANT_TO_PASS_SECONDS_MAX < seconds < SECONDS_MIN:
                yield f"{value.lineno}: {ast.unparse(node)}"


def _in_real_time(node: ast.AST) -> Iterator[ast.AST]:
    """The node and those inside it, without the tests in virtual time, which no machine slows down."""
    match node:
        case ast.AsyncFunctionDef(decorator_list=[*_, ast.Name(id="in_virtual_time")]):
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_real_time(child)


def _deadlines(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that say how many seconds a call waits, how far ahead of now a moment is, or how long ago."""
    if isinstance(node, ast.Call):
        name = _name(node)
        found = [one.value for one in node.keywords if one.arg in KEYWORDS]
        if name in WAITS:
            found += [one.value for one in node.keywords if one.arg == "seconds"]
        if name in POSITIONS:
            found += node.args[POSITIONS[name] :][:1]
        is_in_milliseconds = name.startswith(BROWSER_WAITS)
        yield from map(_thousandth, found) if is_in_milliseconds else found
        return
    match node:
        case ast.BinOp(left=ast.Call() as clock, op=ast.Add()) if _name(clock) in CLOCKS:
            yield node.right
        case ast.Compare(
            left=ast.BinOp(left=ast.Call() as clock, op=ast.Sub()), ops=[ast.Lt() | ast.LtE()], comparators=[seconds]
        ) if _name(clock) in CLOCKS:
            yield seconds


def _name(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _thousandth(value: ast.expr) -> ast.expr:
    return ast.copy_location(ast.BinOp(value, ast.Div(), ast.Constant(1000)), value)


def _number(node: ast.expr, constants: Constants) -> float | None:
    """The value of an expression of numbers and known constants, or None."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as operator, right=right):
            numbers = _number(left, constants), _number(right, constants)
            if numbers[0] is None or numbers[1] is None:
                return None
            is_product = isinstance(operator, ast.Mult)
            return numbers[0] * numbers[1] if is_product else numbers[0] / numbers[1]
    return None


def known_numbers(tree: ast.Module) -> Constants:
    """The numbers to which a module gives a name, and those that it imports from another module of the tests."""
    found: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            path = REPOSITORY / f"{str(node.module).replace('.', '/')}.py"
            there = _numbers_of(path)
            found |= {one.asname or one.name: there[one.name] for one in node.names if one.name in there}
    return {**found, **_own_numbers(tree)}


@cache
def _numbers_of(path: Path) -> Constants:
    return _own_numbers(ast.parse(path.read_text("utf-8"))) if path.is_file() else {}


def _own_numbers(tree: ast.Module) -> Constants:
    found: dict[str, float] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                number = _number(value, found)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                number = _number(value, found)
            case _:
                continue
        if number is not None:
            found[name] = number
    return found


def test_no_deadline_is_shorter_than_a_slow_machine_needs() -> None:
    found: list[str] = []
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        name, text = path.relative_to(REPOSITORY).as_posix(), path.read_text("utf-8")
        if name.startswith(NOT_TESTS) or not any(mark in text for mark in MARKS):
            continue
        tree = ast.parse(text)
        found += [f"{name}:{one}" for one in short_deadlines(tree, known_numbers(tree))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.timeout(SECONDS)",
        "asyncio.wait_for(ended.wait(), SECONDS)",
        "asyncio.wait([reading], timeout=SECONDS)",
        "process.communicate(timeout=SECONDS)",
        "ended.wait(SECONDS)",
        "caller.settimeout(SECONDS)",
        "deadline = time.monotonic() + SECONDS",
        "assert time.monotonic() - began < SECONDS",
        "stage.until(lambda: taken,\n  'it is taken', seconds=SECONDS)",
        "run(sandbox, 'true', seconds=2 * SECONDS / 2)",
        "shell.execute('true', timeout_seconds=SECONDS)",
        "page.set_default_timeout(1000 * SECONDS)",
        "expect(page).to_be_visible(timeout=1000 * SECONDS)",
    ],
)
def test_a_short_deadline_is_found(line: str) -> None:
    """As a number and as a constant. Up to a second, it is meant to pass."""

    def is_found(seconds: float) -> bool:
        written = ast.parse(line.replace("SECONDS", f"{seconds:g}"))
        named = ast.parse(f"SECONDS = {seconds:g}\n{line}")
        found = [[*short_deadlines(tree, known_numbers(tree))] for tree in (written, named)]
        assert len(found[0]) == len(found[1])
        return bool(found[0])

    assert [is_found(seconds) for seconds in (0.2, 5, 29.5, 30)] == [False, True, True, False]


def test_a_deadline_behind_an_imported_constant_is_found() -> None:
    tree = ast.parse("from tests.unit.test_deadlines_of_tests import SECONDS_MIN as LONG\nended.wait(LONG / 2)")
    assert len([*short_deadlines(tree, known_numbers(tree))]) == 1


def test_in_virtual_time_a_deadline_may_be_short() -> None:
    test = "async def test_it():\n    await wait_for(ended, 5)\n"
    for tree, count in ((ast.parse(test), 1), (ast.parse(f"@in_virtual_time\n{test}"), 0)):
        assert len([*short_deadlines(tree, {})]) == count
