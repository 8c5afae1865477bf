"""`python -m tests.histories`: plays random histories of the whole program in virtual time."""

import argparse
import gc
import logging
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from multiprocessing import get_context

from tests.histories.history import Result, play
from tests.histories.injected_bugs import BUGS, SEEDS, inject
from tests.histories.servers import SqliteMemory
from tests.histories.users import OPERATIONS

BATCH = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one and print its trace")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--bug",
        choices=sorted(BUGS),
        help="play with this bug in the program; a single seed is then played without it, too",
    )
    parser.add_argument(
        "--operations",
        nargs="*",
        choices=sorted(OPERATIONS),
        default=sorted(OPERATIONS),
        help="what users do besides writing messages and stopping a run in words",
    )
    parser.add_argument(
        "--bugs",
        action="store_true",
        help="play the recorded seed of each bug; print another one where that does not find it",
    )
    parser.add_argument("--failures", type=int, default=5, help="end after so many failures")
    parser.add_argument("--digests", action="store_true", help="print what identifies each trace")
    wanted = parser.parse_args()
    if wanted.bugs:
        return _replay_bugs(range(1, wanted.histories + 1))
    if wanted.seed is not None:
        return _replay(wanted)
    return _play_many(wanted)


def _replay(wanted: argparse.Namespace) -> int:
    seed, bug = wanted.seed, wanted.bug
    _prepare(logs=True)
    memory = SqliteMemory()
    with inject(bug):
        result = play(seed, memory, wanted.operations)
    _say("\n".join(result.trace))
    _say(f"seed {seed}, digest {result.digest}: {_problems(result)}")
    if bug:
        _say(f"without the bug: {_problems(play(seed, memory, wanted.operations))}")
    return 1 if result.problems else 0


def _replay_bugs(seeds: range) -> int:
    _prepare()
    lines = list[str]()
    for bug in BUGS:
        if not _finds(SEEDS.get(bug), bug):
            lines.append(f'    "{bug}": {next((seed for seed in seeds if _finds(seed, bug)), None)},')
            _say(lines[-1])
    return 1 if lines else 0


def _finds(seed: int | None, bug: str) -> bool:
    """Whether the seed breaks an invariant with the bug only."""
    if seed is None:
        return False
    gc.collect()
    with inject(bug):
        is_found = bool(play(seed, _memory()).problems)
    return is_found and not play(seed, _memory()).problems


def _problems(result: Result) -> str:
    return "; ".join(result.problems) or "all invariants hold"


def _play_many(wanted: argparse.Namespace) -> int:
    began, failures, played, virtual = time.monotonic(), list[Result](), 0, 0.0
    seeds = range(wanted.first, wanted.first + wanted.histories)
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    _prepare()
    play(0, _memory())  # imports what is imported late
    gc.collect()
    gc.freeze()
    with ProcessPoolExecutor(wanted.processes, mp_context=get_context("fork")) as pool:
        pending = [pool.submit(_batch, batch, wanted) for batch in batches]
        for done in as_completed(pending):
            for result in done.result():
                played += 1
                virtual += result.virtual_seconds
                if wanted.digests:
                    _say(f"seed {result.seed} digest {result.digest}")
                if result.problems:
                    failures.append(result)
                    _say(f"FAILED seed {result.seed}: {result.problems[0][:300]}")
            if len(failures) >= wanted.failures:
                pool.shutdown(cancel_futures=True)
                break
    seconds = time.monotonic() - began
    _say(
        f"{played} histories with {virtual / 3600:.1f} virtual hours in {seconds:.1f} s,"
        f" {60 * played / seconds:.0f} a minute, {len(failures)} failed"
    )
    return 1 if failures else 0


def _batch(seeds: range, wanted: argparse.Namespace) -> list[Result]:
    """Plays the seeds until so many of them have failed."""
    results = list[Result]()
    with inject(wanted.bug):
        for seed in seeds:
            gc.collect()
            results.append(replace(play(seed, _memory(), wanted.operations), trace=()))
            if sum(bool(result.problems) for result in results) >= wanted.failures:
                break
    return results


@cache
def _memory() -> SqliteMemory:
    return SqliteMemory()


def _prepare(*, logs: bool = False) -> None:
    """Sets up a process: garbage is collected between histories only, and abandoned coroutines end in silence."""
    gc.disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _unraisable: None
    logging.getLogger().setLevel(logging.INFO)
    if not logs:
        logging.disable(logging.CRITICAL)


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
