"""A seed replays, and the histories find bugs that are put into the program."""

import re
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

SEED = "7"


def histories(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.histories", *arguments],
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
@pytest.mark.parametrize(("kind", "played"), [("threads", 270), ("schedules", 30)], ids=("threads", "schedules"))
def test_no_history_breaks_an_invariant(kind: str, played: int) -> None:
    ended = histories(kind, "--histories", str(played), "--processes", "1")

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["threads", "schedules"])
def test_the_recorded_seed_of_each_injected_bug_finds_it(kind: str) -> None:
    replayed = histories(kind, "--bugs", "--histories", "0")  # searches for no other seeds

    assert replayed.returncode == 0, f"record these seeds: {replayed.stdout}{replayed.stderr}"
