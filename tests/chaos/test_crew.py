"""Bots and workers that freeze, die and come back: what people see is what one healthy process would show them."""

from collections.abc import Iterator

import pytest

from tests.chaos.crew import crew
from tests.chaos.harness import PlatformName
from tests.chaos.invariants import settle_and_check
from tests.servers import redis
from tests.storage.databases import postgresql_url  # noqa: F401 - a fixture is found by name


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_conversation_goes_on_at_whichever_worker(
    platform: PlatformName,
    postgresql_url: str,  # noqa: F811 - the fixture above
    redis_url: str,
) -> None:
    async with crew(platform, postgresql_url, redis_url) as told:
        await told.start()
        first = await told.say("Work", "a1")
        await settle_and_check(told)
        for number in range(2, 6):
            await told.say("Work", f"a{number}", thread_id=first.thread_id)
            await settle_and_check(told)
