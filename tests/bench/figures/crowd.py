"""How long many conversations at once take."""

from statistics import median

from tests.bench.conversation import converse_at_once, scenario
from tests.bench.figure import Figure, note
from tests.bench.figures.turns import SETTINGS
from tests.bench.program import program

CONVERSATIONS = 20
TURNS = 10
THINK_SECONDS = 0.05
TIMES = 5


async def conversations_s() -> float:
    """Wall time from the first mention to the last tick; the median, after one round to settle."""
    thinking = scenario(TURNS, think_seconds=THINK_SECONDS)
    async with program(thinking, slack=True, settings=SETTINGS) as running:
        walls = [await converse_at_once(running, TURNS, CONVERSATIONS)]
        before = running.cpu_seconds()
        walls += [await converse_at_once(running, TURNS, CONVERSATIONS) for _ in range(TIMES)]
        spent = (running.cpu_seconds() - before) / TIMES
        running.script.check()
    note(
        f"conversations_s: {' '.join(f'{one:.2f}' for one in walls)}, the first to settle; "
        f"{spent:.2f} s CPU of the program each time"
    )
    return median(walls[1:])


CROWD = Figure(name="conversations_s", unit="s", bound=1.3, measure=conversations_s)
