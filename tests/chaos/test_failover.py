"""Tests that if a bot or worker dies or freezes at any failpoint, another one completes the test scenario."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import product
from typing import get_args
from uuid import uuid4

import asyncpg
import pytest

from core.tasks import cancel, spawn
from sandbox.modal.config import BORN_TAG, HOME_TAG
from tests.chaos.failover import Action, FailoverStage, Kind, ProcessFailure, failover_stage, left_behind
from tests.chaos.stories import Story
from tests.chaos.test_crashes import PASSED, STORIES
from tests.contracts.redis_servers import redis_client
from tests.databases import opened
from tests.support.sandboxes import local_jails

FAILURE_SECONDS = 30.0
ENDING_SECONDS = 30.0
ACTIONS: tuple[Action, ...] = get_args(Action)
OF_BOTH = (
    "storage.open",
    "storage.migrate",
    "storage.sweep_events",
    "storage.expire_approvals",
    "storage.sweep_audit",
    "storage.heartbeat",
    "sandbox.open",
)
OF_WORKERS = (
    "storage.claim_run",
    "storage.record_agent",
    "storage.write",
    "storage.finish",
    "storage.suspend",
    "storage.release_run",
    "storage.change_plans",
    "slack.download",
    "slack.read_talk",
    "discord.download",
    "discord.read_talk",
    "sandbox.execute",
    "sandbox.write",
    "sandbox.delete",
    "sandbox.terminate",
    "sandbox.interrupt",
    "llm.openai.request",
    "llm.litellm.request",
    "mcp.connect",
    "mcp.list",
    "mcp.call",
    "modal.create",
    "modal.exec",
    "modal.snapshot",
    "storage.replace_sandbox",
    "redis.publish",
)
"""Failpoints that workers pass. Bots pass all others."""
PASSES = {"storage.heartbeat": (":2",)}
"""The passes of a failpoint in a test with two processes, if they are fewer than with a single process."""
OVERTAKEN = ("sandbox.interrupt.after",)
"""Failpoints that a run does not reach if it ends by itself meanwhile."""


def process_failures() -> Iterator[tuple[str, ProcessFailure]]:
    """Yields failures before and after every failpoint of test_crashes.py, for each process that passes it."""
    for story, places in PASSED.items():
        for place, passes in places.items():
            kinds: tuple[Kind, ...] = ("bot", "worker") if place in OF_BOTH else ("bot",)
            each = product(
                ("worker",) if place in OF_WORKERS else kinds,
                PASSES.get(place, passes),
                (f"{place}.before", f"{place}.after"),
                ACTIONS,
            )
            for kind, at, place_and_time, action in each:
                yield story, ProcessFailure(kind=kind, place=place_and_time, action=action, at=at)


@asynccontextmanager
async def database_for(failure: ProcessFailure, url: str) -> AsyncGenerator[str, None]:
    """Context manager: yields the URL of an empty database, without tables if the failure is during migration."""
    if not failure.place.startswith("storage.migrate"):
        async with opened(url):
            yield url
        return
    name = f"failure_{uuid4().hex}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield url.replace("/postgres?", f"/{name}?")
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


def test_each_place_is_passed_by_somebody() -> None:
    places = {place for places in PASSED.values() for place in places}
    assert places >= {*OF_BOTH, *OF_WORKERS, *PASSES}
    assert not {*OF_BOTH} & {*OF_WORKERS}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("story", "failure"),
    [
        pytest.param(story, failure, id=f"{story}-{failure.kind}-{failure.failpoint}")
        for story, failure in process_failures()
    ],
)
async def test_a_process_failure(story: str, failure: ProcessFailure, postgresql_url: str, redis_url: str) -> None:
    told = STORIES[story]
    if told.sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with redis_client(redis_url):
        pass  # entering the context empties Redis
    async with database_for(failure, postgresql_url) as url, failover_stage(told, failure, url, redis_url) as running:
        await play(told, running)


async def play(story: Story, running: FailoverStage) -> None:
    stage = running.stage
    failure = spawn(running.wait_for_failure(), name="failure")
    try:
        await running.start()
        await story.tell(stage)
        try:
            await asyncio.wait_for(failure, FAILURE_SECONDS)
        except TimeoutError:
            if not running.failure.place.startswith(OVERTAKEN):
                raise AssertionError(f"nobody comes by {running.failure}\n{running.report()}") from None
        await stage.settled(story.runs)
        woken_at = int(time.time())
        await running.wake()
        await stage.settled(story.runs)
    finally:
        await cancel(failure)
    try:
        story.check(stage)
        assert left_behind(stage) == []
        await _check_sandboxes(running, woken_at)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{running.report()}") from error


async def _check_sandboxes(running: FailoverStage, woken_at: int) -> None:
    """Checks that no sandbox is left at Modal, or that the janitor will know it: one that Modal was still making when
    its run was taken away. A worker that wakes may make one for a forgotten thread: it ends it at once, or leaves it to
    the janitor if it notices the loss of its lease meanwhile."""
    world = running.modal.world if running.modal else None
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_SECONDS):
            while world and world.living():
                await asyncio.sleep(0.05)
    living = world.living() if world else []
    if not running.failure.place.startswith("modal.create"):
        assert [one for one in living if float(one.tags[BORN_TAG]) < woken_at] == []
    recorded = {ref for (ref,) in running.stage.rows("SELECT provider_ref FROM sandbox")}
    for one in living:
        assert one.sandbox_id not in recorded
        assert {HOME_TAG, BORN_TAG} <= one.tags.keys()
