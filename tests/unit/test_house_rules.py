"""The size and naming rules of the house, over every file of the product."""

import ast
import re
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
BANNED_SUFFIXES = ("Manager", "Service", "Helper", "Util", "Utils", "Base", "Handler")
PRODUCT = [
    file
    for folder in ("bots", "core", "sandbox", "simulator", "storage")
    for file in sorted((REPOSITORY / folder).rglob("*.py"))
    if "migrations/versions" not in file.as_posix()
]
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))


def name(file: Path) -> str:
    return file.relative_to(REPOSITORY).as_posix()


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]


def banned_classes(tree: ast.Module) -> list[str]:
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_SUFFIXES)
    ]


def test_the_gates_see_the_product() -> None:
    assert {"bots/settings/__init__.py", "core/domain/wire_format.py"} <= {
        name(file) for file in PRODUCT
    }


@pytest.mark.parametrize("file", [*PRODUCT, *TESTS], ids=name)
def test_a_file_fits_in_five_hundred_lines(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("file", PRODUCT, ids=name)
def test_a_function_fits_on_a_screen(file: Path) -> None:
    assert long_functions(parsed(file)) == []


@pytest.mark.parametrize("file", PRODUCT, ids=name)
def test_no_class_is_named_after_a_role_that_says_nothing(file: Path) -> None:
    assert banned_classes(parsed(file)) == []


def test_the_gates_notice_what_they_forbid() -> None:
    body = "\n".join(["    pass"] * FUNCTION_LINES_MAX)
    tree = ast.parse(f"class RunManager:\n    pass\n\ndef long():\n{body}\n")
    assert banned_classes(tree) == ["RunManager"]
    assert long_functions(tree) == ["long: 61 lines"]


@pytest.mark.parametrize("file", PRODUCT, ids=name)
def test_no_pattern_repeats_a_group_possessively(file: Path) -> None:
    """Python 3.11.0 to 3.11.4 read such a group wrongly, and Debian ships one of them."""
    assert re.findall(r"\)(?:[*+?]|\{\d+(?:,\d*)?\})\+[^+]|\(\?>", file.read_text("utf-8")) == []
