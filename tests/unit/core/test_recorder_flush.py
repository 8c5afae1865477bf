"""When the recorder publishes: a run's first event at once, because people see nothing before it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.domain.events import RunEvent, TurnStarted
from core.domain.threads import Lease
from core.run.recorder import RunRecorder


@dataclass
class Journal:
    """Stores nothing, at once."""

    async def write(self, lease: Lease, entry: object) -> None:
        del lease, entry


@dataclass
class Bus:
    published: list[RunEvent] = field(default_factory=list[RunEvent])

    async def publish(self, events: Sequence[RunEvent]) -> None:
        self.published.extend(events)


async def turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_event_is_published_at_once_and_later_ones_together() -> None:
    bus, lease = Bus(), Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=1)
    recorder = RunRecorder(lease, Journal(), bus)
    recorder.emit(TurnStarted(turn_id="one", number=1))
    await turns_of_the_loop()
    assert len(bus.published) == 1
    recorder.emit(TurnStarted(turn_id="two", number=2))
    recorder.emit(TurnStarted(turn_id="three", number=3))
    await turns_of_the_loop()
    assert len(bus.published) == 1
    await recorder.commit()
    assert len(bus.published) == 3
    assert recorder.turns == 3
