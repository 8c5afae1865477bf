"""What a turn costs the program."""

from statistics import median

from tests.bench.conversation import converse, scenario
from tests.bench.figure import Figure, note
from tests.bench.program import program

TURNS = 50
WARM_UP = 10
SHORTEST = 1
CONVERSATIONS = 7
SETTINGS = {"sandbox": "unsafe-process", "log_level": "ERROR"}
"""Plain processes, so that a machine without jails measures the same; the warning about them is no news here."""


async def turn_cpu_50_ms() -> float:
    """CPU of the program alone, user and system, in a conversation of 50 turns; the model answers at once."""
    async with program(
        scenario(WARM_UP, SHORTEST, TURNS), slack=True, settings=SETTINGS
    ) as running:
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


TURN_CPU = Figure(name="turn_cpu_50_ms", unit="ms", bound=10, measure=turn_cpu_50_ms)
