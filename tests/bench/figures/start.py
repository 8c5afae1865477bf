"""How long the program takes to start."""

from statistics import median

from tests.bench.figure import Figure, note
from tests.bench.program import SILENCE, passable_folder, program

TIMES = 5


async def start_s() -> float:
    """The median wall time until both platforms are connected, with a database. The first start, which makes the
    database, is a note."""
    walls, spent = list[float](), list[float]()
    with passable_folder() as folder:
        for _ in range(TIMES + 1):
            async with program(SILENCE, slack=True, discord=True, folder=folder) as running:
                walls.append(running.start_seconds)
                spent.append(running.cpu_seconds())
    note(f"start_s: {walls[0]:.2f} s the first time; {median(spent[1:]):.2f} s CPU each")
    return median(walls[1:])


START = Figure(name="start_s", unit="s", bound=0.9, measure=start_s)
