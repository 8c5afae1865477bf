"""`python -m tests.load [mode...]`: load on a bot and workers; one JSON line a figure, exit code 1 over the bound."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping

from tests.load import loads
from tests.load.crowded import SLOW, crowded
from tests.load.history import history
from tests.load.recovery import recovery

ACK_P95_MS_MAX = 300.0
Mode = Callable[[], Awaitable[Mapping[str, float]]]
BURST_ACK_P95_MS_MAX = 500.0
BOUNDS = {
    "1-worker slack_ack_p95_ms": BURST_ACK_P95_MS_MAX,
    "2-workers slack_ack_p95_ms": BURST_ACK_P95_MS_MAX,
    "4-workers slack_ack_p95_ms": BURST_ACK_P95_MS_MAX,
    "steady slack_busy_answer_p50_s": 3.0,
    "steady discord_busy_answer_p50_s": 3.0,
    "slow slack_busy_answer_p50_s": 6.0,
    "slow slack_busy_answer_p95_s": 8.0,
    "slow discord_busy_answer_p50_s": 6.0,
    "slow discord_busy_answer_p95_s": 8.0,
    "load_ack_p95_ms": ACK_P95_MS_MAX,
    "events_a_second_max": loads.EVENTS_A_SECOND_MAX + 1,  # a window of a second may hold both of its ends
    "worker_kb_a_waiting_thread": 20.0,
    "bot_kb_a_waiting_thread": 20.0,
    "next_turn_full_p50_ms": 50.0,
    "recovery_p50_s": 5.0,
    "recovery_max_s": 10.0,
}
MODES: Mapping[str, Mode] = {
    "mentions": lambda: loads.mentions(a_second=20, seconds=60),
    "streams": lambda: loads.streams(conversations=200, chunks=200),
    "waiting": lambda: loads.waiting(threads=200),
    "thinking": lambda: loads.thinking(threads=200),
    "1-worker": lambda: loads.mentions(a_second=100, seconds=5, workers=1),
    "2-workers": lambda: loads.mentions(a_second=100, seconds=5, workers=2),
    "4-workers": lambda: loads.mentions(a_second=100, seconds=5, workers=4),
    "history": lambda: history(threads=100_000),
    "recovery": lambda: recovery(trials=20),
    "crowded": lambda: crowded(busy=120, busy_a_second=10, quiet_every_seconds=3, seconds=60),
    "steady": lambda: crowded(busy=30, busy_a_second=1, quiet_every_seconds=5, seconds=30),
    "slow": lambda: crowded(busy=30, busy_a_second=1, quiet_every_seconds=10, seconds=30, scenario=SLOW),
    "smoke": lambda: loads.mentions(a_second=4, seconds=3),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/load", description=__doc__)
    parser.add_argument("mode", nargs="*", help=f"of {', '.join(MODES)}; all without a name")
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that no process is left behind
    wanted: list[str] = parser.parse_args().mode
    if unknown := set(wanted) - set(MODES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    good = [_measured(name) for name in wanted or MODES]
    return 0 if all(good) else 1


def _measured(name: str) -> bool:
    async def measure() -> Mapping[str, float]:
        return await MODES[name]()

    figures = asyncio.run(measure())
    is_good = True
    for figure, value in figures.items():
        bound = BOUNDS.get(f"{name} {figure}", BOUNDS.get(figure))
        is_good &= bound is None or value <= bound
        line = {"mode": name, "figure": figure, "value": float(f"{value:.4g}"), "bound": bound}
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()
    return is_good


if __name__ == "__main__":
    sys.exit(main())
