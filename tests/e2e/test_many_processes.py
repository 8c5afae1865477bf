"""A bot and workers of their own on one PostgreSQL and one Redis: what people see is what one process shows them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from bots.demo.transcript import text_of
from storage.database import Database
from tests.chaos.harness import PlatformName, Stage, staged
from tests.chaos.program import Program
from tests.chaos.stories import SLEEP, TALK
from tests.contracts.redis_servers import redis_client
from tests.servers import redis
from tests.storage.databases import opened, postgresql_url  # noqa: F401 - a fixture is found by name

NAP = """
conversations:
  - name: nap
    when: {user: {contains: "Nap"}}
    steps:
      - calls:
          - name: execute_command
            arguments: {command: "echo asleep >> marks.txt; sleep 60", blocking: true, session_name: main}
      - text: "Slept well."
"""
WORKERS = 2


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url


@dataclass(frozen=True, kw_only=True)
class Crew:
    """A stage whose program takes in and shows runs, and the workers beside it, not yet started."""

    stage: Stage
    workers: tuple[Program, ...]
    database: Database

    async def start(self) -> None:
        self.stage.program.start(arguments=("up", "--no-worker"))
        for worker in self.workers:
            worker.start(arguments=("worker",))
        await self.stage.until(
            lambda: self.stage.view().is_bot_connected, "the program connects", seconds=60
        )
        if self.stage.name == "discord":
            await self._noted()

    async def _noted(self) -> None:
        """Until the program has noted where the channels of Discord stand."""
        statement = text("SELECT scope FROM inbound_cursor")
        async with asyncio.timeout(60):
            while not await self.database.read(lambda c: c.execute(statement).first()):
                await asyncio.sleep(0.05)

    async def runs(self) -> list[str]:
        statement = text("SELECT status FROM run ORDER BY run_id")
        return await self.database.read(
            lambda c: [str(one) for one in c.execute(statement).scalars()]
        )

    async def executor(self) -> Program:
        """The worker that has taken up the only run."""
        found: list[Program] = []

        def is_found() -> bool:
            found[:] = [one for one in self.workers if "takes up run" in one.log()]
            return bool(found)

        await self.stage.until(is_found, "a worker takes up the run")
        return found[-1]


@asynccontextmanager
async def crew(
    platform: PlatformName,
    scenario: str,
    database_url: str,
    redis_url: str,
    **settings: str,
) -> AsyncGenerator[Crew, None]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        async with redis_client(redis_url):
            pass  # an empty one
        stage = await stack.enter_async_context(
            staged(platform, scenario, database_url=database_url, redis_url=redis_url, **settings)
        )
        workers = tuple(stage.program.beside(f"worker{index}") for index in range(WORKERS))
        for worker in workers:
            stack.callback(worker.kill)
        yield Crew(stage=stage, workers=workers, database=database)


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_worker_answers_what_a_bot_took_in(
    platform: PlatformName,
    postgresql_url: str,  # noqa: F811 - the fixture above
    redis_url: str,
) -> None:
    async with crew(platform, TALK, postgresql_url, redis_url) as told:
        await told.start()
        await told.stage.say("Hello")
        await told.stage.until(lambda: told.stage.shows("Hi there."), "it answers")

        assert sum("Hi there." in text_of(one) for one in told.stage.ours()) == 1
        assert await told.runs() == ["completed"]


async def test_a_stop_is_heard_by_the_worker_that_has_the_run(
    postgresql_url: str,  # noqa: F811 - the fixture above
    redis_url: str,
) -> None:
    async with crew("slack", SLEEP, postgresql_url, redis_url) as told:
        await told.start()
        await told.stage.say("Sleep, please.")
        await told.stage.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")
        began = time.monotonic()
        await told.stage.press("Stop")
        await told.stage.until(lambda: told.stage.shows("Stopped"), "it says so")

        assert time.monotonic() - began < 10
        assert await told.runs() == ["stopped"]


async def test_the_run_of_a_killed_worker_goes_on_at_another(
    postgresql_url: str,  # noqa: F811 - the fixture above
    redis_url: str,
) -> None:
    async with crew("slack", NAP, postgresql_url, redis_url) as told:
        await told.start()
        await told.stage.say("Nap, please.")
        await told.stage.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")
        (await told.executor()).kill()
        await told.stage.until(
            lambda: told.stage.shows("Slept well."), "another answers", seconds=60
        )

        assert sum("Slept well." in text_of(one) for one in told.stage.ours()) == 1
        assert len(told.stage.ours()) == 2, told.stage.report()
        assert await told.runs() == ["completed"]


async def test_what_a_dead_bot_left_is_shown_by_the_other(
    postgresql_url: str,  # noqa: F811 - the fixture above
    redis_url: str,
) -> None:
    async with crew("slack", NAP, postgresql_url, redis_url) as told:
        await told.start()
        other = told.stage.program.beside("bot1")
        try:
            await told.stage.say("Nap, please.")
            await told.stage.until(
                lambda: told.stage.workspace_file("marks.txt"), "the command runs"
            )
            other.start(arguments=("up", "--no-worker"))
            await told.stage.until(lambda: "slack: connected" in other.log(), "another connects")
            told.stage.program.kill()
            (await told.executor()).kill()
            await told.stage.until(
                lambda: told.stage.shows("Slept well."), "another answers", seconds=60
            )
            assert sum("Slept well." in text_of(one) for one in told.stage.ours()) == 1
            assert len(told.stage.ours()) == 2, told.stage.report()
        finally:
            other.kill()


async def test_without_redis_runs_are_late_and_not_lost(
    postgresql_url: str,  # noqa: F811 - the fixture above
) -> None:
    with redis() as url:
        async with crew("slack", TALK, postgresql_url, url) as told:
            await told.start()
            async with redis_client(url) as (client, _streams):
                await client.shutdown(nosave=True)
            await told.stage.say("Hello")
            await told.stage.until(
                lambda: told.stage.shows("Hi there."), "it answers all the same", seconds=60
            )
            assert await told.runs() == ["completed"]
