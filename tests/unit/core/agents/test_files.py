"""Definitions in files: those that come with the program, those of a folder, and what changes there."""

import logging
import re
from pathlib import Path

import pytest

from core.agents.definition import ReferableNames
from core.agents.files import AgentFiles, load_shipped_definitions
from core.domain.errors import ConfigurationError
from core.tools.catalogue import all_tools

KNOWN = ReferableNames(tools=frozenset(all_tools()))


def text(prompt: str, more: str = "") -> str:
    return f"name: Own\ndescription: Ours.\nprompt: {prompt}\n{more}"


def put(folder: Path, name: str, content: str) -> None:
    made = folder / f".{name}"
    made.write_text(content)
    made.rename(folder / name)


@pytest.fixture
def files(tmp_path: Path) -> AgentFiles:
    return AgentFiles(known=KNOWN, folder=tmp_path)


async def prompts(files: AgentFiles) -> dict[str, str]:
    return {name: one.prompt for name, one in (await files.definitions()).items()}


def test_the_shipped_agents_fit_the_tools_that_there_are() -> None:
    agents = load_shipped_definitions(KNOWN)
    assert list(agents) == ["coding", "data-analysis", "planner", "research", "threadhand"]
    assert agents["threadhand"].prompt == ""
    assert (agents["planner"].flow, agents["planner"].team) == ("planning", ("research", "data-analysis", "coding"))
    assert {one.flow for name, one in agents.items() if name != "planner"} == {"none"}
    assert all(not one.model and not one.knowledge for one in agents.values())
    assert {name for name in all_tools() if not any(one.tools.has(name) for one in agents.values())} == set()
    research = agents["research"]
    runs = ("execute_command", "python_execute", "expose_port", "str_replace_editor")
    assert not any(research.tools.has(name) for name in runs), "it runs no programs"
    analyst = agents["data-analysis"]
    assert all(analyst.tools.has(name) for name in ("execute_command", "create_file", "complete"))
    assert "matplotlib" in analyst.prompt
    assert "SVG" in analyst.prompt
    assert "attachments" in analyst.prompt


def test_a_shipped_prompt_leaves_most_of_the_smallest_window_free() -> None:
    assert all(len(one.prompt) < 2_000 for one in load_shipped_definitions(KNOWN).values())


async def test_a_file_adds_an_agent_or_takes_the_place_of_one(files: AgentFiles, tmp_path: Path) -> None:
    put(tmp_path, "own.yaml", text("One."))
    put(tmp_path, "research.yml", text("Other."))
    (tmp_path / "README.md").write_text("no agent")
    files.load()
    found = await prompts(files)
    assert (found["own"], found["research"]) == ("One.", "Other.")
    assert "threadhand" in found
    assert files.knowledge_folder("own") == tmp_path
    assert files.knowledge_folder("threadhand") is None


async def test_what_changes_is_read_again(files: AgentFiles, tmp_path: Path) -> None:
    put(tmp_path, "own.yaml", text("One."))
    files.load()
    put(tmp_path, "own.yaml", text("Two."))
    put(tmp_path, "new.yaml", text("New."))
    found = await prompts(files)
    assert (found["own"], found["new"]) == ("Two.", "New.")
    (tmp_path / "own.yaml").unlink()
    assert "own" not in await prompts(files)


async def test_a_broken_file_keeps_the_last_good_one_and_is_told_once(
    files: AgentFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "own.yaml", text("One."))
    files.load()
    put(tmp_path, "own.yaml", "tols: 1")
    put(tmp_path, "new.yaml", "[")
    with caplog.at_level(logging.ERROR):
        assert (await prompts(files))["own"] == "One."
        found = await prompts(files)
    assert "new" not in found
    assert len(caplog.records) == 2
    assert "own.yaml: " in caplog.text
    put(tmp_path, "own.yaml", text("Three."))
    assert (await prompts(files))["own"] == "Three."


async def test_a_folder_that_goes_away_takes_no_agent_with_it(
    files: AgentFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "own.yaml", text("One."))
    files.load()
    (tmp_path / "own.yaml").unlink()
    tmp_path.rmdir()
    assert (await prompts(files))["own"] == "One."
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("own.yaml", b"tols: 1", "own.yaml: tols: there is no such key"),
        ("own.yaml", b"\xff\xfe", "own.yaml is no UTF-8 text."),
        ("Own.yaml", b"name: A\ndescription: B\n", "Own.yaml: its name: "),
        (
            "own.yaml",
            text("x", "flow: planning\nteam: [nobody]\n").encode(),
            "own.yaml: team: there is no agent named 'nobody'.",
        ),
    ],
)
def test_one_bad_file_is_told_and_does_not_stop_the_start(
    files: AgentFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    put(tmp_path, "good.yaml", text("Good."))
    with caplog.at_level(logging.ERROR):
        files.load()
    assert re.search(sentence, caplog.text)
    assert {"good", "threadhand"} <= files.latest.keys()
    assert any(re.search(sentence, one) for one in files.problems)


def test_a_bad_file_does_not_bring_back_the_shipped_agent_that_it_replaces(files: AgentFiles, tmp_path: Path) -> None:
    put(tmp_path, "coding.yaml", "tols: 1")
    files.load()
    assert "coding" not in files.latest
    put(tmp_path, "threadhand.yaml", "tols: 1")
    with pytest.raises(ConfigurationError, match=r"threadhand\.yaml: tols"):
        files.load()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere of agents cannot be read"):
        AgentFiles(known=KNOWN, folder=tmp_path / "nowhere").load()
