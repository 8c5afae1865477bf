"""Runs a test with one bot, one worker, PostgreSQL and Redis, in which one of the two processes fails."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from bots.demo.thread_reader import buttons_of
from simulator.modal.server import ModalSimulator
from storage.sql.stores.run_claims import WORKER_GONE_SECONDS
from tests.chaos.cluster import NO_WORKER, WORKER
from tests.chaos.database_readers import postgresql_reader
from tests.chaos.harness import Stage, staged
from tests.chaos.program import Program, armed_at
from tests.chaos.stories import Story
from tests.support.modal_stage import SLOW_ENDS, environment_of

Kind = Literal["bot", "worker"]
Action = Literal["kill", "pause"]
COMMANDS: dict[Kind, tuple[str, ...]] = {"bot": NO_WORKER, "worker": WORKER}
TELLING = tuple(
    f"{platform}.{what}" for platform in ("slack", "discord") for what in ("post", "edit", "upload", "react")
)
PATIENCE_SECONDS = 90.0
"""Timeout that covers the start of two processes, the expiry of a lease, and a redelivery by the platform."""
ASLEEP_SECONDS = WORKER_GONE_SECONDS + 2
AT_START = ("storage.open", "storage.migrate")
AWAKE_SECONDS = 2
"""Time after which a resumed process has finished pending work, sent a heartbeat and looked for runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFailure:
    """The failure of the failing process: the action, its place, and the pass of the place, as in test_crashes.py."""

    kind: Kind
    place: str
    action: Action
    at: str = ""

    @property
    def failpoint(self) -> str:
        """The setting that arms the place."""
        return armed_at(self.place, self.at, self.action)

    @property
    def is_slept_out(self) -> bool:
        """Whether a frozen process wakes only after the test scenario; others wake in the middle of it.

        True if it freezes after a place, or before a post, which another process has sent by then.
        """
        name, _, when = self.place.rpartition(".")
        return when == "after" or name in TELLING


@dataclass(kw_only=True)
class FailoverStage:
    """A bot and a worker, one of which is failing and then replaced by a new process."""

    stage: Stage
    failure: ProcessFailure
    failing: Program
    modal: ModalSimulator | None

    async def start(self) -> None:
        """Starts the processes. A process that fails during its start comes first, so that no other does its work."""
        self.failing.start(arguments=COMMANDS[self.failure.kind], failpoints=self.failure.failpoint)
        others = [one for one in self._processes().items() if one[1] is not self.failing]
        if self.failure.place.startswith(AT_START):
            await self._failed()
        for kind, other in others:
            other.start(arguments=COMMANDS[kind])

    async def wait_for_failure(self) -> None:
        """Waits for the failure and starts a replacement. Resumes a frozen process that wakes during the scenario."""
        await self._failed()
        if self.stage.thread_id:
            self.stage.shown_before |= {one.message_id for one in self.stage.ours()}
        if self.failure.action == "kill":
            assert self.failing.returncode == -9, self.report()
        else:
            assert self.failing.is_stopped, self.report()
        self._start_replacement()
        if self.failure.action == "pause" and not self.failure.is_slept_out:
            await asyncio.sleep(ASLEEP_SECONDS)
            self.failing.resume()

    async def _failed(self) -> None:
        while self.failing.is_running and not self.failing.is_stopped:
            await asyncio.sleep(0.02)

    def _start_replacement(self) -> None:
        fresh = self.failing.beside(f"second-{self.failure.kind}")
        fresh.start(arguments=COMMANDS[self.failure.kind])
        if self.failure.kind == "bot":
            self.stage.program = fresh
        else:
            self.stage.worker = fresh

    async def wake(self) -> None:
        """Resumes a process that is still frozen, and waits until it has run for AWAKE_SECONDS next to the others."""
        if self.failure.action == "kill" or self.failing in self._processes().values():
            return
        self.stage.requests_told = len(self.stage.script.requests)
        if self.failure.is_slept_out:
            assert self.failing.is_stopped, "it slept through the story"
            self.failing.resume()
        (since,) = self.stage.rows("SELECT extract(epoch FROM now())")[0]
        beats = "SELECT worker_id FROM worker WHERE heartbeat_at > ?"
        later = float(str(since)) + AWAKE_SECONDS
        await self.stage.until(lambda: len(self.stage.rows(beats, later)) >= len(self._living()), "everybody lives on")
        # a process that slept through the time in which it had to stop exits at once, with an error
        is_late = "exiting at once" in self.failing.log_of_this_start()
        assert self.failing.returncode in (None, int(is_late)), "it ended in its own time, if at all"

    def _processes(self) -> dict[Kind, Program]:
        assert self.stage.worker is not None
        return {"bot": self.stage.program, "worker": self.stage.worker}

    def _living(self) -> list[Program]:
        return [one for one in (*self._processes().values(), self.failing) if one.is_running]

    def report(self) -> str:
        return f"{self.stage.report()}\n--- the failing {self.failure.kind}\n{self.failing.log()[-6000:]}"


def left_behind(stage: Stage) -> list[str]:
    """Returns problems with data that must not remain after any test scenario."""
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
async def failover_stage(
    story: Story, failure: ProcessFailure, database_url: str, redis_url: str
) -> AsyncGenerator[FailoverStage, None]:
    """Context manager: yields a stage with the story's settings, not started yet. Ends all processes at the end."""
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
        stage.database_reader = await stack.enter_async_context(postgresql_reader(database_url))
        stage.patience_seconds = PATIENCE_SECONDS
        modal = None
        if story.sandbox == "modal":
            modal = await stack.enter_async_context(ModalSimulator(pace=SLOW_ENDS))
            stage.program.environment |= environment_of(modal)
        story.prepare(stage)
        stage.worker = stage.program.beside("worker")
        failing = stage.program if failure.kind == "bot" else stage.worker
        made = FailoverStage(stage=stage, failure=failure, failing=failing, modal=modal)
        stack.callback(lambda: [one.kill() for one in (*made._processes().values(), failing)])
        yield made
