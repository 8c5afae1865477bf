"""How soon the next turn of an old thread starts, in a database that is full of others."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import text

from core.failpoints import Failpoint
from storage.sql.tables import METADATA
from tests.bench.figure import note, percentile
from tests.load.fleet import Fleet, fleet
from tests.load.loads import MENTIONS
from tests.load.places import Place

TURNS_A_THREAD = 8
"""They leave some 50 messages."""
THREADS_A_STATEMENT = 5_000
START_SECONDS_MAX = 30.0
_FILL = Failpoint("test.fill")
OWN = {
    "thread": ("thread_id", "thread_key"),
    "run": ("run_id", "thread_id"),
    "claimed_key": ("dedupe_key", "thread_id"),
    "thread_input": ("input_id", "thread_id", "dedupe_key", "taken_by"),
    "message": ("message_id", "thread_id", "run_id"),
    "lease": ("thread_id",),
    "rendering": ("run_id",),
    "delivery": ("delivery_id", "run_id"),
}
"""What a thread leaves for good, each table after those that its rows hang on, with the columns that no copy shares."""


async def history(*, threads: int, watched: int = 20) -> Mapping[str, float]:
    """From a person's word in one of so many threads of some 50 messages to the model's request, in turn."""
    async with fleet(MENTIONS, workers=1) as told:
        roots = [await _opened(told, number) for number in range(watched)]
        await told.is_done(watched)
        for number in range(TURNS_A_THREAD - 1):
            await asyncio.gather(*(root.say(f"Hello again {number}") for root in roots))
            await told.is_done(watched * (number + 2))
        before = [await _started_ms(told, root) for root in roots]
        began = time.monotonic()
        await _fill(told, threads)
        rows = await told.count("SELECT count(*) FROM message")
        note(f"{rows} messages after {time.monotonic() - began:.0f} s")
        after = [await _started_ms(told, root) for root in roots]
        note(f"empty: {_spread(before)}; full: {_spread(after)} ms")
        return {
            "messages": rows,
            "next_turn_empty_p50_ms": median(before),
            "next_turn_full_p50_ms": median(after),
            "next_turn_full_p95_ms": percentile(after, 95),
        }


def _spread(values: Sequence[float]) -> str:
    return " ".join(f"{one:.0f}" for one in sorted(values))


@dataclass(frozen=True, slots=True)
class Root:
    """The message that a thread began with, and where."""

    place: Place
    message_id: str

    async def say(self, words: str) -> None:
        await self.place.say(words, thread_id=self.message_id)


async def _opened(told: Fleet, number: int) -> Root:
    place = told.in_slack[number % len(told.in_slack)]
    return Root(place, await place.mention(f"Hello {number}"))


async def _started_ms(told: Fleet, root: Root) -> float:
    asked = len(told.script.requests)
    runs = await told.count("SELECT count(*) FROM run WHERE status = 'completed'")
    began = time.monotonic()
    saying = asyncio.ensure_future(root.say("Hello once more"))
    while len(told.script.requests) == asked:
        assert time.monotonic() - began < START_SECONDS_MAX, "the next turn does not start"
        await asyncio.sleep(0.0005)
    took = (time.monotonic() - began) * 1000
    await saying
    await told.is_done(runs + 1)
    return took


async def _fill(told: Fleet, threads: int) -> None:
    """So many copies of one thread, with all that hangs on it, each at an address of its own."""
    (pattern,) = await told.database.read(
        lambda c: [row[0] for row in c.execute(text("SELECT min(thread_id) FROM thread"))]
    )
    for first in range(0, threads, THREADS_A_STATEMENT):
        last = min(first + THREADS_A_STATEMENT, threads)
        statements = [_copies(table, first + 1, last) for table in OWN]
        await told.database.write(
            _FILL, lambda c, ss=statements: [c.execute(text(s), {"old": pattern}).close() for s in ss], is_long=True
        )
    analyse = text("ANALYZE")
    await told.database.write(_FILL, lambda c: c.execute(analyse).close(), is_long=True)


def _copies(table: str, first: int, last: int) -> str:
    own = OWN[table]
    columns = [column.name for column in METADATA.tables[table].columns]
    names = ", ".join(f'"{one}"' for one in columns)
    values = ", ".join(f"s.\"{one}\" || '-' || g" if one in own else f's."{one}"' for one in columns)
    of_thread = (
        "s.thread_id = :old"
        if "thread_id" in columns
        else "s.run_id IN (SELECT run_id FROM run WHERE thread_id = :old)"
    )
    return (
        f'INSERT INTO "{table}" ({names}) SELECT {values}'  # noqa: S608 - our own tables
        f' FROM "{table}" AS s, generate_series({first}, {last}) AS g WHERE {of_thread}'
    )
