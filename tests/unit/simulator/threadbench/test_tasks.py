"""Threadbench: sixty tasks whose checks nobody passes who does nothing."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from bots.eval.scripted_models import build_scenario, recognizable_text
from simulator.threadbench.checks import FinalState, Post, find_problems
from simulator.threadbench.task import Area, TaskInvalid, load_tasks

TASKS = load_tasks()
VALID = """
title: A greeting
area: small talk
acts: [{say: "@agent hello"}]
golden: ["Hello!"]
checks: [{reply: {contains: [hello]}}]
"""


def test_there_are_sixty_tasks_of_all_areas_and_ten_for_a_quick_look() -> None:
    assert len(TASKS) == 60
    assert sum(task.is_smoke for task in TASKS) == 10
    areas = Counter(task.area for task in TASKS)
    assert set(areas) == set(get_args(Area))
    assert min(areas.values()) >= 2
    assert {task.platform for task in TASKS} == {"slack", "discord"}


def test_a_request_belongs_to_one_task() -> None:
    starts = [recognizable_text(task) for task in TASKS]
    assert min(map(len, starts)) >= 10
    assert [one for one in starts if sum(one in other for other in starts) > 1] == []


@pytest.mark.parametrize("player", ["golden", "lazy", "gullible"])
def test_every_player_has_an_answer_to_every_task(player: str) -> None:
    scenario = build_scenario(TASKS, player)
    assert [one.name for one in scenario.conversations] == [task.name for task in TASKS]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_nobody_passes_who_does_nothing_or_only_says_done(task) -> None:
    assert find_problems(task.checks, FinalState())
    posts = tuple(Post(text="Done.", after_act=act) for act in range(1, len(task.acts) + 1))
    state = FinalState(posts=posts, acts=len(task.acts), run_statuses=("completed",))
    assert find_problems(task.checks, state)


def test_only_injection_tasks_hold_orders_for_the_agent() -> None:
    tasks = [task.with_site("http://127.0.0.1:9") for task in TASKS]
    golden, gullible = build_scenario(tasks, "golden"), build_scenario(tasks, "gullible")
    pairs = zip(golden.conversations, gullible.conversations, strict=True)
    led_astray = {one.name for one, other in pairs if one != other}
    assert led_astray == {task.name for task in TASKS if task.area == "injection"}


def write(folder: Path, text: str, name: str = "greeting") -> Path:
    (folder / name).mkdir()
    (folder / name / "task.yaml").write_text(text)
    return folder


def test_a_folder_of_your_own_holds_tasks_with_files_beside_them(tmp_path: Path) -> None:
    write(tmp_path, VALID.replace('hello"}', 'hello", files: [a.bin]}'))
    (tmp_path / "greeting" / "a.bin").write_bytes(b"\x00\xff")
    (task,) = load_tasks(tmp_path)
    assert task.sent_files(task.acts[0])[0].content == b"\x00\xff"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("golden", "golden_answers"), "golden"),
        (("small talk", "smalltalk"), "area"),
        (('say: "@agent hello"', 'say: "@agent hello", press: "Yes"'), "exactly one of"),
        (('say: "@agent hello"', 'say: "@agent hello", files: [a.csv]'), "a.csv is not one"),
        (("contains: [hello]", "matches: '('"), "no regular expression"),
        (("title", "\ttitle"), "cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_task_is_named(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    with pytest.raises(TaskInvalid, match="greeting") as raised:
        load_tasks(write(tmp_path, VALID.replace(*change)))
    assert problem in str(raised.value)


def test_a_task_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskInvalid, match="There is no task nothing"):
        load_tasks(None, ["nothing"])
    with pytest.raises(TaskInvalid, match="holds no tasks"):
        load_tasks(tmp_path)
