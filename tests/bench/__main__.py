"""`python -m tests.bench [figure...]`: one JSON line a figure; exit code 1 where one is over its bound."""

import argparse
import asyncio
import gc
import json
import sys
import traceback
from collections.abc import Mapping, Sequence

from tests.bench.figure import Figure, Unmeasurable, figures, note


def main(arguments: Sequence[str], known: Mapping[str, Figure]) -> int:
    """The exit code: 1 where a figure is over its bound or its measurement broke. An unknown name exits with 2."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures speed and size.")
    parser.add_argument("figure", nargs="*", help=f"one of {', '.join(known)}; all without a name")
    wanted = parser.parse_args(arguments).figure
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"there is no figure {', '.join(unknown)}; there are {', '.join(known)}")
    good = [_is_good(known[name]) for name in (wanted or known)]
    return 0 if all(good) else 1


def _is_good(figure: Figure) -> bool:
    try:
        value = asyncio.run(_measured(figure))
    except Unmeasurable as lack:
        note(f"{figure.name} was not measured: {lack}")
        return True
    except Exception:
        traceback.print_exc()
        note(f"{figure.name} broke while it was measured.")
        return False
    is_good = figure.is_good(value)
    line = {
        "figure": figure.name,
        "value": float(f"{value:.4g}"),
        "unit": figure.unit,
        "bound": figure.bound,
        "ok": is_good,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    return is_good


async def _measured(figure: Figure) -> float:
    # as the program does after its start: a full collection takes 0.1 s, and those of this process, in which the
    # platforms and the model live, are not what is measured
    gc.collect()
    gc.freeze()
    return await figure.measure()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], figures()))
