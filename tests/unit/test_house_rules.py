"""The naming rules of the repository: one test per rule, with every violation in its message."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.paths import REPOSITORY

PACKAGES = ("bots", "core", "sandbox", "storage", "simulator")
BANNED_SUFFIXES = ("Manager", "Service", "Helper", "Util", "Utils", "Base", "Watch")
BANNED_WORDS = frozenset(
    re.findall(
        r"\w+",
        "brain briefing bury chores deadly deaths desk desks door doors doorway ear equipment farewell farewells "
        "hearts lane lanes lookout mending mind rounds shelf shop showroom surroundings tower turnstile twin twins "
        "vault voice warehouse workshop",
    )
)
FIELD_WORDS = frozenset({"KnowledgeBase"})
"""Words of the field that end like a banned suffix."""


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if "migrations/versions" not in path.as_posix()
    ]


PRODUCT = python_files(*PACKAGES)


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in PRODUCT}


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def banned_names(tree: ast.Module) -> list[str]:
    """Classes and functions whose name has a suffix that says nothing, or a word that the glossary replaces."""
    defined = [
        node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [
        found
        for found in defined
        if found not in FIELD_WORDS and (found.endswith(BANNED_SUFFIXES) or BANNED_WORDS & set(words(found)))
    ]


def words(identifier: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().strip("_").split("_")


def test_names_are_the_words_of_the_field() -> None:
    found = {name(path): banned_names(tree) for path, tree in trees().items()}
    modules = [name(path) for path in PRODUCT if BANNED_WORDS & set(re.split(r"[/_.]", name(path)))]
    assert modules == []
    assert {path: names for path, names in found.items() if names} == {}


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4 read such a group wrongly, and Debian ships one of them."""
    possessive = re.compile(r"\)(?:[*+?]|\{\d+(?:,\d*)?\})\+[^+]|\(\?>")
    found = [name(path) for path in PRODUCT if possessive.search(path.read_text("utf-8"))]
    assert found == []


def constants_raised(tree: ast.Module) -> list[str]:
    """Raised exceptions that are constants. Each `raise` adds to the traceback of such an object, which keeps the
    frames and thereby every request that was refused."""
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [exc.id for exc in raised if isinstance(exc, ast.Name) and exc.id.isupper()]


def test_each_raise_builds_its_exception() -> None:
    raised = {name(path): constants_raised(tree) for path, tree in trees().items()}
    assert {path: constants for path, constants in raised.items() if constants} == {}


def test_shared_parts_of_tests_are_in_support() -> None:
    """Whoever changes an integration test should not have to think of other tests that import it."""
    importing = re.compile(r"^\s*(?:from|import) tests\.integration\b", re.MULTILINE)
    others = [path for path in python_files("tests") if "tests/integration/" not in path.as_posix()]
    assert [name(path) for path in others if importing.search(path.read_text("utf-8"))] == []


def test_the_rules_notice_what_they_forbid() -> None:
    assert constants_raised(ast.parse("raise GONE")) == ["GONE"]
    tree = ast.parse("class RunManager:\n    pass\n\nclass AdminDesk:\n    pass\n")
    assert banned_names(tree) == ["RunManager", "AdminDesk"]
