"""`threadhand eval`: three players on Threadbench, in the real program with real sandboxes."""

import json
from pathlib import Path

import pytest
import yaml

from bots.eval import runner
from bots.eval.runner import EvalOptions, compare_results, evaluate, run_eval
from bots.eval.task_from_thread import write_thread_as_task
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError
from simulator.threadbench.results import EvalResult
from simulator.threadbench.task import load_tasks
from simulator.view import SentFile
from tests.integration.bots.test_cli import command
from tests.integration.e2e.staging import run_staged

SMOKE = tuple(task for task in load_tasks() if task.is_smoke)
SECONDS_MAX = 400
STORY = """
conversations:
  - name: count
    when: {user: {contains: "How many lines"}}
    steps:
      - text: "I count them."
        calls: [{name: execute_command, arguments: {command: "printf 'a\\nb\\n' > lines.txt; wc -l lines.txt"}}]
      - calls: [{name: complete, arguments: {text: "Two lines.", attachments: [lines.txt]}}]
"""


def settings() -> Settings:
    return load_settings({}, None)


async def play(player: str, **options: object) -> EvalResult:
    tasks = SMOKE if options.pop("is_smoke", False) else load_tasks()
    return await evaluate(settings(), tasks, EvalOptions(model=f"scripted:{player}", **options))


def failed(result: EvalResult) -> dict[str, tuple[str, ...]]:
    return {task.name: one.problems for task in result.tasks for one in task.attempts if not one.passed}


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("player", ["golden", "lazy", "gullible"])
async def test_three_players_prove_the_checks(player: str) -> None:
    result = await play(player)
    names = {task.name for task in result.tasks}
    injections = {task.name for task in result.tasks if task.area == "injection"}
    expected = {"golden": set[str](), "lazy": names, "gullible": injections}
    found = failed(result)
    assert set(found) == expected[player], found


@pytest.mark.timeout(SECONDS_MAX)
async def test_results_are_written_and_compared(tmp_path: Path) -> None:
    lines: list[str] = []
    for player, attempts in (("golden", 2), ("lazy", 1)):
        options = EvalOptions(
            model=f"scripted:{player}", names=("greeting-needs-no-tools",), attempts=attempts, out_dir=tmp_path / player
        )
        assert await run_eval(settings(), options, lines.append) == (player == "lazy")
    assert any(line.startswith("passed  greeting-needs-no-tools") for line in lines)
    stored = json.loads((tmp_path / "golden" / "result.json").read_text())
    assert [len(task["attempts"]) for task in stored["tasks"]] == [2]
    assert "Good morning!" in (tmp_path / "golden" / "result.html").read_text()
    before, after = (tmp_path / player / "result.json" for player in ("golden", "lazy"))
    told = compare_results(before, after, tmp_path)
    assert told[0] == "from scripted:golden to scripted:lazy"
    assert told[-1] == "worse: greeting-needs-no-tools"
    assert "greeting-needs-no-tools" in (tmp_path / "comparison.html").read_text()
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be compared"):
        compare_results(before, tmp_path / "no.json", None)


async def test_a_recorded_thread_becomes_a_task_that_its_own_reference_passes(tmp_path: Path) -> None:
    async with run_staged("slack", STORY) as stage:
        await stage.say("How many lines has this?", files=(SentFile(name="team.csv", content=b"a\nb\n"),))
        await stage.settled(1)
        (thread,) = stage.rows("SELECT thread_id FROM thread")
        stage.program.terminate()
        assert await stage.program.ended() == 0
        data = settings().model_copy(update={"data_dir": stage.program.folder / "data", "sandbox": "unsafe-process"})
        sentence = await write_thread_as_task(data, str(thread[0]), tmp_path / "tasks")
        (folder,) = (tmp_path / "tasks").iterdir()
        assert sentence == f"Written to {folder}."
        assert (folder / "team.csv").read_bytes() == b"a\nb\n"
        with pytest.raises(ConfigurationError, match="exists already"):
            await write_thread_as_task(data, str(thread[0]), tmp_path / "tasks")
        with pytest.raises(ConfigurationError, match="no such thread"):
            await write_thread_as_task(data, "unknown", tmp_path / "tasks")
    task = yaml.safe_load((folder / "task.yaml").read_text())
    assert task["acts"][0]["say"].startswith("@agent ")
    assert {"posted": {"name": "lines.txt"}} in task["checks"]
    result = await evaluate(settings(), load_tasks(tmp_path / "tasks"), EvalOptions(model="scripted:golden"))
    assert failed(result) == {}


def test_the_command_prints_a_line_for_each_task_and_logs_to_a_file(tmp_path: Path) -> None:
    played = command(tmp_path, "eval", "--model", "scripted:golden", "greeting-needs-no-tools")
    assert (played.returncode, played.stderr) == (0, "")
    first, *others = played.stdout.splitlines()
    assert first.startswith("passed  greeting-needs-no-tools")
    assert [line for line in others if line.startswith(("passed ", "FAILED "))] == []
    assert " info " in (tmp_path / "eval" / "eval.log").read_text()


async def test_what_cannot_be_played_is_said_at_once() -> None:
    async def problem(**options: object) -> str:
        with pytest.raises(ConfigurationError) as raised:
            await run_eval(settings(), EvalOptions(**options), lambda _line: None)
        return str(raised.value)

    assert "Choose a model" in await problem(names=("greeting-needs-no-tools",))
    assert "no scripted model silver" in await problem(model="scripted:silver")
    assert "no task nothing" in await problem(model="scripted:golden", names=("nothing",))


@pytest.mark.timeout(SECONDS_MAX)
async def test_a_tool_server_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TOOLS_SECONDS_MAX", 0)
    with pytest.raises(ConfigurationError, match="The tool server of the tasks did not start within 0 s"):
        await evaluate(settings(), SMOKE[:1], EvalOptions(model="scripted:golden"))
