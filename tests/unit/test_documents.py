"""The documents name what there is: settings, routes, status types, modules, tests, links, commands."""

import re
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
import typer
from pydantic import SecretStr
from typer.core import TyperGroup

from bots.__main__ import app
from bots.settings import PREFIX, VARIABLE_NAMES, Settings
from bots.web.app import web_app
from bots.web.deps import WebDeps
from bots.web.links import SignedLinks
from core.domain.events import FinishReason
from core.domain.threads import RunStatus
from core.tools.catalogue import all_tools
from core.tools.tool import Tool, ToolSet, prepare_call
from storage.memory.event_bus import MemoryEventBus
from tests.paths import REPOSITORY
from tests.support.narrow import require, require_type

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
IDS = [
    *(f"S{n}" for n in range(1, 33)),
    *(f"O{n}" for n in range(1, 15)),
    *(f"Q{n}" for n in range(1, 11)),
    *(f"C{n}" for n in range(1, 7)),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`[\w./-]+`|github\.com/[\w.-]+/[\w.-]+")
"""A page of the platform's documentation, or where a repository shows what the platform does."""


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of all table rows."""
    lines = (line.strip() for line in text_of(name).splitlines())
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("|") and not line.startswith("|--")
    ]


def features() -> dict[str, list[str]]:
    """The rows of features, with modules and tests, and of defects of other agents, with tests; by id."""
    return {row[0]: row for row in rows("docs/features.md") if re.fullmatch(r"[A-Z]{1,2}\d+", row[0])}


def settings_rows() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for row in rows("docs/operators/settings.md"):
        if row[0].startswith(f"`{PREFIX}"):
            name, default, *meaning = [cell.strip() for cell in " | ".join(row).split("|")]
            assert name.strip("`") not in found, name
            found[name.strip("`")] = (default, " ".join(meaning))
    return found


def test_every_setting_is_there_once_with_its_meaning() -> None:
    documented = settings_rows()
    assert sorted(documented) == sorted(VARIABLE_NAMES)
    assert all(meaning for _, meaning in documented.values())


@pytest.mark.parametrize(
    "name", [name for name in Settings.model_fields if f"{PREFIX}{name.upper()}" in VARIABLE_NAMES]
)
def test_a_default_is_told_as_it_is(name: str) -> None:
    shown = settings_rows()[f"{PREFIX}{name.upper()}"][0]
    field = Settings.model_fields[name]
    if name in ("data_dir", "database_url", "public_url"):
        assert shown  # made from others: told in words
    elif field.default in ("", (), None) or isinstance(field.default, SecretStr):
        assert shown == ""
    else:
        default = field.default
        value = ", ".join(default) if isinstance(default, tuple) else str(default)
        assert shown == f"`{value.lower() if isinstance(field.default, bool) else value}`"


def test_every_route_is_named(tmp_path: Path) -> None:
    async def nothing(_: object) -> bool:
        return False

    api = web_app(
        WebDeps(
            conversations=None,
            takeover_claims=None,
            bus=MemoryEventBus(),
            receive=nothing,
            inbox=None,
            post=nothing,
            propose=nothing,
            stop=nothing,
            sandboxes=None,
            spool_folder=tmp_path,
            links=SignedLinks(b"", ""),
            upload_bytes_max=1,
            schedules=None,
        )
    )
    served = {
        f"{route.method} {route.resource.canonical}"
        for route in api.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    told = re.findall(
        r"^\| `((?:GET|POST|PUT|PATCH|DELETE) [^`?]+)", text_of("docs/developers/http-api.md"), re.MULTILINE
    )
    assert sorted(told) == sorted(served)


def test_every_status_type_and_finish_reason_is_named() -> None:
    document = text_of("docs/developers/http-api.md")
    table = document[document.index("| status_type |") :]
    kinds = set(re.findall(r'"status_type": "(\w+)"', text_of("core/domain/wire_format.py")))
    kinds |= {"tool_started", "tool_completed", "tool_failed", "tool_error"}
    assert len(kinds) > 8
    for word in (*kinds, *get_args(FinishReason)):
        assert f"`{word}`" in table, word


def test_every_status_of_a_run_is_named() -> None:
    told = require(re.search(r"^`status` is ([^.]+)\.", text_of("docs/developers/http-api.md"), re.MULTILINE))
    for word in get_args(RunStatus):
        assert f"`{word}`" in told[1], word


def test_every_tool_is_named_with_when_it_is_offered() -> None:
    table = text_of("docs/developers/tools.md").partition("## What there is")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`([a-z_]+)`", table)) == sorted(all_tools())


def test_the_tool_that_is_shown_is_one() -> None:
    """Word by word, as somebody would paste it into a file of the tools' folder."""
    shown = require(re.search(r"```python\n(.+?)```", text_of("docs/developers/tools.md"), re.DOTALL))
    module = ModuleType("core.tools.shown")
    exec(compile(shown[1], "docs/developers/tools.md", "exec"), vars(module))  # noqa: S102 - it is ours
    (tool,) = [value for value in vars(module).values() if isinstance(value, Tool)]
    assert tool.example is not None
    assert prepare_call(tool.name, tool.example, ToolSet({tool.name: tool})).title.endswith("Oslo")


def test_every_feature_has_one_row() -> None:
    told = [row[0] for row in rows("docs/features.md") if re.fullmatch(r"[SOQC]\d+", row[0])]
    assert sorted(told) == sorted(IDS)


@pytest.mark.parametrize("feature", sorted(features()))
def test_a_feature_names_modules_and_tests_that_are_there(feature: str) -> None:
    _, _, *module, tests = features()[feature]
    if module == ["not yet"]:
        assert tests == "-"
        return
    for path in re.findall(r"`([^`]+)`", " ".join(module)):
        assert (REPOSITORY / path).is_file(), path
    names = re.findall(r"`([^`]+)`", tests)
    assert names
    for name in names:
        path, _, test = name.partition("::")
        assert path.startswith("tests/")
        definition = f"def {test.partition('[')[0]}(" if test else "def test_"
        assert definition in text_of(path), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_to_files_that_are_there(document: Path) -> None:
    for target in LINK.findall(document.read_text("utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            path = (document.parent / target.partition("#")[0]).resolve()
            assert path.exists(), target
            assert path.is_relative_to(REPOSITORY), target


@pytest.mark.parametrize("document", ["README.md", "AGENTS.md", "docs/users/threads.md"])
def test_scripts_and_paths_that_are_named_are_there(document: str) -> None:
    text = text_of(document)
    for script in re.findall(r"(?<![\w/.])scripts/[\w-]+", text):
        assert (REPOSITORY / script).is_file(), script
    for path in re.findall(r"`((?:bots|core|sandbox|storage|tests|docs)/[\w./]+)`", text):
        there = (REPOSITORY / path).exists() or (REPOSITORY / f"{path}.py").exists()
        assert there, path


def test_commands_that_are_named_exist() -> None:
    command = require_type(typer.main.get_command(app), TyperGroup)
    known = set(command.commands)
    assert "up" in known
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        for name in re.findall(r"[`/]threadhand ([a-z]+)", text):
            assert name in known, (document.name, name)


def test_settings_that_are_named_exist() -> None:
    allowed = {*VARIABLE_NAMES, f"{PREFIX}TEST_REQUIRE"}
    for document in DOCUMENTS:
        named = set(re.findall(rf"{PREFIX}[A-Z_]+", document.read_text("utf-8")))
        assert named <= allowed, (document.name, named - allowed)


def unsourced_rules(readme: str) -> list[str]:
    """Returns the rules of the simulated platforms that name no source."""
    section = readme.partition("\n## Rules and their sources\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    headers = [row for row in cells if row[0] in ("Slack", "Discord")]
    assert [header[1].split(" of ")[0] for header in headers] == ["page", "page"]
    rules = [row for row in cells if row not in headers and not row[0].startswith("--")]
    assert len(rules) > 30
    return [row[0] for row in rules if len(row) != 2 or not SOURCE.match(row[1])]


def test_each_rule_of_the_simulators_names_its_source() -> None:
    assert unsourced_rules(text_of("simulator/README.md")) == []


@pytest.mark.parametrize("instead", ["| |", "| documented |", "|", "| github.com |"])
def test_a_rule_of_the_simulators_without_a_source_is_noticed(instead: str) -> None:
    readme = text_of("simulator/README.md")
    lost = readme.replace("| `messaging/message-metadata` |", instead)
    assert lost != readme
    assert unsourced_rules(lost) == ["metadata of messages"]
