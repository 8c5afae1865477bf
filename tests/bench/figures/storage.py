"""What a turn leaves in the database file, and what is written to disk for it."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.bench.conversation import TEXT_CHARACTERS, converse, scenario
from tests.bench.figure import Figure, Unmeasurable, note
from tests.bench.figures.turns import SETTINGS, TURNS, WARM_UP
from tests.bench.program import Program, program

WRITE_CALLS = "syscw"
WRITTEN_BYTES = "wchar"
DISK_BYTES = "write_bytes"
_DATABASE = "threadhand.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Of one turn: what the database holds more than before, and what the program has written meanwhile, to its files
    and sockets or only to disk."""

    database_bytes: float
    written_bytes: float
    disk_bytes: float
    write_calls: float
    tables: dict[str, float]


async def measured() -> Stored:
    async with program(scenario(WARM_UP, TURNS), slack=True, settings=SETTINGS) as running:
        await converse(running, WARM_UP)
        counted, held = _counted(running), _held(running)
        await converse(running, TURNS)
        after, grown = _counted(running), _held(running)
        running.script.check()
    tables = {name: (size - held.get(name, 0)) / TURNS for name, size in grown.items()}
    stored = Stored(
        database_bytes=sum(tables.values()),
        written_bytes=(after[WRITTEN_BYTES] - counted[WRITTEN_BYTES]) / TURNS,
        disk_bytes=(after[DISK_BYTES] - counted[DISK_BYTES]) / TURNS,
        write_calls=(after[WRITE_CALLS] - counted[WRITE_CALLS]) / TURNS,
        tables=tables,
    )
    largest = sorted(tables.items(), key=lambda one: -one[1])[:12]
    note(
        f"a turn of {TEXT_CHARACTERS} characters and a call: {stored.database_bytes:.0f} bytes of database,"
        f" {stored.disk_bytes:.0f} to disk, {stored.written_bytes:.0f} written in {stored.write_calls:.1f} calls; "
        + ", ".join(f"{name} {size:.0f}" for name, size in largest)
    )
    return stored


def _counted(running: Program) -> dict[str, int]:
    lines = Path(f"/proc/{running.process.pid}/io").read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


def _held(running: Program) -> dict[str, float]:
    """Bytes of content in each table and index, without the unused rest of their pages."""
    path = next(Path(running.process.cwd()).rglob(_DATABASE))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            rows = connection.execute("SELECT name, sum(payload) FROM dbstat GROUP BY name")
            return {name: float(size or 0) for name, size in rows}
        except sqlite3.OperationalError as error:
            raise Unmeasurable("SQLite was built without dbstat") from error


async def database_bytes_a_turn() -> float:
    return (await measured()).database_bytes


async def disk_kb_a_turn() -> float:
    return (await measured()).disk_bytes / 1000


DATABASE = Figure(name="database_bytes_a_turn", unit="bytes", bound=9_000, measure=database_bytes_a_turn)
DISK = Figure(name="disk_kb_a_turn", unit="kB", bound=110, measure=disk_kb_a_turn)
