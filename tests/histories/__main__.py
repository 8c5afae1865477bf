"""`scripts/histories [threads|schedules]`: plays random histories of the whole program in virtual time."""

import argparse
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from typing import Any

from tests.histories import history, injected_bugs, schedules
from tests.histories.injected_bugs import Injection, inject
from tests.histories.playing import Result
from tests.histories.servers import SqliteMemory
from tests.histories.users import OPERATIONS

BATCH = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """`play` takes a seed, a memory, and for histories of threads the operations of the users."""

    play: Callable[..., Result]
    memory: Callable[[], SqliteMemory]
    bugs: Mapping[str, Callable[[], Injection]]
    seeds: Mapping[str, int]


KINDS = {
    "threads": Kind(history.play, SqliteMemory, injected_bugs.BUGS, injected_bugs.SEEDS),
    "schedules": Kind(schedules.play, schedules.ScheduleMemory, schedules.BUGS, schedules.SEEDS),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/histories", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="threads", help="what the histories are about")
    parser.add_argument("--histories", type=int, default=1000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one and print its trace")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--bug", help="play with this bug in the program; a single seed is then played without it, too")
    parser.add_argument(
        "--operations",
        nargs="*",
        choices=sorted(OPERATIONS),
        help="what users do in threads besides writing messages and stopping a run in words",
    )
    parser.add_argument(
        "--bugs",
        action="store_true",
        help="play the recorded seed of each bug; print another one where that does not find it",
    )
    parser.add_argument("--failures", type=int, default=5, help="end after so many failures")
    parser.add_argument("--digests", action="store_true", help="print what identifies each trace")
    wanted = parser.parse_args()
    bugs = KINDS[wanted.kind].bugs
    if wanted.bug not in (None, *bugs):
        parser.error(f"choose a bug of {wanted.kind}: {', '.join(sorted(bugs))}")
    if wanted.bugs:
        return _replay_bugs(wanted, range(1, wanted.histories + 1))
    if wanted.seed is not None:
        return _replay(wanted)
    return _play_many(wanted)


def _play(wanted: argparse.Namespace, seed: int, bug: str | None = None) -> Result:
    kind = KINDS[wanted.kind]
    operations: list[Any] = [] if wanted.operations is None else [wanted.operations]
    with inject(bug, kind.bugs):
        return kind.play(seed, _memory(wanted.kind), *operations)


def _replay(wanted: argparse.Namespace) -> int:
    _prepare(wanted, logs=True)
    result = _play(wanted, wanted.seed, wanted.bug)
    _say("\n".join(result.trace))
    _say(f"seed {wanted.seed}, digest {result.digest}: {_problems(result)}")
    if wanted.bug:
        _say(f"without the bug: {_problems(_play(wanted, wanted.seed))}")
    return 1 if result.problems else 0


def _replay_bugs(wanted: argparse.Namespace, seeds: range) -> int:
    _prepare(wanted)
    kind, lines = KINDS[wanted.kind], list[str]()
    holds = cache(lambda seed: not _play(wanted, seed).problems)
    for bug in kind.bugs:
        if not _finds(wanted, kind.seeds.get(bug), bug, holds):
            other = next((seed for seed in seeds if _finds(wanted, seed, bug, holds)), None)
            lines.append(f'    "{bug}": {other},')
            _say(lines[-1])
    return 1 if lines else 0


def _finds(wanted: argparse.Namespace, seed: int | None, bug: str, holds: Callable[[int], bool]) -> bool:
    """Whether the seed breaks an invariant with the bug only. `holds` says whether it breaks none without it."""
    if seed is None:
        return False
    gc.collect()
    return bool(_play(wanted, seed, bug).problems) and holds(seed)


def _problems(result: Result) -> str:
    return "; ".join(result.problems) or "all invariants hold"


def _play_many(wanted: argparse.Namespace) -> int:
    began, failures, played, virtual = time.monotonic(), list[Result](), 0, 0.0
    seeds = range(wanted.first, wanted.first + wanted.histories)
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    _prepare(wanted)
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
    gc.collect()
    results = list[Result]()
    for seed in seeds:
        results.append(replace(_play(wanted, seed, wanted.bug), trace=()))
        if sum(bool(result.problems) for result in results) >= wanted.failures:
            break
    return results


@cache
def _memory(kind: str) -> SqliteMemory:
    return KINDS[kind].memory()


def _prepare(wanted: argparse.Namespace, *, logs: bool = False) -> None:
    """Sets up a process: garbage is collected between histories only, and abandoned coroutines end in silence."""
    gc.disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _unraisable: None
    logging.getLogger().setLevel(logging.INFO)
    if not logs:
        logging.disable(logging.CRITICAL)
        _play(wanted, 0)  # imports what is imported late
    gc.collect()
    gc.freeze()


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
