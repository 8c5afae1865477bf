"""What a turn costs the program, early and late in a conversation."""

from statistics import median

from tests.bench.conversation import Cost, converse, scenario
from tests.bench.figure import Figure, note
from tests.bench.program import program

TURNS = 50
LONG_TURNS = 150
WARM_UP = 10
SHORTEST = 1
CONVERSATIONS = 7
PAIRS = 5
SETTINGS = {"sandbox": "unsafe-process", "log_level": "ERROR"}
"""Plain processes, so that a machine without jails measures the same; the warning about them is no news here."""


async def turn_cpu_50_ms() -> float:
    """CPU of the program alone, user and system, in a conversation of 50 turns; the model answers at once."""
    async with program(scenario(WARM_UP, SHORTEST, TURNS), slack=True, settings=SETTINGS) as running:
        await converse(running, WARM_UP)
        shortest = await converse(running, SHORTEST)
        costs = [await converse(running, TURNS) for _ in range(CONVERSATIONS)]
        running.script.check()
    each = sorted(cost.cpu_ms_per_turn for cost in costs)
    wall = median(cost.wall_seconds for cost in costs)
    note(
        f"turn_cpu_50_ms: {' '.join(f'{one:.2f}' for one in each)}; a conversation takes {wall:.2f} s "
        f"and {median(cost.status_edits for cost in costs):g} edits of its status message; "
        f"one of a single turn {shortest.cpu_seconds * 1000:.0f} ms CPU"
    )
    return median(each)


async def turn_cpu_growth() -> float:
    """How many times as much a turn costs once what opens and ends a conversation is taken off: the turns from the
    51st to the 150th, relative to the first 50. Pairs, so that both halves meet the same neighbours."""
    # a known family: in the narrow window of an unknown model the history would be summed up on the way
    limits = dict.fromkeys(("budget_run_usd", "budget_user_day_usd", "budget_workspace_day_usd"), "1000")
    limits |= {"max_turns": str(LONG_TURNS + 1), "budget_run_tokens": "100000000"}
    settings = {**SETTINGS, **limits, "model": "threadhand/gpt-bench"}
    async with program(scenario(WARM_UP, TURNS, LONG_TURNS), slack=True, settings=settings) as running:
        await converse(running, WARM_UP)
        pairs = [(await converse(running, TURNS), await converse(running, LONG_TURNS)) for _ in range(PAIRS)]
        running.script.check()
    ratios = sorted(long.cpu_ms_per_turn / short.cpu_ms_per_turn for short, long in pairs)
    late = median(map(_late_ratio, pairs))
    note(f"turn_cpu_growth: {' '.join(f'{one:.2f}' for one in ratios)}; the turns after the 50th alone {late:.2f}")
    return median(ratios)


def _late_ratio(pair: tuple[Cost, Cost]) -> float:
    short, long = pair
    late = (long.cpu_seconds - short.cpu_seconds) / (long.turns - short.turns)
    return late * 1000 / short.cpu_ms_per_turn


TURN_CPU = Figure(name="turn_cpu_50_ms", unit="ms", bound=4, measure=turn_cpu_50_ms)
GROWTH = Figure(name="turn_cpu_growth", unit="x", bound=1.3, measure=turn_cpu_growth)
