"""A seed replays, and the histories find bugs that are put into the program."""

import re
import subprocess
import sys

import pytest

from tests.histories.injected_bugs import BUGS
from tests.paths import REPOSITORY

PLAYED = 300
FIND_WITHIN = 1000
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
def test_no_history_breaks_an_invariant() -> None:
    played = histories("--histories", str(PLAYED), "--processes", "1")

    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_an_injected_bug_is_found_and_replays(bug: str) -> None:
    found = histories("--histories", str(FIND_WITHIN), "--bug", bug, "--failures", "1")

    assert found.returncode == 1, found.stdout + found.stderr
    seed = re.search(r"again: scripts/histories --seed (\d+)", found.stdout)
    assert seed is not None, found.stdout + found.stderr
    again = histories("--seed", seed[1], "--bug", bug)
    assert again.returncode == 1, "the seed does not replay"
    assert "\nwithout the bug: all invariants hold\n" in again.stdout
