"""The size and naming rules of the repository: one test a rule, with every violation in its message."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

from tests.paths import REPOSITORY

PACKAGES = ("bots", "core", "sandbox", "storage", "simulator")
FILE_LINES_MAX = 500
FILE_LINES_MEDIAN_MAX = 180
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 15
DEPENDENCY_FIELDS_MAX = 12
SMALL_MODULE_LINES = 60
PRODUCT_FILES_MAX = 445
PRODUCT_LINES_MAX = 80_000
BANNED_SUFFIXES = ("Manager", "Service", "Helper", "Util", "Utils", "Base", "Watch")
BANNED_WORDS = frozenset(
    {
        *(
            "brain",
            "briefing",
            "bury",
            "chores",
            "deadly",
            "deaths",
            "desk",
            "desks",
            "door",
            "doors",
            "doorway",
        ),
        *(
            "ear",
            "equipment",
            "farewell",
            "farewells",
            "hearts",
            "lane",
            "lanes",
            "lookout",
            "mending",
            "mind",
        ),
        *(
            "rounds",
            "shelf",
            "shop",
            "showroom",
            "surroundings",
            "tower",
            "turnstile",
            "twin",
            "twins",
            "vault",
        ),
        *("voice", "warehouse", "workshop"),
    }
)
SMALL_MODULES = {
    "bots.settings.observability": "each group of settings has its own module",
    "bots.settings.web_access": "each group of settings has its own module",
    "sandbox.memory_records": "scripts/live_modal.py and the tests use it, too",
}
"""Small modules with a single importer that stay, each with the reason."""
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


def module_name(path: Path) -> str:
    return name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def line_count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]


def banned_names(tree: ast.Module) -> list[str]:
    """Classes and functions whose name has a suffix that says nothing, or a word that the glossary replaces."""
    defined = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [
        found
        for found in defined
        if found not in FIELD_WORDS
        and (found.endswith(BANNED_SUFFIXES) or BANNED_WORDS & set(words(found)))
    ]


def words(identifier: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().strip("_").split("_")


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ports() -> frozenset[str]:
    """The names of all protocols: what gives access to something outside of a function's own data."""
    return frozenset(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    )


def dependency_fields(node: ast.ClassDef, protocols: frozenset[str]) -> int:
    """How many fields a dataclass has if three or more of them are ports; else 0."""
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    accesses = [
        item
        for item in fields
        if protocols & {one.id for one in ast.walk(item.annotation) if isinstance(one, ast.Name)}
    ]
    return len(fields) if len(accesses) >= 3 else 0


def test_no_file_is_too_long() -> None:
    lengths = {name(path): line_count(path) for path in [*PRODUCT, *python_files("tests")]}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_most_files_are_short() -> None:
    assert median(line_count(path) for path in PRODUCT if line_count(path)) < FILE_LINES_MEDIAN_MAX


def test_the_product_stays_within_its_size() -> None:
    files = python_files("bots", "core", "sandbox", "storage")
    assert len(files) <= PRODUCT_FILES_MAX
    assert sum(line_count(path) for path in files) <= PRODUCT_LINES_MAX


def test_a_function_fits_on_a_screen() -> None:
    found = {name(path): long_functions(tree) for path, tree in trees().items()}
    assert {path: functions for path, functions in found.items() if functions} == {}


def test_a_folder_holds_few_modules() -> None:
    modules = Counter(name(path.parent) for path in PRODUCT if path.name != "__init__.py")
    assert {folder: count for folder, count in modules.items() if count > FOLDER_MODULES_MAX} == {}


def test_names_are_the_words_of_the_field() -> None:
    found = {name(path): banned_names(tree) for path, tree in trees().items()}
    modules = [name(path) for path in PRODUCT if BANNED_WORDS & set(re.split(r"[/_.]", name(path)))]
    assert modules == []
    assert {path: names for path, names in found.items() if names} == {}


def test_a_dependency_object_has_few_fields() -> None:
    protocols = ports()
    assert len(protocols) > 20
    found = {
        f"{name(path)}: {node.name}": fields
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (fields := dependency_fields(node, protocols)) > DEPENDENCY_FIELDS_MAX
    }
    assert found == {}


def test_small_modules_have_several_importers() -> None:
    modules = {module_name(path): path for path in PRODUCT if path.name != "__init__.py"}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for imported in imported_modules(tree):
            if imported in modules:
                importers[imported].add(module_name(path))
    alone = {
        module
        for module, path in modules.items()
        if len(importers[module]) == 1
        and line_count(path) < SMALL_MODULE_LINES
        and not module.startswith("simulator")
    }
    assert alone == set(SMALL_MODULES)


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4 read such a group wrongly, and Debian ships one of them."""
    possessive = re.compile(r"\)(?:[*+?]|\{\d+(?:,\d*)?\})\+[^+]|\(\?>")
    found = [name(path) for path in PRODUCT if possessive.search(path.read_text("utf-8"))]
    assert found == []


def test_the_rules_notice_what_they_forbid() -> None:
    body = "\n".join(["    pass"] * FUNCTION_LINES_MAX)
    tree = ast.parse(
        f"class RunManager:\n    pass\n\nclass AdminDesk:\n    pass\n\ndef long():\n{body}\n"
    )
    assert banned_names(tree) == ["RunManager", "AdminDesk"]
    assert long_functions(tree) == ["long: 61 lines"]
    fields = "\n".join(f"    port_{number}: LLM" for number in range(13))
    (deps,) = ast.parse(f"class RunDeps:\n{fields}\n").body
    assert isinstance(deps, ast.ClassDef)
    assert dependency_fields(deps, frozenset({"LLM"})) == 13
