"""`python -m tests.chaos`: random trouble for a crew at work; exit code 1 if anything is lost."""

import argparse
import asyncio
import signal
import sys
from typing import get_args

from tests.chaos.harness import PlatformName
from tests.chaos.storm import storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--platform", choices=get_args(PlatformName), default="slack")
    wanted = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda _number, _frame: sys.exit(143)
    )  # so that no process is left behind
    try:
        asyncio.run(storm(wanted.seed, wanted.seconds, wanted.platform, _say))
    except AssertionError as error:
        _say(str(error))
        again = f"--seconds {wanted.seconds:g} --seed {wanted.seed} --platform {wanted.platform}"
        _say(f"something was lost: scripts/chaos {again}")
        return 1
    return 0


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
