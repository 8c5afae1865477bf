"""Tests that if a bot or worker dies or freezes at any failpoint, another one completes the test scenario."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import product
from typing import get_args
from uuid import uuid4

import asyncpg
import pytest

from core.tasks import cancel, spawn
from tests.chaos.houses import Action, Fate, House, Kind, house, left_behind
from tests.chaos.stories import Story
from tests.chaos.test_crashes import PASSED, STORIES
from tests.contracts.redis_servers import redis_client
from tests.databases import opened
from tests.integration.sandbox.providers import local_jails
from tests.servers import redis

FATE_SECONDS = 20.0
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
HITS = {"storage.heartbeat": (2,)}
"""The passes of a failpoint in a test with two processes, if they are fewer than with a single process."""
OVERTAKEN = ("sandbox.interrupt.after",)
"""Failpoints that a run does not reach if it ends by itself meanwhile."""
ALWAYS: tuple[tuple[str, Fate], ...] = (
    ("report", Fate(kind="worker", place="storage.write.before", action="pause")),
    ("report", Fate(kind="worker", place="sandbox.execute.after", action="kill")),
    ("report", Fate(kind="bot", place="slack.post.after", action="kill", hit=2)),
    ("report", Fate(kind="bot", place="slack.post.before", action="pause", hit=2)),
)
"""Tests that are marked slow. All others are marked long."""


def fates() -> Iterator[tuple[str, Fate]]:
    """Yields fates before and after every failpoint of tests/chaos/test_crashes.py, for each process that passes it."""
    for story, places in PASSED.items():
        for place, hits in places.items():
            kinds: tuple[Kind, ...] = ("bot", "worker") if place in OF_BOTH else ("bot",)
            each = product(
                ("worker",) if place in OF_WORKERS else kinds,
                HITS.get(place, hits),
                (f"{place}.before", f"{place}.after"),
                ACTIONS,
            )
            for kind, hit, at, action in each:
                yield story, Fate(kind=kind, place=at, action=action, hit=hit)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url


@asynccontextmanager
async def database_for(fate: Fate, url: str) -> AsyncGenerator[str, None]:
    """Context manager: yields the URL of an empty database, without tables if the failure is during migration."""
    if not fate.place.startswith("storage.migrate"):
        async with opened(url):
            yield url
        return
    name = f"fate_{uuid4().hex}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield url.replace("/postgres?", f"/{name}?")
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


def test_each_place_is_passed_by_somebody() -> None:
    places = {place for places in PASSED.values() for place in places}
    assert places >= {*OF_BOTH, *OF_WORKERS, *HITS}
    assert not {*OF_BOTH} & {*OF_WORKERS}
    assert {*ALWAYS} <= {*fates()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("story", "fate"),
    [
        pytest.param(
            story,
            fate,
            id=f"{story}-{fate.kind}-{fate.failpoint}",
            marks=pytest.mark.slow if (story, fate) in ALWAYS else pytest.mark.long,
        )
        for story, fate in fates()
    ],
)
async def test_a_fate(
    story: str,
    fate: Fate,
    postgresql_url: str,
    redis_url: str,
) -> None:
    told = STORIES[story]
    if told.sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with redis_client(redis_url):
        pass  # entering the context empties Redis
    async with database_for(fate, postgresql_url) as url, house(told, fate, url, redis_url) as home:
        await play(told, home)


async def play(story: Story, home: House) -> None:
    stage = home.stage
    fate = spawn(home.befallen(), name="fate")
    try:
        await home.start()
        await story.tell(stage)
        try:
            await asyncio.wait_for(fate, FATE_SECONDS)
        except TimeoutError:
            if not home.fate.place.startswith(OVERTAKEN):
                raise AssertionError(f"nobody comes by {home.fate}\n{home.report()}") from None
        await stage.settled(story.runs)
        await home.woken()
        await stage.settled(story.runs)
    finally:
        await cancel(fate)
    try:
        story.check(stage)
        assert left_behind(stage) == []
        assert home.modal is None or not home.modal.world.living()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{home.report()}") from error
