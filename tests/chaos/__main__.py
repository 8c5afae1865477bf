"""`python -m tests.chaos`: random trouble for a cluster at work; exit code 1 if anything is lost."""

import argparse
import asyncio
import signal
import sys
from typing import get_args

from tests.chaos.harness import PlatformName
from tests.chaos.storm import storm

REASONS_MAX = 6
LINE_CHARS_MAX = 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--platform", choices=get_args(PlatformName), default="slack")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that no process is left behind
    try:
        asyncio.run(storm(wanted.seed, wanted.seconds, wanted.platform, _say))
    except AssertionError as error:
        again = f"--seconds {wanted.seconds:g} --seed {wanted.seed} --platform {wanted.platform}"
        _say(failure_report(str(error), f"scripts/chaos {again}"))
        return 1
    return 0


def failure_report(message: str, command: str) -> str:
    """Returns the whole message and, after its logs, once more the violated invariants and how to repeat the storm."""
    reasons = [line[:LINE_CHARS_MAX] for line in message.partition("\n--- ")[0].splitlines()]
    more = [f"and {len(reasons) - REASONS_MAX} more lines"] if len(reasons) > REASONS_MAX else []
    return "\n".join([message, "", "FAILED:", *reasons[:REASONS_MAX], *more, f"again: {command}"])


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
