"""A seed replays, and the histories find bugs that are put into the program."""

import re
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

PLAYED = 150
SCHEDULES_PLAYED = 20
SEED = "7"


def histories(*arguments: str, module: str = "tests.histories") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
def test_a_seed_replays_also_after_other_histories() -> None:
    alone = histories("--seed", SEED)
    after_others = histories("--histories", SEED, "--processes", "1", "--digests")

    assert alone.returncode == after_others.returncode == 0, alone.stdout + after_others.stdout
    digest = re.search(r"digest (\w+)", alone.stdout)
    assert digest is not None
    assert f"seed {SEED} digest {digest[1]}\n" in after_others.stdout


@pytest.mark.timeout(600)
def test_no_history_breaks_an_invariant() -> None:
    played = histories("--histories", str(PLAYED), "--processes", "1")

    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.timeout(600)
def test_the_recorded_seed_of_each_injected_bug_finds_it() -> None:
    replayed = histories("--bugs", "--histories", "0")  # searches for no other seeds

    assert replayed.returncode == 0, f"record these seeds: {replayed.stdout}{replayed.stderr}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--histories", str(SCHEDULES_PLAYED)), id="random"),
        pytest.param(("--bugs", "--histories", "0"), id="bugs"),
    ],
)
def test_each_time_of_a_schedule_begins_one_run(arguments: tuple[str, ...]) -> None:
    played = histories(*arguments, module="tests.histories.schedules")

    assert played.returncode == 0, played.stdout + played.stderr
