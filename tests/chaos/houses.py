"""A house for a story: one bot and one worker around a PostgreSQL and a Redis; one of the two is doomed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from bots.demo.thread_reader import buttons_of
from simulator.modal.server import ModalSimulator
from storage.sql.stores.run_claims import WORKER_GONE_SECONDS
from tests.chaos.crew import NO_WORKER, WORKER
from tests.chaos.harness import Stage, staged
from tests.chaos.ledgers import postgresql_ledger
from tests.chaos.program import Program
from tests.chaos.stories import Story
from tests.integration.sandbox.modal_stage import environment_of

Kind = Literal["bot", "worker"]
Action = Literal["kill", "pause"]
COMMANDS: dict[Kind, tuple[str, ...]] = {"bot": NO_WORKER, "worker": WORKER}
TELLING = tuple(
    f"{platform}.{what}"
    for platform in ("slack", "discord")
    for what in ("post", "edit", "upload", "react")
)
PATIENCE_SECONDS = 90.0
"""Of who tells a story: two processes start, a lease runs out, and a platform delivers again."""
ASLEEP_SECONDS = WORKER_GONE_SECONDS + 2
AT_START = ("storage.open", "storage.migrate")
AWAKE_SECONDS = 2
"""By then whoever woke has gone on with all that it was about: it has beaten again and looked for runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What befalls the doomed one, where, and the how-manieth time."""

    kind: Kind
    place: str
    action: Action
    hit: int = 1

    @property
    def failpoint(self) -> str:
        return f"{self.place}:{self.action}:{self.hit}"

    @property
    def is_slept_out(self) -> bool:
        """Whether it wakes once the story is told: whoever freezes after a place, and whoever is about to tell people
        something, which another one has told by then. The others wake in the middle of the story."""
        name, _, when = self.place.rpartition(".")
        return when == "after" or name in TELLING


@dataclass(kw_only=True)
class House:
    """State: who is the doomed one, and who has come in its place."""

    stage: Stage
    fate: Fate
    doomed: Program
    modal: ModalSimulator | None

    async def start(self) -> None:
        """One that is doomed at its very start comes alone, so that nobody else does what it was to do."""
        self.doomed.start(arguments=COMMANDS[self.fate.kind], failpoints=self.fate.failpoint)
        others = [one for one in self._places().items() if one[1] is not self.doomed]
        if self.fate.place.startswith(AT_START):
            await self._met()
        for kind, other in others:
            other.start(arguments=COMMANDS[kind])

    async def befallen(self) -> None:
        """Waits for the fate, and puts a fresh process in the place. One that wakes in the middle does so here."""
        await self._met()
        if self.stage.thread_id:
            self.stage.shown_before |= {one.message_id for one in self.stage.ours()}
        if self.fate.action == "kill":
            assert self.doomed.returncode == -9, self.report()
        else:
            assert self.doomed.is_stopped, self.report()
        self._succeed()
        if self.fate.action == "pause" and not self.fate.is_slept_out:
            await asyncio.sleep(ASLEEP_SECONDS)
            self.doomed.resume()

    async def _met(self) -> None:
        while self.doomed.is_running and not self.doomed.is_stopped:
            await asyncio.sleep(0.02)

    def _succeed(self) -> None:
        fresh = self.doomed.beside(f"second-{self.fate.kind}")
        fresh.start(arguments=COMMANDS[self.fate.kind])
        if self.fate.kind == "bot":
            self.stage.program = fresh
        else:
            self.stage.worker = fresh

    async def woken(self) -> None:
        """Wakes whoever still sleeps, and waits until it has lived for a while beside the others."""
        if self.fate.action == "kill" or self.doomed in self._places().values():
            return
        self.stage.requests_told = len(self.stage.script.requests)
        if self.fate.is_slept_out:
            assert self.doomed.is_stopped, "it slept through the story"
            self.doomed.resume()
        (since,) = self.stage.rows("SELECT extract(epoch FROM now())")[0]
        beats = "SELECT worker_id FROM worker WHERE heartbeat_at > ?"
        later = float(str(since)) + AWAKE_SECONDS
        await self.stage.until(
            lambda: len(self.stage.rows(beats, later)) >= len(self._living()), "everybody lives on"
        )
        assert self.doomed.returncode in (None, 0), "it ended in its own time, if at all"

    def _places(self) -> dict[Kind, Program]:
        assert self.stage.worker is not None
        return {"bot": self.stage.program, "worker": self.stage.worker}

    def _living(self) -> list[Program]:
        return [one for one in (*self._places().values(), self.doomed) if one.is_running]

    def report(self) -> str:
        return (
            f"{self.stage.report()}\n--- the doomed {self.fate.kind}\n{self.doomed.log()[-6000:]}"
        )


def left_behind(stage: Stage) -> list[str]:
    """What may not be there once a story is told, whichever it is."""
    problems: list[str] = []
    for what, query in LEFT.items():
        if found := stage.rows(query):
            problems.append(f"{what}: {found}")
    problems += [f"the model was asked nonsense: {one}" for one in stage.script.problems]
    if any(one.label == "Stop" for message in stage.ours() for one in buttons_of(message)):
        problems.append("a status message still offers to stop its run")
    return problems


LEFT = {
    "runs that have not ended": "SELECT run_id, status FROM run WHERE status IN ('queued', 'running', 'waiting')",
    "leases that are held": "SELECT run_id FROM lease WHERE run_id IS NOT NULL",
    "runs that are still shown": "SELECT run_id FROM rendering WHERE is_open",
    "not delivered": "SELECT slot, delivery.state FROM delivery JOIN run USING (run_id) JOIN thread USING (thread_id)"
    " WHERE delivery.state NOT IN ('delivered', 'stale') AND platform <> 'api'",
    "messages that were taken in twice": "SELECT message_ref FROM thread_input WHERE message_ref IS NOT NULL"
    " GROUP BY message_ref, kind HAVING count(*) > 1",
    "runs with more ends than one": "SELECT run_id FROM run_event"
    ' WHERE body LIKE \'%"kind":"run_finished"%\' OR body LIKE \'%"kind":"run_failed"%\''
    " GROUP BY run_id HAVING count(*) > 1",
    "events of an attempt that came after those of a later one": "SELECT a.run_id, a.n FROM run_event a"
    " JOIN run_event b ON a.run_id = b.run_id WHERE a.attempt < b.attempt AND a.created_at > b.created_at",
}


@asynccontextmanager
async def house(
    story: Story, fate: Fate, database_url: str, redis_url: str
) -> AsyncGenerator[House, None]:
    """With the story's own settings, nobody started yet; whatever happens, no process is left behind."""
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(
            staged(
                story.platform,
                story.scenario,
                sandbox=story.sandbox,
                database_url=database_url,
                redis_url=redis_url,
                **story.settings,
            )
        )
        stage.ledger = await stack.enter_async_context(postgresql_ledger(database_url))
        stage.patience_seconds = PATIENCE_SECONDS
        modal = None
        if story.sandbox == "modal":
            modal = await stack.enter_async_context(ModalSimulator())
            stage.program.environment |= environment_of(modal)
        story.prepare(stage)
        stage.worker = stage.program.beside("worker")
        doomed = stage.program if fate.kind == "bot" else stage.worker
        made = House(stage=stage, fate=fate, doomed=doomed, modal=modal)
        stack.callback(lambda: [one.kill() for one in (*made._places().values(), doomed)])
        yield made
